#include "coordinator/gateway/ollama_model.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "coordinator/gateway/json_write.h"
#include "model/model.h"

enum { FORMATS_MAX = 32 }; /* of a file; more would not be counted */

struct model_amount {
    uint64_t bytes, parameters;
    const char *format; /* that most of them have; "" of a model without weights */
};

static uint64_t weight_parameters(const struct weight *w)
{
    uint64_t n = 1;
    for (int d = 0; d < w->n_dims; d++)
        n *= w->shape[d];
    return n;
}

static struct model_amount amount_of(const struct model *m)
{
    struct model_amount a = {.bytes = model_files_bytes(m), .format = ""};
    struct {
        const char *format;
        uint64_t parameters;
    } sums[FORMATS_MAX];
    int n_weights, n = 0, most = 0;
    const struct weight *w = model_weights(m, &n_weights);
    for (int i = 0; i < n_weights; i++) {
        int k = 0;
        while (k < n && strcmp(sums[k].format, w[i].format) != 0)
            k++;
        if (k == FORMATS_MAX)
            continue;
        if (k == n) {
            sums[n].format = w[i].format;
            sums[n++].parameters = 0;
        }
        a.parameters += weight_parameters(&w[i]);
        sums[k].parameters += weight_parameters(&w[i]);
        most = sums[k].parameters > sums[most].parameters ? k : most;
    }
    if (n)
        a.format = sums[most].format;
    return a;
}

/* 134.52M, 7B: as Ollama writes it. */
static void parameters_write(struct buffer *out, uint64_t n)
{
    static const struct {
        uint64_t unit;
        char letter;
        int digits;
    } units[] = {{1000000000, 'B', 1}, {1000000, 'M', 2}, {1000, 'K', 0}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (n >= units[i].unit) {
            bool whole = n % units[i].unit == 0;
            buffer_printf(out, "%.*f%c", whole ? 0 : units[i].digits,
                          (double)n / (double)units[i].unit, units[i].letter);
            return;
        }
    buffer_printf(out, "%" PRIu64, n);
}

static const char *family_of(const struct model *m)
{
    const char *family = model_config(m)->architecture;
    return family ? family : "";
}

static void details_write(struct buffer *out, const struct model *m, const struct model_amount *a)
{
    const char *path = model_path(m), *dot = path ? strrchr(path, '.') : NULL;
    buffer_printf(out, "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":",
                  dot && strcmp(dot, ".gguf") == 0 ? "gguf" : "safetensors");
    json_write_text(out, family_of(m));
    buffer_printf(out, ",\"families\":[");
    json_write_text(out, family_of(m));
    buffer_printf(out, "],\"parameter_size\":\"");
    parameters_write(out, a->parameters);
    buffer_printf(out, "\",\"quantization_level\":");
    json_write_text(out, a->format);
    buffer_printf(out, "}");
}

void ollama_model_write(struct buffer *out, const struct model *m, const char *content)
{
    static const char unknown[] =
        "0000000000000000000000000000000000000000000000000000000000000000";
    struct model_amount a = amount_of(m);
    buffer_printf(out, "\"size\":%" PRIu64 ",\"digest\":\"%s\",", a.bytes,
                  content ? content : unknown);
    details_write(out, m, &a);
}

void ollama_details_write(struct buffer *out, const struct model *m)
{
    struct model_amount a = amount_of(m);
    details_write(out, m, &a);
}

static void number_write(struct buffer *out, const char *family, const char *key, uint64_t value)
{
    struct buffer name = {0};
    buffer_printf(&name, "%s.%s", family, key);
    buffer_printf(out, ",");
    json_write_text(out, buffer_cstr(&name));
    buffer_printf(out, ":%" PRIu64, value);
    out->failed |= name.failed;
    buffer_free(&name);
}

void ollama_info_write(struct buffer *out, const struct model *m, uint64_t context,
                       uint32_t vocabulary)
{
    const struct model_config *c = model_config(m);
    const struct {
        const char *family, *key;
        uint64_t value;
    } rows[] = {{"general", "parameter_count", amount_of(m).parameters},
                {family_of(m), "context_length", context},
                {family_of(m), "embedding_length", (uint64_t)c->width},
                {family_of(m), "block_count", (uint64_t)c->n_blocks},
                {family_of(m), "attention.head_count", (uint64_t)c->n_heads},
                {family_of(m), "attention.head_count_kv", (uint64_t)c->n_kv_heads},
                {family_of(m), "vocab_size", vocabulary},
                {"hodgepodge", "context_length", context},
                {"hodgepodge", "vocab_size", vocabulary}};
    buffer_printf(out, "\"model_info\":{\"general.architecture\":");
    json_write_text(out, family_of(m));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        number_write(out, rows[i].family, rows[i].key, rows[i].value);
    buffer_printf(out, "}");
}
