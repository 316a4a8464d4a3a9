#include "model/tokenizer/pattern_rewrite.h"

#include <stdbool.h>
#include <string.h>

#define SPACES                                                                                     \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* Alphabetic characters, marks, decimal digits, connectors; the library has some Latin-1 numbers
 * among them, but not within classes. */
#define CLASS_WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORDS CLASS_WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define HEX "0-9a-fA-F"

enum { DEPTH_MAX = 50 };

struct rewrite {
    const char *in;
    size_t size, at;
    int depth;
};

static const char *members_of(char letter)
{
    switch (letter | 0x20) {
    case 's': return SPACES;
    case 'w': return WORDS;
    case 'h': return HEX;
    default: return NULL;
    }
}

/* \p{Han} is the script itself, without the characters of other scripts that are used with it,
 * which PCRE2 would add. */
static bool put_script(struct rewrite *r, struct buffer *out)
{
    static const char *const scripts[] = {
        "Arabic",     "Armenian", "Bengali",   "Bopomofo",  "Cherokee", "Common",   "Cyrillic",
        "Devanagari", "Ethiopic", "Georgian",  "Greek",     "Gujarati", "Gurmukhi", "Han",
        "Hangul",     "Hebrew",   "Hiragana",  "Inherited", "Kannada",  "Katakana", "Khmer",
        "Lao",        "Latin",    "Malayalam", "Mongolian", "Myanmar",  "Oriya",    "Sinhala",
        "Syriac",     "Tamil",    "Telugu",    "Thaana",    "Thai",     "Tibetan",
    };
    const char *text = r->in + r->at;
    size_t left = r->size - r->at, negated = left > 3 && text[3] == '^';
    const char *end = left > 4 && text[2] == '{' ? memchr(text, '}', left) : NULL;
    size_t start = 3 + negated, length = end ? (size_t)(end - text) - start : 0;
    for (size_t i = 0; end && i < sizeof scripts / sizeof *scripts; i++) {
        if (strlen(scripts[i]) != length || memcmp(scripts[i], text + start, length) != 0)
            continue;
        buffer_printf(out, "\\%c{%ssc:%s}", text[1], negated ? "^" : "", scripts[i]);
        r->at += (size_t)(end - text) + 1;
        return true;
    }
    return false;
}

/* One part of a class, between && or the brackets: single members, and classes that stand in it. */
struct pattern_part {
    struct buffer members, nested; /* nested: expressions with "|" between */
    int n_nested;
};

static void part_add(struct pattern_part *p, const char *before, const char *members,
                     const char *after)
{
    buffer_printf(&p->nested, "%s%s%s%s", p->n_nested++ ? "|" : "", before, members, after);
}

static void part_free(struct pattern_part *p)
{
    buffer_free(&p->members);
    buffer_free(&p->nested);
    *p = (struct pattern_part){0};
}

/* An expression for one character of the part. */
static void part_put(const struct pattern_part *p, struct buffer *out)
{
    bool both = p->members.size > 0 && p->n_nested > 0, group = both || p->n_nested > 1;
    if (group)
        buffer_append(out, "(?:", 3);
    if (p->members.size > 0 || p->n_nested == 0) {
        buffer_append(out, "[", 1);
        buffer_append(out, p->members.data, p->members.size);
        buffer_append(out, "]", 1);
    }
    if (both)
        buffer_append(out, "|", 1);
    buffer_append(out, p->nested.data, p->nested.size);
    if (group)
        buffer_append(out, ")", 1);
}

static bool is_next(const struct rewrite *r, const char *what)
{
    size_t n = strlen(what);
    return r->size - r->at >= n && memcmp(r->in + r->at, what, n) == 0;
}

static void rewrite_class(struct rewrite *r, struct buffer *out);

static void member_escaped(struct rewrite *r, struct pattern_part *p)
{
    char letter = r->in[r->at + 1];
    const char *members = (letter | 0x20) == 'w' ? CLASS_WORDS : members_of(letter);
    if ((letter | 0x20) == 'p' && put_script(r, &p->members))
        return;
    if (!members)
        buffer_append(&p->members, r->in + r->at, 2);
    else if (letter >= 'a')
        buffer_append(&p->members, members, strlen(members));
    else
        part_add(p, "[^", members, "]");
    r->at += 2;
}

