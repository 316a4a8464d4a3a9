#include "coordinator/gateway/infill_prompt.h"

#include <string.h>

enum {
    MOST_TOKEN_BYTES = 16 /* of texts with more for each token that has room the rest is cut */
};

/* ---- texts ---- */

struct infill_text {
    struct buffer text;
    struct buffer literal; /* struct text_span of it: whatever spells a mark there is text */
};

static void text_free(struct infill_text *t)
{
    buffer_free(&t->text);
    buffer_free(&t->literal);
}

static void literal_add(struct infill_text *out, const char *text, size_t n)
{
    struct text_span span = {out->text.size, out->text.size + n};
    buffer_append(&out->text, text, n);
    buffer_append(&out->literal, &span, sizeof span);
}

static bool byte_continues(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* The last bytes, or the first ones, of a member; whole characters. */
static void member_add(struct infill_text *out, const json_t *root, const char *name, size_t most,
                       bool last)
{
    const json_t *v = json_object_get(root, name);
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    size_t n = strlen(text), from = last && n > most ? n - most : 0,
           end = !last && n > most ? most : n;
    while (from && from < n && byte_continues(text[from]))
        from++;
    while (end < n && end && byte_continues(text[end]))
        end--;
    literal_add(out, text + from, end - from);
}

static void gap_write(const json_t *root, const struct infill_mark marks[3], size_t most_bytes,
                      struct infill_text *out)
{
    buffer_printf(&out->text, "%s", marks[0].text);
    member_add(out, root, "input_prefix", most_bytes, true);
    buffer_printf(&out->text, "%s", marks[1].text);
    member_add(out, root, "input_suffix", most_bytes, false);
    buffer_printf(&out->text, "%s", marks[2].text);
}

/* The first of the last files that have so many bytes together. */
static size_t files_from(const json_t *files, size_t most_bytes)
{
    size_t from = json_array_size(files), bytes = 0;
    while (from > 0 && bytes < most_bytes) {
        from--;
        bytes += json_string_length(json_object_get(json_array_get(files, from), "text"));
    }
    return from;
}

/* The words are llama-server's own: a model has seen the same before a gap, whoever serves it. */
static void files_write(const json_t *files, const struct tokenizer *t, size_t most_bytes,
                        struct infill_text *out)
{
    const char *repository, *file;
    tokenizer_infill_files(t, &repository, &file);
    if (repository)
        buffer_printf(&out->text, "%smyproject\n", repository);
    for (size_t i = files_from(files, most_bytes); i < json_array_size(files); i++) {
        const json_t *one = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(one, "filename"));
        buffer_printf(&out->text, "%s", file ? file : "\n\n--- snippet ---\n\n");
        if (file) {
            literal_add(out, name ? name : "tmp", strlen(name ? name : "tmp"));
            buffer_printf(&out->text, "\n");
        }
        member_add(out, one, "text", most_bytes, true);
    }
    if (file)
        buffer_printf(&out->text, "%sfilename\n", file);
}

/* ---- ids ---- */

static int text_encode(const struct infill_text *text, const struct tokenizer *t, bool add_special,
                       struct buffer *ids, struct err *e)
{
    if (text->text.failed || text->literal.failed)
        return err_no_memory(e, "a prompt");
    return tokenizer_encode_literal(
        t, text->text.data ? (const char *)text->text.data : "", text->text.size,
        (const struct text_span *)(const void *)text->literal.data,
        text->literal.size / sizeof(struct text_span), add_special, ids, e);
}

static size_t ids_count(const struct buffer *ids)
{
    return ids->size / sizeof(uint32_t);
}

static void ids_remove(struct buffer *ids, size_t from, size_t n)
{
    uint8_t *at = ids->data + from * sizeof(uint32_t);
    size_t bytes = n * sizeof(uint32_t), behind = ids->size - from * sizeof(uint32_t) - bytes;
    memmove(at, at + bytes, behind);
    ids->size -= bytes;
}

/* Where a mark stands from `from` on: each does once, since none in a text is one. */
static size_t mark_place(const struct buffer *ids, size_t from, const struct infill_mark *mark)
{
    const uint32_t *list = (const uint32_t *)(const void *)ids->data;
    while (from < ids_count(ids) && list[from] != mark->id)
        from++;
    return from;
}

/* Leaves of a gap what has room. False: its marks alone have none. */
static bool gap_cut(struct buffer *ids, const struct infill_mark marks[3], uint64_t room)
{
    size_t all = ids_count(ids), before = mark_place(ids, 0, &marks[0]) + 1;
    size_t middle = mark_place(ids, before, &marks[1]), behind = mark_place(ids, middle, &marks[2]);
    if (all <= room)
        return true;
    if (behind >= all)
        return false;
    size_t prefix = middle - before, suffix = behind - middle - 1, own = all - prefix - suffix;
    if (own > room)
        return false;
    size_t texts = (size_t)room - own, quarter = texts / 4,
           left = texts > prefix ? texts - prefix : 0, most = left > quarter ? left : quarter,
           kept = suffix < most ? suffix : most;
    ids_remove(ids, middle + 1 + kept, suffix - kept);
    if (prefix > texts - kept)
        ids_remove(ids, before, prefix - (texts - kept));
    return true;
}

static int gap_make(const json_t *root, const struct tokenizer *t, uint64_t room,
                    struct buffer *ids, struct err *e)
{
    struct infill_mark marks[3];
    struct infill_text gap = {0};
    if (!tokenizer_infill_marks(t, marks))
        return err_set(e, HP_EUNSUPPORTED,
                       "infill: this model's vocabulary has no tokens that mark a gap "
                       "(<|fim_prefix|> and its likes)");
    gap_write(root, marks, room * MOST_TOKEN_BYTES, &gap);
    int rc = text_encode(&gap, t, true, ids, e);
    text_free(&gap);
    if (rc == 0 && !ids->failed && !gap_cut(ids, marks, room))
        rc = err_set(e, HP_EINVAL,
                     "input_prefix: the context has no room for a gap beside the answer: ask for a "
                     "shorter one (n_predict)");
    return rc;
}

/* As many of the last tokens as have room. */
static int files_make(const json_t *files, const struct tokenizer *t, uint64_t room,
                      struct buffer *ids, struct err *e)
{
    struct infill_text text = {0};
    struct buffer all = {0};
    if (!room || json_array_size(files) == 0)
        return 0;
    files_write(files, t, room * MOST_TOKEN_BYTES, &text);
    int rc = text_encode(&text, t, false, &all, e);
    size_t n = ids_count(&all), from = n > room ? n - (size_t)room : 0;
    if (rc == 0 && n > from)
        buffer_append(ids, all.data + from * sizeof(uint32_t), (n - from) * sizeof(uint32_t));
    ids->failed |= all.failed;
    buffer_free(&all);
    text_free(&text);
    return rc;
}

int infill_prompt_make(const json_t *root, const struct tokenizer *t, uint64_t room,
                       struct buffer *ids, struct err *e)
{
    struct buffer gap = {0};
    int rc = gap_make(root, t, room, &gap, e);
    if (rc == 0)
        rc = files_make(json_object_get(root, "input_extra"), t, room - ids_count(&gap), ids, e);
    if (rc == 0)
        buffer_append(ids, gap.data, gap.size);
    ids->failed |= gap.failed;
    buffer_free(&gap);
    return rc;
}
