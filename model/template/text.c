/* What Python's strings can do, on UTF-8. */
#include "model/template/text.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/utf8.h"
#include "model/template/case.h"

bool text_is(struct text t, const char *s)
{
    return strlen(s) == t.size && memcmp(t.data, s, t.size) == 0;
}
struct text text_of(const char *s)
{
    return (struct text){s, strlen(s)};
}

bool text_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool text_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return c == '_';
    }
}

/* Length of the character at `at`; a byte that is none counts as one. */
static size_t char_at(struct text t, size_t at, uint32_t *c)
{
    int length = utf8_decode(t.data + at, t.size - at, c);
    if (length > 0)
        return (size_t)length;
    *c = UTF8_REPLACEMENT;
    return 1;
}

static bool begins_char(char c)
{
    return ((uint8_t)c & 0xC0) != 0x80;
}

size_t text_length(struct text t)
{
    size_t n = 0;
    for (size_t i = 0; i < t.size; i++)
        n += begins_char(t.data[i]);
    return n;
}

struct text text_cut(struct text t, size_t start, size_t end)
{
    size_t at = 0, seen = 0, from = t.size, to = t.size;
    for (; at <= t.size; at++) {
        if (at < t.size && !begins_char(t.data[at]))
            continue;
        if (seen == start)
            from = at;
        if (seen == end) {
            to = at;
            break;
        }
        seen++;
    }
    return start >= end || from > to ? (struct text){"", 0}
                                     : (struct text){t.data + from, to - from};
}

static bool in_set(struct text set, uint32_t c, const char *bytes, size_t size)
{
    return set.data ? memmem(set.data, set.size, bytes, size) != NULL : text_space(c);
}

struct text text_strip(struct text t, struct text set, int sides)
{
    uint32_t c;
    while (sides & STRIP_LEFT && t.size > 0) {
        size_t length = char_at(t, 0, &c);
        if (!in_set(set, c, t.data, length))
            break;
        t.data += length;
        t.size -= length;
    }
    while (sides & STRIP_RIGHT && t.size > 0) {
        size_t at = utf8_previous(t.data, t.size), length = char_at(t, at, &c);
        if (at + length != t.size || !in_set(set, c, t.data + at, length))
            break;
        t.size = at;
    }
    return t;
}

static bool is_cased(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* A capital sigma is the final one where a letter stands before it and none behind. */
static uint32_t lower_sigma(struct text t, size_t behind, bool after_letter)
{
    uint32_t next = 0;
    if (behind < t.size)
        char_at(t, behind, &next);
    return after_letter && !is_cased(next) ? 0x3C2 : 0x3C3;
}

static void put_capital(uint32_t c, bool upper, struct buffer *out)
{
    bool may_be =
        (c >= 0xDF && c < 0x588) || (c >= 0x1E96 && c < 0x2000) || (c >= 0xFB00 && c < 0xFB18);
    for (size_t i = 0; may_be && i < sizeof special_cases / sizeof *special_cases; i++) {
        if (special_cases[i].c != c)
            continue;
        const uint16_t *parts = upper ? special_cases[i].upper : special_cases[i].title;
        for (int k = 0; k < 3 && parts[k]; k++)
            utf8_append(out, parts[k]);
        return;
    }
    utf8_append(out, (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)c)
                                      : utf8proc_totitle((utf8proc_int32_t)c)));
}

void text_case(struct text t, enum text_case how, struct buffer *out)
{
    bool inside = false, after_letter = false;
    for (size_t at = 0; at < t.size;) {
        uint32_t c;
        at += char_at(t, at, &c);
        bool raise = how == CASE_UPPER || ((how == CASE_TITLE || how == CASE_CAPITAL) && !inside);
        bool keep = false;
        if (how == CASE_SWAP) {
            utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
            raise = category == UTF8PROC_CATEGORY_LL;
            keep = !raise && category != UTF8PROC_CATEGORY_LU;
        }
        if (raise)
            put_capital(c, how == CASE_UPPER || how == CASE_SWAP, out);
        else if (keep)
            utf8_append(out, c);
        else if (c == 0x130) /* the one small letter that is two */
            buffer_append(out, "i\xCC\x87", 3);
        else if (c == 0x3A3)
            utf8_append(out, lower_sigma(t, at, after_letter));
        else
            utf8_append(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        after_letter = is_cased(c);
        inside = how == CASE_CAPITAL ? true : after_letter;
    }
}

int64_t text_find(struct text t, struct text what, size_t from)
{
    if (from > t.size)
        return -1;
    const char *hit =
        what.size ? memmem(t.data + from, t.size - from, what.data, what.size) : t.data + from;
    return hit ? hit - t.data : -1;
}

/* Knuth, Morris and Pratt from the end: `borders[i]` is how many of the last i bytes begin again at
 * their own end. */
static int64_t find_last_with(struct text t, struct text what, uint32_t *borders)
{
    size_t n = what.size, k = 0;
    const char *end = what.data + n - 1;
    borders[1] = 0;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && end[-(ptrdiff_t)i] != end[-(ptrdiff_t)k])
            k = borders[k];
        k += end[-(ptrdiff_t)i] == end[-(ptrdiff_t)k];
        borders[i + 1] = (uint32_t)k;
    }
    k = 0;
    for (size_t at = t.size; at-- > 0;) {
        while (k > 0 && t.data[at] != end[-(ptrdiff_t)k])
            k = borders[k];
        k += t.data[at] == end[-(ptrdiff_t)k];
        if (k == n)
            return (int64_t)at;
    }
    return -1;
}

int64_t text_find_last(struct text t, struct text what)
{
    if (what.size == 0 || what.size > t.size)
        return what.size ? -1 : (int64_t)t.size;
    uint32_t few[65], *borders = what.size < 65 ? few : malloc((what.size + 1) * sizeof *borders);
    if (!borders)
        return -2;
    int64_t at = what.size > UINT32_MAX ? -1 : find_last_with(t, what, borders);
    if (borders != few)
        free(borders);
    return at;
}

bool text_starts(struct text t, struct text what)
{
    return t.size >= what.size && memcmp(t.data, what.data, what.size) == 0;
}
bool text_ends(struct text t, struct text what)
{
    return t.size >= what.size && memcmp(t.data + t.size - what.size, what.data, what.size) == 0;
}
