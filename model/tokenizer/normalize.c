#include "model/tokenizer/normalize.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/utf8.h"
#include "model/tokenizer/normalize_chars.h"

static int replace_all(const struct normalize_step *s, const struct buffer *in, size_t limit,
                       struct buffer *out, struct err *e)
{
    const char *at = (const char *)in->data, *end = at + in->size;
    while (s->what_size > 0) {
        const char *hit = memmem(at, (size_t)(end - at), s->what, s->what_size);
        if (!hit)
            break;
        buffer_append(out, at, (size_t)(hit - at));
        buffer_append(out, s->with, s->with_size);
        if (out->size > limit)
            return err_set(e, HP_ELIMIT,
                           "the tokenizer's normaliser grows a text of %zu bytes beyond %zu",
                           in->size, limit);
        at = hit + s->what_size;
    }
    buffer_append(out, at, (size_t)(end - at));
    return 0;
}

static int by_class(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return a < b ? -1 : a > b;
}

/* Canonical ordering: runs of combining marks, stably sorted by class. Class and place make one
 * key, so that qsort is stable; the library's own ordering takes quadratic time for a long run. */
static int order_marks(utf8proc_int32_t *c, size_t n)
{
    for (size_t start = 0; start < n;) {
        if (utf8proc_get_property(c[start])->combining_class == 0) {
            start++;
            continue;
        }
        size_t end = start;
        while (end < n && utf8proc_get_property(c[end])->combining_class != 0)
            end++;
        size_t run = end - start;
        uint64_t *keys = run > 1 ? malloc(run * (sizeof *keys + sizeof *c)) : NULL;
        if (run > 1) {
            if (!keys)
                return HP_ENOMEM;
            utf8proc_int32_t *copy = (utf8proc_int32_t *)(void *)(keys + run);
            memcpy(copy, c + start, run * sizeof *c);
            for (size_t i = 0; i < run; i++)
                keys[i] = (uint64_t)utf8proc_get_property(copy[i])->combining_class << 32 | i;
            qsort(keys, run, sizeof *keys, by_class);
            for (size_t i = 0; i < run; i++)
                c[start + i] = copy[keys[i] & UINT32_MAX];
            free(keys);
        }
        start = end;
    }
    return 0;
}

/* Decomposes into code points (u32). */
static void text_decompose(const struct buffer *in, bool compatible, struct buffer *points)
{
    utf8proc_option_t options =
        (utf8proc_option_t)(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
    const char *text = (const char *)in->data;
    for (size_t at = 0; at < in->size;) {
        uint32_t c = 0;
        int length = utf8_decode(text + at, in->size - at, &c);
        if (length <= 0)
            return;
        at += (size_t)length;
        utf8proc_int32_t parts[32];
        int boundary = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32, options, &boundary);
        if (n < 0 || n > 32) {
            parts[0] = (utf8proc_int32_t)c;
            n = 1;
        }
        buffer_append(points, parts, (size_t)n * sizeof *parts);
    }
}

static bool is_ascii(const struct buffer *in)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < in->size; i++)
        seen |= in->data[i];
    return seen < 0x80;
}

