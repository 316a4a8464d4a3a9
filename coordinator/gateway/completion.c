#include "coordinator/gateway/completion.h"

#include <stdlib.h>
#include <string.h>

void completion_init(struct completion_text *c, const struct tokenizer *t, bool skip_special)
{
    *c = (struct completion_text){0};
    token_stream_init(&c->stream, t, skip_special);
}

bool completion_add_stop(struct completion_text *c, const char *stop)
{
    size_t n = strlen(stop);
    if (n == 0 || n > COMPLETION_MAX_STOP_BYTES || c->n_stops == COMPLETION_MAX_STOPS ||
        c->stops_bytes + n > COMPLETION_MAX_STOPS_BYTES)
        return false;
    char **grown = realloc(c->stops, (size_t)(c->n_stops + 1) * sizeof *grown);
    if (!grown)
        return false;
    c->stops = grown;
    c->stops_bytes += (uint32_t)n;
    c->stops[c->n_stops] = strdup(stop);
    return c->stops[c->n_stops] && ++c->n_stops;
}

bool completion_keep(struct completion_text *c, const char *token)
{
    struct buffer ids = {0};
    struct err ignored = {0};
    int rc = tokenizer_encode(c->stream.tokenizer, token, strlen(token), false, &ids, &ignored);
    bool good = rc != HP_ENOMEM && !ids.failed, one = rc == 0 && ids.size == sizeof(uint32_t);
    if (good && one && (good = c->n_kept < COMPLETION_MAX_KEPT))
        memcpy(&c->kept[c->n_kept++], ids.data, sizeof(uint32_t));
    buffer_free(&ids);
    return good;
}

void completion_fini(struct completion_text *c)
{
    for (int i = 0; i < c->n_stops; i++)
        free(c->stops[i]);
    free(c->stops);
    buffer_free(&c->text);
}

/* Cuts the text at the first stop string that ends after `from`. */
static void find_stop(struct completion_text *c, size_t from)
{
    size_t cut = c->text.size;
    for (int i = 0; i < c->n_stops; i++) {
        size_t n = strlen(c->stops[i]), start = from > n - 1 ? from - (n - 1) : 0;
        const uint8_t *hit =
            c->text.data && c->text.size > start
                ? memmem(c->text.data + start, c->text.size - start, c->stops[i], n)
                : NULL;
        if (hit && (size_t)(hit - c->text.data) < cut) {
            cut = (size_t)(hit - c->text.data);
            c->stopped = true;
            c->found = c->stops[i];
            c->limited = false;
        }
    }
    c->text.size = cut < c->given ? c->given : cut;
}

/* Notes the lines that come from `from` on, and cuts the text at the first that is indented too
 * little, behind its blanks. */
static void find_lines(struct completion_text *c, size_t from)
{
    const uint8_t *text = c->text.data;
    c->line_ended = c->text.size > from && memchr(text + from, '\n', c->text.size - from);
    c->has_line |= c->line_ended;
    for (size_t i = from; c->least_indent && i < c->text.size; i++) {
        bool blank = text[i] == ' ' || text[i] == '\t';
        if (c->indents && !blank && c->indent < c->least_indent) {
            c->text.size = i;
            c->stopped = c->limited = true;
            return;
        }
        c->indents = (c->indents && blank) || text[i] == '\n';
        c->indent = text[i] == '\n' ? 0 : c->indent + blank;
    }
}

void completion_push(struct completion_text *c, uint32_t id)
{
    if (c->stopped)
        return;
    size_t before = c->text.size;
    bool skips = c->stream.skip_special;
    for (int i = 0; i < c->n_kept; i++)
        if (c->kept[i] == id)
            c->stream.skip_special = false;
    token_stream_push(&c->stream, id, &c->text);
    c->stream.skip_special = skips;
    find_lines(c, before);
    find_stop(c, before);
}

void completion_finish(struct completion_text *c)
{
    size_t before = c->text.size;
    if (!c->stopped) {
        token_stream_finish(&c->stream, &c->text);
        find_stop(c, before);
    }
    c->stopped = true; /* nothing is held back any more */
}

void completion_limit(struct completion_text *c)
{
    if (c->stopped)
        return;
    completion_finish(c);
    c->limited = !c->found;
}

/* How many bytes at the end may be the start of a stop string. */
static size_t held_back(const struct completion_text *c)
{
    size_t most = 0;
    for (int i = 0; i < c->n_stops && !c->stopped; i++)
        for (size_t n = strlen(c->stops[i]) - 1; n > most; n--)
            if (n <= c->text.size - c->given &&
                memcmp(c->text.data + c->text.size - n, c->stops[i], n) == 0)
                most = n;
    return most;
}

const char *completion_take(struct completion_text *c, size_t *n)
{
    const char *from = c->text.data ? (const char *)c->text.data + c->given : "";
    *n = c->text.size - c->given - held_back(c);
    /* A stop string may begin inside a character only if it is no text: keep to whole characters
     * all the same. */
    while (*n > 0 && c->given + *n < c->text.size && (from[*n] & 0xC0) == 0x80)
        (*n)--;
    c->given += *n;
    return *n ? from : "";
}

void completion_forget_given(struct completion_text *c)
{
    if (c->given == 0)
        return;
    c->text.size -= c->given;
    memmove(c->text.data, c->text.data + c->given, c->text.size);
    c->given = 0;
}
