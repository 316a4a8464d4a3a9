#include "model/tokenizer/pretokenize.h"

#include <string.h>
#include <utf8proc.h>

#include "common/utf8.h"
#include "model/tokenizer/normalize_chars.h"
#include "model/tokenizer/unicode_new.h"

/* The printable characters of Latin-1 stand for themselves; the other 68 bytes are U+0100 and on,
 * in order. Source: GPT-2's bytes_to_unicode. */
static bool stands_for_itself(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD);
}

static unsigned char_of_byte(uint8_t byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100U + byte;
    return byte == 0xAD ? 0x143 : 0x100U + 0x21 + (byte - 0x7FU);
}

void pretokenize_byte_append(struct buffer *out, uint8_t byte)
{
    utf8_append(out, char_of_byte(byte));
}

int pretokenize_byte_of(uint32_t c)
{
    if (c < 0x100)
        return stands_for_itself(c) ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c == 0x143)
        return 0xAD;
    return c <= 0x142 ? (int)(c - 0x121 + 0x7F) : -1;
}

int pretokenizer_add(struct pretokenizer *p, const struct pretokenize_step *step, struct err *e)
{
    if (p->n_steps == PRETOKENIZE_MAX_STEPS) {
        struct pattern *pattern = step->pattern;
        pattern_destroy(&pattern);
        return err_set(e, HP_ELIMIT, "more than %d steps of pre-tokenization",
                       PRETOKENIZE_MAX_STEPS);
    }
    p->steps[p->n_steps++] = *step;
    return 0;
}

int pretokenizer_add_split(struct pretokenizer *p, const char *regex, enum split_behavior behavior,
                           bool invert, struct err *e)
{
    struct pretokenize_step step = {
        .kind = PRETOKENIZE_SPLIT, .behavior = behavior, .invert = invert};
    int rc = pattern_compile(regex, strlen(regex), &step.pattern, e);
    return rc < 0 ? rc : pretokenizer_add(p, &step, e);
}

void pretokenizer_fini(struct pretokenizer *p)
{
    for (int i = 0; i < p->n_steps; i++)
        pattern_destroy(&p->steps[i].pattern);
    p->n_steps = 0;
}

void words_free(struct words *w)
{
    buffer_free(&w->text);
    buffer_free(&w->ranges);
    buffer_free(&w->other_text);
    buffer_free(&w->other_ranges);
    buffer_free(&w->seen);
    pattern_search_destroy(&w->search);
}

static struct word *last_word(struct buffer *ranges, size_t from)
{
    return ranges->size > from ? (struct word *)(void *)(ranges->data + ranges->size) - 1 : NULL;
}

static void push_word(struct buffer *ranges, size_t start, size_t end)
{
    struct word w = {start, end};
    if (end > start)
        buffer_append(ranges, &w, sizeof w);
}

/* Joins the stretches of one word as they come: `from` is where this word's pieces start in
 * `ranges`. */
struct joiner {
    enum split_behavior behavior;
    struct buffer *ranges;
    size_t from;
    bool after_match, open;
};

static void words_join(struct joiner *j, size_t start, size_t end, bool match)
{
    struct word *last = last_word(j->ranges, j->from);
    bool extend = false;
    if (start == end)
        return;
    switch (j->behavior) {
    case SPLIT_REMOVED:
        if (match)
            return;
        break;
    case SPLIT_WITH_BEFORE: extend = match && !j->after_match && last; break;
    /* A match that another match follows stands alone; one before other text opens a word that the
     * text then ends. */
    case SPLIT_WITH_NEXT: extend = !match && j->open; break;
    case SPLIT_CONTIGUOUS: extend = last && match == j->after_match; break;
    case SPLIT_ISOLATED: break;
    }
    if (extend && last)
        last->end = end;
    else
        push_word(j->ranges, start, end);
    j->open = match;
    j->after_match = match;
}

