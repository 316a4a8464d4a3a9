#include "coordinator/gateway/infill_text.h"

void infill_text_free(struct infill_text *t)
{
    buffer_free(&t->text);
    buffer_free(&t->literal);
}

static void literal_add(struct infill_text *out, const char *text)
{
    struct text_span span = {out->text.size, 0};
    buffer_printf(&out->text, "%s", text ? text : "");
    span.end = out->text.size;
    buffer_append(&out->literal, &span, sizeof span);
}

static int text_check(const struct infill_text *t, struct err *e)
{
    return t->text.failed || t->literal.failed ? err_no_memory(e, "a prompt") : 0;
}

int infill_text_gap(const json_t *root, const struct tokenizer *t, struct infill_text *out,
                    struct err *e)
{
    const char *marks[3];
    if (!tokenizer_infill_texts(t, marks))
        return err_set(e, HP_EUNSUPPORTED,
                       "infill: this model's vocabulary has no tokens that mark a gap "
                       "(<|fim_prefix|> and its likes)");
    buffer_printf(&out->text, "%s", marks[0]);
    literal_add(out, json_string_value(json_object_get(root, "input_prefix")));
    buffer_printf(&out->text, "%s", marks[1]);
    literal_add(out, json_string_value(json_object_get(root, "input_suffix")));
    buffer_printf(&out->text, "%s", marks[2]);
    return text_check(out, e);
}

/* The first of the last files that have so many bytes together. */
static size_t files_from(const json_t *files, size_t most_bytes)
{
    size_t from = json_array_size(files), bytes = 0;
    while (from > 0) {
        bytes += json_string_length(json_object_get(json_array_get(files, from - 1), "text"));
        if (bytes > most_bytes)
            break;
        from--;
    }
    return from;
}

/* The words are llama-server's own: a model has seen the same before a gap, whoever serves it. */
int infill_text_files(const json_t *root, const struct tokenizer *t, size_t most_bytes,
                      struct infill_text *out, struct err *e)
{
    const json_t *files = json_object_get(root, "input_extra");
    const char *repository, *file;
    if (json_array_size(files) == 0)
        return 0;
    tokenizer_infill_files(t, &repository, &file);
    if (repository)
        buffer_printf(&out->text, "%smyproject\n", repository);
    for (size_t i = files_from(files, most_bytes); i < json_array_size(files); i++) {
        const json_t *one = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(one, "filename"));
        buffer_printf(&out->text, "%s", file ? file : "\n\n--- snippet ---\n\n");
        if (file) {
            literal_add(out, name ? name : "tmp");
            buffer_printf(&out->text, "\n");
        }
        literal_add(out, json_string_value(json_object_get(one, "text")));
    }
    if (file)
        buffer_printf(&out->text, "%sfilename\n", file);
    return text_check(out, e);
}