/* One member at r->at, which is not the class's end. */
static void read_member(struct rewrite *r, struct pattern_part *p)
{
    char c = r->in[r->at];
    const char *posix_end =
        is_next(r, "[:") ? memmem(r->in + r->at, r->size - r->at, ":]", 2) : NULL;
    if (posix_end) {
        size_t n = (size_t)(posix_end + 2 - (r->in + r->at));
        const char *alphabetic = is_next(r, "[:alpha:]")   ? "\\p{Alphabetic}"
                                 : is_next(r, "[:alnum:]") ? "\\p{Alphabetic}\\p{Nd}"
                                                           : NULL;
        buffer_append(&p->members, alphabetic ? alphabetic : r->in + r->at,
                      alphabetic ? strlen(alphabetic) : n);
        r->at += n;
    } else if (c == '[') {
        struct buffer inner = {0};
        rewrite_class(r, &inner);
        part_add(p, "", buffer_cstr(&inner), "");
        buffer_free(&inner);
    } else if (c == '\\' && r->at + 1 < r->size) {
        member_escaped(r, p);
    } else {
        if (c == '^' && p->members.size == 0)
            buffer_append(&p->members, "\\", 1);
        buffer_append(&p->members, &c, 1);
        r->at++;
    }
}

/* Parts but for the last are looked ahead for; the last takes the character. */
static void class_put(struct buffer *ahead, const struct pattern_part *last, bool negated,
                      struct buffer *out)
{
    if (ahead->size == 0 && last->n_nested == 0) {
        buffer_printf(out, negated ? "[^" : "[");
        buffer_append(out, last->members.data, last->members.size);
        buffer_append(out, "]", 1);
        return;
    }
    buffer_printf(out, negated ? "(?:(?!" : "(?:");
    buffer_append(out, ahead->data, ahead->size);
    part_put(last, out);
    buffer_printf(out, negated ? ")(?s:.))" : ")");
}

/* From "[" to behind its "]". */
static void rewrite_class(struct rewrite *r, struct buffer *out)
{
    if (++r->depth > DEPTH_MAX) {
        buffer_append(out, r->in + r->at++, 1);
        r->depth--;
        return;
    }
    struct pattern_part p = {0};
    struct buffer ahead = {0};
    r->at++;
    bool negated = is_next(r, "^");
    r->at += negated;
    if (is_next(r, "]")) {
        buffer_append(&p.members, "\\]", 2);
        r->at++;
    }
    while (r->at < r->size && r->in[r->at] != ']') {
        if (!is_next(r, "&&")) {
            read_member(r, &p);
            continue;
        }
        r->at += 2;
        buffer_append(&ahead, "(?=", 3);
        part_put(&p, &ahead);
        buffer_append(&ahead, ")", 1);
        part_free(&p);
    }
    class_put(&ahead, &p, negated, out);
    r->at += r->at < r->size;
    part_free(&p);
    buffer_free(&ahead);
    r->depth--;
}

static void rewrite_escaped(struct rewrite *r, struct buffer *out)
{
    char letter = r->in[r->at + 1];
    const char *members = members_of(letter);
    if ((letter | 0x20) == 'p' && put_script(r, out))
        return;
    if (letter == 'b')
        buffer_printf(out, "(?:(?<=[" WORDS "])(?![" WORDS "])|(?<![" WORDS "])(?=[" WORDS "]))");
    else if (letter == 'B')
        buffer_printf(out, "(?:(?<=[" WORDS "])(?=[" WORDS "])|(?<![" WORDS "])(?![" WORDS "]))");
    else if (members)
        buffer_printf(out, "[%s%s]", letter < 'a' ? "^" : "", members);
    else
        buffer_append(out, r->in + r->at, 2);
    r->at += 2;
}

void pattern_rewrite(const char *regex, size_t size, struct buffer *out)
{
    struct rewrite r = {.in = regex, .size = size};
    while (r.at < size) {
        if (regex[r.at] == '\\' && r.at + 1 < size)
            rewrite_escaped(&r, out);
        else if (regex[r.at] == '[')
            rewrite_class(&r, out);
        else
            buffer_append(out, regex + r.at++, 1);
    }
}
