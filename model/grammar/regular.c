#include "model/grammar/regular.h"

#include <string.h>

#include "common/utf8.h"

struct regular {
    struct expressions *x;
    const char *text;
    size_t size, at;
    enum regular_mode mode;
    int depth;
};

static const struct char_range digits[] = {{'0', '9'}};
static const struct char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct char_range spaces[] = {{9, 13}, {' ', ' '}};
static const struct char_range not_digits[] = {{0, '0' - 1}, {'9' + 1, 0x7F}};
static const struct char_range not_words[] = {
    {0, '0' - 1}, {'9' + 1, 'A' - 1}, {'Z' + 1, '_' - 1}, {'`', '`'}, {'z' + 1, 0x7F}};
static const struct char_range not_spaces[] = {{0, 8},
                                               {14, 0x1B},
                                               {0x21, 0x84},
                                               {0x86, 0x9F},
                                               {0xA1, 0x167F},
                                               {0x1681, 0x180D},
                                               {0x180F, 0x1FFF},
                                               {0x200B, 0x2027},
                                               {0x202A, 0x202E},
                                               {0x2030, 0x205E},
                                               {0x2060, 0x2FFF},
                                               {0x3001, 0xFEFE},
                                               {0xFF00, CHAR_MAX_POINT}};
/* What "." takes; controls that JSON has no short escape for do not stand in strings. */
static const struct char_range dots[] = {{0, 9}, {11, 12}, {14, 0x2027}, {0x202A, CHAR_MAX_POINT}};
static const struct char_range anything[] = {{0x20, 0x7E}, {0xA0, CHAR_MAX_POINT}};

static const struct class_escape {
    char letter;
    const struct char_range *ranges;
    size_t n;
} class_escapes[] = {
#define RANGES(r) r, sizeof(r) / sizeof *(r)
    {'d', RANGES(digits)},     {'w', RANGES(words)},     {'s', RANGES(spaces)},
    {'D', RANGES(not_digits)}, {'W', RANGES(not_words)}, {'S', RANGES(not_spaces)},
};

static const struct expression *regular_fail(struct regular *r, int code, const char *what)
{
    return expression_fail(r->x, code, "regular expression, position %zu: %s", r->at, what);
}

static bool text_ahead(const struct regular *r, const char *word)
{
    size_t n = strlen(word);
    return r->size - r->at >= n && memcmp(r->text + r->at, word, n) == 0;
}

static char char_ahead(const struct regular *r)
{
    return r->at < r->size ? r->text[r->at] : '\0';
}

static bool char_take(struct regular *r, char c)
{
    bool there = r->at < r->size && r->text[r->at] == c;
    r->at += there;
    return there;
}

/* ---- single characters ---- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* `n` hexadecimal digits; with 0 as many as there are up to "}". */
static bool point_hex(struct regular *r, int n, uint32_t *out)
{
    uint32_t v = 0;
    int read = 0;
    for (; r->at < r->size && (n == 0 || read < n) && hex_value(r->text[r->at]) >= 0; read++) {
        v = v * 16 + (uint32_t)hex_value(r->text[r->at++]);
        if (v > CHAR_MAX_POINT)
            return false;
    }
    *out = v;
    return n ? read == n : read > 0 && char_take(r, '}');
}

/* uHHHH, or both halves of a surrogate pair. */
static bool point_pair(struct regular *r, uint32_t *out)
{
    uint32_t low = 0;
    if (!point_hex(r, 4, out))
        return false;
    size_t at = r->at;
    if (*out < 0xD800 || *out >= 0xDC00 || !text_ahead(r, "\\u"))
        return true;
    r->at += 2;
    if (point_hex(r, 4, &low) && low >= 0xDC00 && low < 0xE000)
        *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    else
        r->at = at;
    return true;
}

