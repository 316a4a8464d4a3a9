/* What Python's strings can do, on UTF-8. */
#include "model/template_int.h"

#include "common/utf8.h"

#include <string.h>
#include <utf8proc.h>

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
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
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
    return start >= end || from > to ? (struct text){"", 0} : (struct text){t.data + from, to - from};
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

void text_case(struct text t, enum text_case how, struct buffer *out)
{
    bool inside = false;
    for (size_t at = 0; at < t.size;) {
        uint32_t c;
        at += char_at(t, at, &c);
        utf8proc_int32_t point = (utf8proc_int32_t)c;
        bool raise = how == CASE_UPPER || (!inside && how != CASE_LOWER);
        utf8proc_category_t category = utf8proc_category(point);
        bool letter = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
        inside = how == CASE_CAPITAL ? true : letter;
        /* The one common letter whose capital is two. */
        if (raise && c == 0xDF)
            buffer_append(out, how == CASE_UPPER ? "SS" : "Ss", 2);
        else if (raise)
            utf8_append(out, (uint32_t)(how == CASE_UPPER ? utf8proc_toupper(point) : utf8proc_totitle(point)));
        else
            utf8_append(out, (uint32_t)utf8proc_tolower(point));
    }
}

int64_t text_find(struct text t, struct text what, size_t from)
{
    if (from > t.size)
        return -1;
    const char *hit = what.size ? memmem(t.data + from, t.size - from, what.data, what.size) : t.data + from;
    return hit ? hit - t.data : -1;
}

bool text_starts(struct text t, struct text what)
{
    return t.size >= what.size && memcmp(t.data, what.data, what.size) == 0;
}
bool text_ends(struct text t, struct text what)
{
    return t.size >= what.size && memcmp(t.data + t.size - what.size, what.data, what.size) == 0;
}
