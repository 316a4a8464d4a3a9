#include <string.h>

#include "coordinator/gateway/infer_message.h"
#include "coordinator/gateway/infer_times.h"
#include "coordinator/gateway/protobuf_write.h"

/* ---- an answer ---- */

/* An entry of a map of InferParameter: a text. */
static void parameter_write(struct buffer *out, uint32_t field, const char *name,
                            const struct buffer *text)
{
    struct buffer entry = {0}, value = {0};
    pb_put_bytes(&value, 3, text->data, text->size);
    pb_put_text(&entry, 1, name);
    pb_put_message(&entry, 2, &value);
    entry.failed |= text->failed;
    pb_put_message(out, field, &entry);
}

static void times_write(const struct infer_times *t, struct buffer *out)
{
    struct buffer text = {0};
    buffer_printf(&text, "{");
    infer_times_write(t, &text);
    buffer_printf(&text, "}");
    parameter_write(out, 4, "timings", &text);
    buffer_free(&text);
}

static void output_write(const struct infer_tensor *t, const struct ndarray *a, struct buffer *out)
{
    const char *type = infer_type_name(a->type);
    struct buffer tensor = {0};
    pb_put_text(&tensor, 1, t->name);
    pb_put_text(&tensor, 2, type ? type : "");
    pb_put_numbers(&tensor, 3, a->dims, a->n_dims);
    pb_put_message(out, 5, &tensor);
}

void infer_message_write(const struct infer_model *m, const struct infer_request *r,
                         const struct ndarray *outputs, struct buffer *out)
{
    pb_put_text(out, 1, m->name);
    pb_put_text(out, 2, "1");
    if (r->id[0])
        pb_put_text(out, 3, r->id);
    if (r->times)
        times_write(r->times, out);
    for (int i = 0; i < r->n_outputs; i++)
        output_write(&m->outputs[r->outputs[i]], &outputs[r->outputs[i]], out);
    for (int i = 0; i < r->n_outputs; i++) {
        const struct ndarray *a = &outputs[r->outputs[i]];
        pb_put_bytes(out, 6, a->data, a->count > 0 ? ndarray_bytes(a) : 0);
    }
}

/* ---- what a model is ---- */

static int dims_of(const struct infer_tensor *t)
{
    return t->n_dims < 0 ? 0 : t->n_dims;
}

static void tensors_write(const struct infer_tensor *t, int n, uint32_t field, struct buffer *out)
{
    for (int i = 0; i < n; i++) {
        const char *type = infer_type_name(t[i].type);
        struct buffer tensor = {0};
        pb_put_text(&tensor, 1, t[i].name);
        pb_put_text(&tensor, 2, type ? type : "");
        pb_put_numbers(&tensor, 3, t[i].dims, dims_of(&t[i]));
        pb_put_message(out, field, &tensor);
    }
}

void infer_message_metadata(const struct infer_model *m, struct buffer *out)
{
    pb_put_text(out, 1, m->name);
    pb_put_text(out, 2, "1");
    pb_put_text(out, 3, INFER_PLATFORM);
    tensors_write(m->inputs, m->n_inputs, 4, out);
    tensors_write(m->outputs, m->n_outputs, 5, out);
}

/* Triton's DataType. */
static uint64_t config_type(enum ndarray_type type)
{
    static const uint8_t types[ND_TYPE_COUNT] = {
        [ND_BOOL] = 1, [ND_U8] = 2,  [ND_U16] = 3, [ND_U32] = 4,  [ND_U64] = 5,  [ND_I8] = 6,
        [ND_I16] = 7,  [ND_I32] = 8, [ND_I64] = 9, [ND_F16] = 10, [ND_F32] = 11, [ND_F64] = 12};
    return (unsigned)type < ND_TYPE_COUNT ? types[type] : 0;
}

/* ModelInput has a format between its type and its dimensions, ModelOutput has none. */
static void config_tensors(const struct infer_tensor *t, int n, uint32_t field, uint32_t dims,
                           struct buffer *out)
{
    for (int i = 0; i < n; i++) {
        struct buffer tensor = {0};
        pb_put_text(&tensor, 1, t[i].name);
        pb_put_number(&tensor, 2, config_type(t[i].type));
        pb_put_numbers(&tensor, dims, t[i].dims, dims_of(&t[i]));
        pb_put_message(out, field, &tensor);
    }
}

void infer_message_config(const struct infer_model *m, struct buffer *out)
{
    struct buffer config = {0};
    pb_put_text(&config, 1, m->name);
    pb_put_text(&config, 2, INFER_PLATFORM);
    config_tensors(m->inputs, m->n_inputs, 5, 4, &config);
    config_tensors(m->outputs, m->n_outputs, 6, 3, &config);
    pb_put_message(out, 1, &config);
}