static bool point_escape(struct regular *r, char c, uint32_t *out)
{
    static const char letters[] = "tnrfv0", means[] = "\t\n\r\f\v\0";
    const char *known = c ? strchr(letters, c) : NULL;
    if (known) {
        *out = (unsigned char)means[known - letters];
        return true;
    }
    if (c == 'x')
        return point_hex(r, 2, out);
    if (c == 'u')
        return char_take(r, '{') ? point_hex(r, 0, out) : point_pair(r, out);
    *out = (unsigned char)c;
    return c && !(c >= '1' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
           (unsigned char)c < 0x80;
}

/* A character as it stands, or an escape of one. */
static bool point_read(struct regular *r, uint32_t *out)
{
    int n = r->at < r->size ? utf8_decode(r->text + r->at, r->size - r->at, out) : 0;
    if (n <= 0)
        return false;
    r->at += (size_t)n;
    if (*out != '\\')
        return true;
    char c = char_ahead(r);
    r->at += r->at < r->size;
    return point_escape(r, c, out);
}

static const struct class_escape *class_escape_ahead(const struct regular *r)
{
    for (size_t i = 0; i < sizeof class_escapes / sizeof *class_escapes; i++)
        if (r->size - r->at >= 2 && r->text[r->at] == '\\' &&
            r->text[r->at + 1] == class_escapes[i].letter)
            return &class_escapes[i];
    return NULL;
}

static const struct expression *escape_refused(struct regular *r)
{
    char c = r->at > 0 ? r->text[r->at - 1] : '\0';
    if (c == 'b' || c == 'B')
        return regular_fail(r, HP_EUNSUPPORTED, "\\b (a word's border) is not supported");
    if (c == 'p' || c == 'P')
        return regular_fail(r, HP_EUNSUPPORTED, "\\p (a Unicode property) is not supported");
    if ((c >= '1' && c <= '9') || c == 'k')
        return regular_fail(r, HP_EUNSUPPORTED, "a reference to a group is not supported");
    return regular_fail(r, HP_EPARSE, "this escape or character is not known");
}

static const struct expression *chars_make(struct regular *r, const struct char_range *ranges,
                                           size_t n)
{
    return expression_chars(r->x, ranges, n, r->mode == REGULAR_WITHIN);
}

/* ---- classes ---- */

static bool class_item(struct regular *r, struct char_set *set, bool *narrow)
{
    const struct class_escape *escape = class_escape_ahead(r);
    uint32_t low, high;
    if (escape) {
        char_set_add_all(set, escape->ranges, escape->n);
        r->at += 2;
        *narrow = true;
        return true;
    }
    if (text_ahead(r, "\\b")) {
        r->at += 2;
        char_set_add(set, 8, 8);
        return true;
    }
    if (!point_read(r, &low))
        return false;
    high = low;
    if (char_ahead(r) == '-' && r->at + 1 < r->size && r->text[r->at + 1] != ']' &&
        !(r->text[r->at + 1] == '\\' && r->at + 2 < r->size &&
          strchr("dwsDWS", r->text[r->at + 2]))) {
        r->at++;
        if (!point_read(r, &high))
            return false;
    }
    char_set_add(set, low, high);
    return low <= high;
}

static const struct expression *class_read(struct regular *r)
{
    static const struct char_range ascii[] = {{0, 0x7F}};
    struct char_set set = {0};
    bool negated = char_take(r, '^'), narrow = false, ok = true;
    if (r->mode == REGULAR_WHOLE && char_ahead(r) == ']') { /* Python's: it stands for itself */
        r->at++;
        char_set_add(&set, ']', ']');
    }
    while (ok && r->at < r->size && r->text[r->at] != ']')
        ok = class_item(r, &set, &narrow);
    if (!ok || !char_take(r, ']')) {
        char_set_free(&set);
        return ok ? regular_fail(r, HP_EPARSE, "a class has no ]") : escape_refused(r);
    }
    char_set_settle(&set);
    if (negated)
        char_set_negate(&set);
    if (negated && narrow)
        char_set_intersect(&set, ascii, 1);
    return expression_set(r->x, &set, r->mode == REGULAR_WITHIN);
}

/* ---- what stands in a row ---- */

static const struct expression *choice_read(struct regular *r, bool top);

static const struct expression *group_read(struct regular *r, bool top)
{
    if (text_ahead(r, "?:")) {
        r->at += 2;
    } else if (text_ahead(r, "?P<") ||
               (text_ahead(r, "?<") && !text_ahead(r, "?<=") && !text_ahead(r, "?<!"))) {
        while (r->at < r->size && r->text[r->at] != '>')
            r->at++;
        char_take(r, '>');
    } else if (char_ahead(r) == '?') {
        return regular_fail(r, HP_EUNSUPPORTED,
                            "look-around, flags and conditions of groups are not supported");
    }
    if (r->depth >= REGULAR_MAX_DEPTH)
        return regular_fail(r, HP_ELIMIT, "groups are nested more than 100 deep");
    r->depth++;
    const struct expression *e = choice_read(r, top);
    r->depth--;
    return !e || char_take(r, ')') ? e : regular_fail(r, HP_EPARSE, "a group has no )");
}

static const struct expression *atom_read(struct regular *r)
{
    const struct class_escape *escape = class_escape_ahead(r);
    uint32_t point;
    if (escape) {
        r->at += 2;
        return chars_make(r, escape->ranges, escape->n);
    }
    if (char_take(r, '.'))
        return chars_make(r, dots, sizeof dots / sizeof *dots);
    if (char_take(r, '['))
        return class_read(r);
    if (char_take(r, '('))
        return group_read(r, false);
    if (char_ahead(r) == '^' || char_ahead(r) == '$')
        return regular_fail(r, HP_EUNSUPPORTED, "^ and $ are supported around an alternative only");
    if (r->at < r->size && strchr("*+?", r->text[r->at]))
        return regular_fail(r, HP_EPARSE, "there is nothing to repeat");
    if (!point_read(r, &point))
        return escape_refused(r);
    if (point >= 0xD800 && point < 0xE000)
        return regular_fail(r, HP_EPARSE, "half of a surrogate pair is no character");
    return chars_make(r, &(struct char_range){point, point}, 1);
}

static bool count_read(struct regular *r, int32_t *out)
{
    size_t from = r->at;
    int64_t v = 0;
    for (; r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        v = v < EXPRESSION_MAX_REPEAT ? v * 10 + (r->text[r->at] - '0') : v;
    *out = (int32_t)v;
    return r->at > from;
}

/* "{m}", "{m,}", "{m,n}"; what looks otherwise is text. */
static bool counts_read(struct regular *r, int32_t *least, int32_t *most)
{
    size_t from = r->at;
    bool ok = char_take(r, '{') && count_read(r, least);
    *most = *least;
    if (ok && char_take(r, ',') && !count_read(r, most))
        *most = EXPRESSION_FOREVER;
    if (ok && char_take(r, '}'))
        return true;
    r->at = from;
    return false;
}

static const struct expression *repeat_read(struct regular *r)
{
    const struct expression *e = atom_read(r);
    while (e && r->at < r->size) {
        int32_t least = 0, most = EXPRESSION_FOREVER;
        if (char_take(r, '+'))
            least = 1;
        else if (char_take(r, '?'))
            most = 1;
        else if (!char_take(r, '*') && !counts_read(r, &least, &most))
            break;
        if (most >= 0 && most < least)
            return regular_fail(r, HP_EPARSE, "the counts of {m,n} are the wrong way round");
        char_take(r, '?'); /* lazy: as texts the same */
        e = expression_repeat(r->x, e, least, most);
    }
    return e;
}

/* Where the group that begins here ends; 0: it has no end. */
static size_t group_end(const struct regular *r)
{
    size_t depth = 0;
    bool in_class = false;
    for (size_t i = r->at; i < r->size; i++) {
        char c = r->text[i];
        if (c == '\\')
            i++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(')
            depth++;
        else if (c == ')' && --depth == 0)
            return i + 1;
    }
    return 0;
}

static const struct expression *sequence_read(struct regular *r, bool top)
{
    struct expression_list l = {0};
    const struct expression *any = NULL;
    if (top && r->mode == REGULAR_WITHIN) {
        any = expression_repeat(r->x, chars_make(r, anything, 2), 0, EXPRESSION_FOREVER);
        size_t end = char_ahead(r) == '(' && !text_ahead(r, "(?<") ? group_end(r) : 0;
        if (end && (end == r->size || r->text[end] == '|' || r->text[end] == ')') &&
            char_take(r, '('))
            return group_read(r, true);
    }
    bool begins = top && char_take(r, '^'), ends = false;
    if (any && !begins)
        expression_list_add(r->x, &l, any);
    while (r->at < r->size && r->text[r->at] != '|' && r->text[r->at] != ')' && !ends) {
        ends = top && char_take(r, '$');
        const struct expression *part = ends ? expression_sequence(r->x, NULL, 0) : repeat_read(r);
        if (!part)
            return NULL;
        expression_list_add(r->x, &l, part);
    }
    if (ends && r->at < r->size && r->text[r->at] != '|' && r->text[r->at] != ')')
        return regular_fail(r, HP_EUNSUPPORTED, "something stands behind $");
    if (any && !ends)
        expression_list_add(r->x, &l, any);
    return expression_sequence(r->x, l.items, l.count);
}

static const struct expression *choice_read(struct regular *r, bool top)
{
    struct expression_list l = {0};
    do {
        const struct expression *e = sequence_read(r, top);
        if (!e)
            return NULL;
        expression_list_add(r->x, &l, e);
    } while (char_take(r, '|'));
    return expression_choice(r->x, l.items, l.count);
}

const struct expression *regular_expression(struct expressions *x, const char *pattern, size_t size,
                                            enum regular_mode mode)
{
    struct regular r = {.x = x, .text = pattern, .size = size, .mode = mode};
    if (size > REGULAR_MAX_BYTES)
        return expression_fail(x, HP_ELIMIT, "the regular expression has %zu bytes; %d are allowed",
                               size, REGULAR_MAX_BYTES);
    const struct expression *e = choice_read(&r, true);
    if (e && r.at < r.size)
        return regular_fail(&r, HP_EPARSE, "there is a ) too many");
    return e;
}