/* A character that is newer than PCRE2's tables, as an older one; 0 for others. */
static uint32_t older_character(uint32_t c)
{
    size_t low = 0, high = sizeof unicode_new / sizeof *unicode_new;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > unicode_new[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof unicode_new / sizeof *unicode_new && c >= unicode_new[low].first
               ? unicode_new[low].older
               : 0;
}

/* Makes w->seen where a character needs it; every character keeps its length. */
static void see_text(struct words *w)
{
    const char *text = (const char *)w->text.data;
    w->is_seen = false;
    for (size_t at = 0; at < w->text.size;) {
        uint32_t c;
        if ((uint8_t)text[at] < 0xE0) {
            at++;
            continue;
        }
        int length = utf8_decode(text + at, w->text.size - at, &c);
        uint32_t older = length > 0 ? older_character(c) : 0;
        if (older && !w->is_seen) {
            w->seen.size = 0;
            buffer_append(&w->seen, text, w->text.size);
            w->is_seen = !w->seen.failed;
        }
        if (older && w->is_seen)
            utf8_encode(older, (char *)w->seen.data + at);
        at += length > 0 ? (size_t)length : 1;
    }
}

static int split_word(const struct pretokenize_step *s, struct words *w, struct word in,
                      struct buffer *out, struct err *e)
{
    const char *text = (const char *)(w->is_seen ? w->seen.data : w->text.data) + in.start;
    size_t size = in.end - in.start, at = 0, done = 0;
    struct joiner j = {.behavior = s->behavior, .ranges = out, .from = out->size};
    while (at <= size) {
        size_t start, end;
        int rc = pattern_find(s->pattern, w->search, text, size, at, &start, &end, e);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        words_join(&j, in.start + done, in.start + start, s->invert);
        words_join(&j, in.start + start, in.start + end, !s->invert);
        done = at = end;
        if (end > start)
            continue;
        /* An empty match cuts where it stands; the search goes on behind the next character. */
        uint32_t c;
        int length = end < size ? utf8_decode(text + end, size - end, &c) : 1;
        at = end + (size_t)(length > 0 ? length : 1);
    }
    words_join(&j, in.start + done, in.end, s->invert);
    return 0;
}

static bool is_punctuation(uint32_t c)
{
    if (c < 0x80)
        return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
               (c > 'z' && c < 0x7F);
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

static void split_bert(const char *text, struct word in, struct buffer *out)
{
    size_t from = in.start;
    for (size_t at = in.start; at < in.end;) {
        uint32_t c = (uint8_t)text[at];
        int length = c < 0x80 ? 1 : utf8_decode(text + at, in.end - at, &c);
        size_t next = at + (size_t)(length > 0 ? length : 1);
        bool punctuation = is_punctuation(c);
        if (punctuation || char_is_space(c)) {
            push_word(out, from, at);
            push_word(out, at, punctuation ? next : at);
            from = next;
        }
        at = next;
    }
    push_word(out, from, in.end);
}

static void metaspace_word(const struct pretokenize_step *s, const char *text, size_t size,
                           bool first, struct buffer *out)
{
    static const char mark[] = "\xE2\x96\x81";
    bool wanted = s->prepend == METASPACE_ALWAYS || (s->prepend == METASPACE_FIRST && first);
    if (wanted && size > 0 && text[0] != ' ' && (size < 3 || memcmp(text, mark, 3) != 0))
        buffer_append(out, mark, 3);
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ' ')
            buffer_append(out, mark, 3);
        else
            buffer_append(out, text + i, 1);
    }
}

static void rewrite_word(const struct pretokenize_step *s, const char *text, size_t size,
                         bool first, struct buffer *out)
{
    if (s->kind == PRETOKENIZE_METASPACE) {
        metaspace_word(s, text, size, first, out);
    } else if (s->kind == PRETOKENIZE_PREFIX_SPACE) {
        if (size > 0 && text[0] != ' ')
            buffer_append(out, " ", 1);
        buffer_append(out, text, size);
    } else {
        for (size_t i = 0; i < size; i++)
            pretokenize_byte_append(out, (uint8_t)text[i]);
    }
}

static int run_step(const struct pretokenize_step *s, struct words *w, bool at_start, struct err *e)
{
    const struct word *in = (const struct word *)(const void *)w->ranges.data;
    size_t n = w->ranges.size / sizeof *in;
    if (w->text.failed || w->ranges.failed)
        return err_set(e, HP_ENOMEM, "out of memory to split text into words");
    w->other_ranges.size = w->other_text.size = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->kind == PRETOKENIZE_SPLIT) {
            int rc = split_word(s, w, in[i], &w->other_ranges, e);
            if (rc < 0)
                return rc;
        } else if (s->kind == PRETOKENIZE_BERT) {
            split_bert((const char *)w->text.data, in[i], &w->other_ranges);
        } else {
            size_t start = w->other_text.size;
            rewrite_word(s, (const char *)w->text.data + in[i].start, in[i].end - in[i].start,
                         at_start && i == 0, &w->other_text);
            push_word(&w->other_ranges, start, w->other_text.size);
        }
    }
    struct buffer swap = w->ranges;
    w->ranges = w->other_ranges;
    w->other_ranges = swap;
    if (s->kind != PRETOKENIZE_SPLIT && s->kind != PRETOKENIZE_BERT) {
        swap = w->text;
        w->text = w->other_text;
        w->other_text = swap;
        see_text(w);
    }
    return 0;
}

int pretokenizer_run(const struct pretokenizer *p, const char *text, size_t size, bool at_start,
                     struct words *w, struct err *e)
{
    if (!w->search && !(w->search = pattern_search_create()))
        return err_set(e, HP_ENOMEM, "out of memory to split text into words");
    pattern_search_expect(w->search, size);
    w->text.size = w->ranges.size = 0;
    buffer_append(&w->text, text, size);
    push_word(&w->ranges, 0, size);
    see_text(w);
    for (int i = 0; i < p->n_steps; i++) {
        int rc = run_step(&p->steps[i], w, at_start, e);
        if (rc < 0)
            return rc;
    }
    bool failed = w->seen.failed || w->text.failed || w->ranges.failed || w->other_text.failed ||
                  w->other_ranges.failed;
    return failed ? err_set(e, HP_ENOMEM, "out of memory to split %zu bytes into words", size) : 0;
}