static int unicode_form(enum normalize_kind kind, const struct buffer *in, struct buffer *out,
                        struct err *e)
{
    if (is_ascii(in)) {
        buffer_append(out, in->data, in->size);
        return 0;
    }
    struct buffer points = {0};
    text_decompose(in, kind == NORMALIZE_NFKC || kind == NORMALIZE_NFKD, &points);
    utf8proc_int32_t *c = (utf8proc_int32_t *)(void *)points.data;
    size_t n = points.size / sizeof *c;
    int rc = points.failed ? HP_ENOMEM : order_marks(c, n);
    if (rc == 0 && (kind == NORMALIZE_NFC || kind == NORMALIZE_NFKC)) {
        utf8proc_ssize_t composed = utf8proc_normalize_utf32(
            c, (utf8proc_ssize_t)n, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        n = composed < 0 ? 0 : (size_t)composed;
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        utf8_append(out, (uint32_t)c[i]);
    buffer_free(&points);
    return rc < 0 ? err_set(e, rc, "out of memory to normalise %zu bytes", in->size) : 0;
}

int normalizer_add(struct normalizer *n, const struct normalize_step *step, struct err *e)
{
    if (n->n_steps == NORMALIZE_MAX_STEPS) {
        struct pattern *pattern = step->pattern;
        pattern_destroy(&pattern);
        return err_set(e, HP_ELIMIT, "there are more than %d normalizers", NORMALIZE_MAX_STEPS);
    }
    n->steps[n->n_steps++] = *step;
    return 0;
}

void normalizer_fini(struct normalizer *n)
{
    for (int i = 0; i < n->n_steps; i++)
        pattern_destroy(&n->steps[i].pattern);
    n->n_steps = 0;
}

static int matches_replace(const struct normalize_step *s, const struct buffer *in, size_t limit,
                           struct buffer *out, struct err *e)
{
    const char *text = (const char *)in->data;
    struct pattern_search *search = pattern_search_create();
    size_t at = 0, start, end;
    int rc = search ? 1 : err_set(e, HP_ENOMEM, "out of memory to normalise %zu bytes", in->size);
    if (search)
        pattern_search_expect(search, in->size);
    for (size_t from = 0; rc == 1 && from <= in->size;) {
        rc = pattern_find(s->pattern, search, text, in->size, from, &start, &end, e);
        if (rc != 1)
            break;
        buffer_append(out, text + at, start - at);
        buffer_append(out, s->with, s->with_size);
        at = end;
        uint32_t c;
        int step = end == start && end < in->size ? utf8_decode(text + end, in->size - end, &c) : 0;
        from = end + (size_t)(end > start ? 0 : step > 0 ? step : 1);
        if (out->size > limit)
            rc = err_set(e, HP_ELIMIT,
                         "the tokenizer's normaliser grows a text of %zu bytes beyond %zu",
                         in->size, limit);
    }
    pattern_search_destroy(&search);
    if (rc >= 0)
        buffer_append(out, text + at, in->size - at);
    return rc < 0 ? rc : 0;
}

/* What leaves plain ASCII as it is. */
static bool concerns_ascii(enum normalize_kind kind)
{
    return kind != NORMALIZE_SPACE_HAN && kind != NORMALIZE_STRIP_MARKS &&
           kind != NORMALIZE_STRIP_ALL_MARKS;
}

static int step_apply(const struct normalize_step *s, const struct buffer *in, bool at_start,
                      size_t limit, struct buffer *out, struct err *e)
{
    out->size = 0;
    if (!concerns_ascii(s->kind) && is_ascii(in)) {
        buffer_append(out, in->data, in->size);
        return 0;
    }
    switch (s->kind) {
    case NORMALIZE_PREPEND:
        if (at_start && in->size > 0)
            buffer_append(out, s->with, s->with_size);
        buffer_append(out, in->data, in->size);
        return 0;
    case NORMALIZE_REPLACE: return replace_all(s, in, limit, out, e);
    case NORMALIZE_PATTERN: return matches_replace(s, in, limit, out, e);
    case NORMALIZE_NFC:
    case NORMALIZE_NFD:
    case NORMALIZE_NFKC:
    case NORMALIZE_NFKD: return unicode_form(s->kind, in, out, e);
    case NORMALIZE_LOWERCASE: chars_lowercase(in, out); break;
    case NORMALIZE_CLEAN: chars_clean(in, out); break;
    case NORMALIZE_SPACE_HAN: chars_space_han(in, out); break;
    case NORMALIZE_STRIP_MARKS: chars_strip_marks(in, false, out); break;
    case NORMALIZE_STRIP_ALL_MARKS: chars_strip_marks(in, true, out); break;
    case NORMALIZE_NMT: chars_nmt(in, out); break;
    case NORMALIZE_STRIP_LEFT: chars_strip_ends(in, true, false, out); break;
    case NORMALIZE_STRIP_RIGHT: chars_strip_ends(in, false, true, out); break;
    case NORMALIZE_SQUEEZE: chars_squeeze(in, out); break;
    case NORMALIZE_CHARSMAP:
        return charsmap_apply(s->map, (const char *)in->data, in->size, limit, out, e);
    }
    return 0;
}

int normalizer_run(const struct normalizer *n, const char *text, size_t size, bool at_start,
                   struct buffer *out, struct buffer *scratch, struct err *e)
{
    size_t limit = size * 64 + (1 << 20);
    out->size = 0;
    buffer_append(out, text, size);
    for (int i = 0; i < n->n_steps; i++) {
        if (out->size == 0)
            break;
        int rc = step_apply(&n->steps[i], out, at_start, limit, scratch, e);
        if (rc < 0)
            return rc;
        struct buffer swap = *out;
        *out = *scratch;
        *scratch = swap;
    }
    return out->failed || scratch->failed
               ? err_set(e, HP_ENOMEM, "out of memory to normalise %zu bytes", size)
               : 0;
}
