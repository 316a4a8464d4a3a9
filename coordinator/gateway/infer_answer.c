#include <math.h>

#include "coordinator/gateway/infer.h"
#include "coordinator/gateway/infer_times.h"
#include "coordinator/gateway/json_write.h"

const char *infer_type_name(enum ndarray_type type)
{
    static const char *const names[ND_TYPE_COUNT] = {
        [ND_F32] = "FP32",  [ND_U8] = "UINT8",  [ND_I8] = "INT8",    [ND_U16] = "UINT16",
        [ND_I16] = "INT16", [ND_I32] = "INT32", [ND_I64] = "INT64",  [ND_BOOL] = "BOOL",
        [ND_F16] = "FP16",  [ND_F64] = "FP64",  [ND_U32] = "UINT32", [ND_U64] = "UINT64",
    };
    return (unsigned)type < ND_TYPE_COUNT ? names[type] : NULL;
}

/* ---- an answer ---- */

static void number_write(const struct ndarray *a, int64_t i, struct buffer *out)
{
    double v = 0;
    if (ndarray_type_is_float(a->type) && !isfinite(v = ndarray_f64(a, i)))
        buffer_append(out, "null", 4);
    else if (ndarray_type_is_float(a->type))
        buffer_printf(out, a->type == ND_F64 ? "%.17g" : "%.9g", v);
    else if (a->type == ND_BOOL)
        buffer_printf(out, ndarray_i64(a, i) ? "true" : "false");
    else if (a->type == ND_U64)
        buffer_printf(out, "%llu", (unsigned long long)((const uint64_t *)a->data)[i]);
    else
        buffer_printf(out, "%lld", (long long)ndarray_i64(a, i));
}

static void data_write(const struct ndarray *a, struct buffer *out)
{
    buffer_printf(out, ",\"data\":[");
    for (int64_t i = 0; i < a->count && !out->failed; i++) {
        if (i > 0)
            buffer_append(out, ",", 1);
        number_write(a, i, out);
    }
    buffer_printf(out, "]");
}

static void output_write(const struct infer_tensor *t, const struct ndarray *a, bool binary,
                         struct buffer *out)
{
    const char *type = infer_type_name(a->type);
    buffer_printf(out, "{\"name\":");
    json_write_text(out, t->name);
    buffer_printf(out, ",\"datatype\":\"%s\",\"shape\":[", type ? type : "");
    for (int d = 0; d < a->n_dims; d++)
        buffer_printf(out, "%s%lld", d ? "," : "", (long long)a->dims[d]);
    buffer_printf(out, "]");
    if (binary)
        buffer_printf(out, ",\"parameters\":{\"binary_data_size\":%llu}",
                      (unsigned long long)ndarray_bytes(a));
    else
        data_write(a, out);
    buffer_printf(out, "}");
}

size_t infer_answer_write(const struct infer_model *m, const struct infer_request *r,
                          const struct ndarray *outputs, struct buffer *out)
{
    size_t before = out->size;
    buffer_printf(out, "{\"model_name\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"model_version\":\"1\"");
    if (r->id[0]) {
        buffer_printf(out, ",\"id\":");
        json_write_text(out, r->id);
    }
    buffer_printf(out, ",\"outputs\":[");
    for (int i = 0; i < r->n_outputs; i++) {
        if (i > 0)
            buffer_append(out, ",", 1);
        output_write(&m->outputs[r->outputs[i]], &outputs[r->outputs[i]], r->binary[i], out);
    }
    buffer_printf(out, "]");
    if (r->times) {
        buffer_append(out, ",", 1);
        infer_times_write(r->times, out);
    }
    buffer_printf(out, "}");
    size_t json_bytes = out->size - before;
    for (int i = 0; i < r->n_outputs; i++) {
        const struct ndarray *a = &outputs[r->outputs[i]];
        if (r->binary[i] && a->count > 0)
            buffer_append(out, a->data, ndarray_bytes(a));
    }
    return json_bytes;
}

/* ---- what a model is ---- */

/* A tensor in the words of a document: metadata, or Triton's configuration. */
struct tensor_words {
    const char *type, *type_prefix, *dims;
};

static void tensors_write(const struct infer_tensor *t, int n, const struct tensor_words *words,
                          struct buffer *out)
{
    for (int i = 0; i < n; i++) {
        const char *type = infer_type_name(t[i].type);
        buffer_printf(out, "%s{\"name\":", i ? "," : "");
        json_write_text(out, t[i].name);
        buffer_printf(out, ",\"%s\":\"%s%s\",\"%s\":[", words->type, type ? words->type_prefix : "",
                      type ? type : "", words->dims);
        for (int d = 0; d < t[i].n_dims; d++)
            buffer_printf(out, "%s%lld", d ? "," : "", (long long)t[i].dims[d]);
        buffer_printf(out, "]}");
    }
}

void infer_metadata_write(const struct infer_model *m, struct buffer *out)
{
    static const struct tensor_words words = {"datatype", "", "shape"};
    buffer_printf(out, "{\"name\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"versions\":[\"1\"],\"platform\":\"" INFER_PLATFORM "\",\"inputs\":[");
    tensors_write(m->inputs, m->n_inputs, &words, out);
    buffer_printf(out, "],\"outputs\":[");
    tensors_write(m->outputs, m->n_outputs, &words, out);
    buffer_printf(out, "]}");
}

/* A batch is a dimension of its tensors, which is what Triton means by a `max_batch_size` of 0. */
void infer_config_write(const struct infer_model *m, struct buffer *out)
{
    static const struct tensor_words words = {"data_type", "TYPE_", "dims"};
    buffer_printf(out, "{\"name\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"platform\":\"" INFER_PLATFORM "\",\"max_batch_size\":0,\"input\":[");
    tensors_write(m->inputs, m->n_inputs, &words, out);
    buffer_printf(out, "],\"output\":[");
    tensors_write(m->outputs, m->n_outputs, &words, out);
    buffer_printf(out, "]}");
}
