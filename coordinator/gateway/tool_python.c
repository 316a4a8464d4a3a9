#include "coordinator/gateway/tool_python.h"

#include <string.h>

#include "common/bytes.h"
#include "common/utf8.h"
#include "coordinator/gateway/json_write.h"

enum { MOST_SPACE = 16 }; /* before a name, so that what begins like a call is soon known */

/* A text that is read, and the arguments that were found in it, as JSON. */
struct python_text {
    const struct tool_names *names;
    const char *text;
    size_t size, at;
    size_t depth;
    struct buffer json, string;
};

/* ---- where calls begin ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static enum tool_python_head name_begins(const char *name, const char *text, size_t n)
{
    static const char *const behind[] = {"(", ".call("};
    enum tool_python_head best = TOOL_PYTHON_NONE;
    for (int i = 0; i < 2; i++) {
        size_t of = strlen(name), rest = strlen(behind[i]), k = n < of ? n : of;
        size_t left = n - k < rest ? n - k : rest;
        if (memcmp(name, text, k) != 0 || memcmp(behind[i], text + k, left) != 0)
            continue;
        if (k == of && left == rest)
            return TOOL_PYTHON_CALL;
        if (k + left == n)
            best = TOOL_PYTHON_PART;
    }
    return best;
}

enum tool_python_head tool_python_begins(const struct tool_names *names, const char *text, size_t n,
                                         bool bare)
{
    enum tool_python_head best = TOOL_PYTHON_NONE;
    size_t at = n > 0 && text[0] == '[';
    if (n > 0 && at == 0 && !bare)
        return TOOL_PYTHON_NONE;
    while (at < n && at <= MOST_SPACE && is_space(text[at]))
        at++;
    for (size_t i = 0; i < names->n && best != TOOL_PYTHON_CALL; i++) {
        enum tool_python_head one = name_begins(names->items[i], text + at, n - at);
        best = one > best ? one : best;
    }
    return best;
}

/* ---- literals ---- */

static char char_peek(const struct python_text *p)
{
    return p->at < p->size ? p->text[p->at] : '\0';
}

static void space_skip(struct python_text *p)
{
    while (p->at < p->size && is_space(p->text[p->at]))
        p->at++;
}

/* Skips white space and this character; false: another one stands there. */
static bool char_take(struct python_text *p, char c)
{
    space_skip(p);
    if (char_peek(p) != c || p->at >= p->size)
        return false;
    p->at++;
    return true;
}

static bool hex_read(struct python_text *p, size_t digits, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits; i++, p->at++) {
        const char *hex = "0123456789abcdef", *hit;
        char c = char_peek(p);
        c = c >= 'A' && c <= 'F' ? (char)(c + 32) : c;
        if (!c || !(hit = strchr(hex, c)))
            return false;
        *out = *out << 4 | (uint32_t)(hit - hex);
    }
    return true;
}

/* Two halves of a pair, as JSON writes characters beyond U+FFFF, are one. */
static bool pair_read(struct python_text *p, uint32_t *c)
{
    uint32_t low;
    if (*c < 0xD800 || *c > 0xDFFF)
        return true;
    if (*c > 0xDBFF || p->size - p->at < 6 || memcmp(p->text + p->at, "\\u", 2) != 0)
        return false;
    p->at += 2;
    if (!hex_read(p, 4, &low) || low < 0xDC00 || low > 0xDFFF)
        return false;
    *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* Behind a backslash. */
static bool escape_read(struct python_text *p)
{
    static const char from[] = "\\'\"/abfnrtv", to[] = "\\'\"/\a\b\f\n\r\t\v";
    char c = char_peek(p);
    const char *hit = c ? strchr(from, c) : NULL;
    uint32_t point = 0;
    p->at++;
    if (hit) {
        buffer_append(&p->string, to + (hit - from), 1);
        return true;
    }
    if (c == '\n') /* a line that goes on */
        return true;
    if (c != 'x' && c != 'u' && c != 'U')
        return false;
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    if (!hex_read(p, digits, &point) || !pair_read(p, &point) || point == 0 || point > 0x10FFFF)
        return false;
    utf8_append(&p->string, point);
    return true;
}

/* A string, as JSON. */
static bool string_read(struct python_text *p)
{
    char quote = char_peek(p);
    p->string.size = 0;
    for (p->at++; p->at < p->size && p->text[p->at] != quote;) {
        char c = p->text[p->at++];
        if (c == '\n' || c == '\0' || (c == '\\' && !escape_read(p)))
            return false;
        if (c != '\\')
            buffer_append(&p->string, &c, 1);
    }
    if (p->at >= p->size || p->string.failed)
        return false;
    p->at++;
    json_write_string(&p->json, p->string.size ? (const char *)p->string.data : "", p->string.size);
    return true;
}

/* Python's constants and JSON's, and numbers, whose form is looked at when all is there. */
static bool word_read(struct python_text *p)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    size_t n = 0;
    while (p->at + n < p->size && p->text[p->at + n] &&
           strchr("0123456789+-.eEaflnrstuTFNo", p->text[p->at + n]))
        n++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i][0]) && memcmp(p->text + p->at, words[i][0], n) == 0) {
            p->at += n;
            buffer_append(&p->json, words[i][1], strlen(words[i][1]));
            return true;
        }
    if (n == 0 || !strchr("0123456789-", char_peek(p)))
        return false;
    buffer_append(&p->json, p->text + p->at, n);
    p->at += n;
    return true;
}

static bool literal_read(struct python_text *p);

/* [a, b], (a, b) or {"k": a}: behind the bracket, up to and with its counterpart. */
static bool items_read(struct python_text *p, char close)
{
    buffer_append(&p->json, close == '}' ? "{" : "[", 1);
    for (size_t n = 0; !char_take(p, close); n++) {
        if (n > 0 && !char_take(p, ','))
            return false;
        if (n > 0 && char_take(p, close))
            break; /* a comma at the end */
        if (n > 0)
            buffer_append(&p->json, ",", 1);
        space_skip(p);
        if (close == '}') {
            if ((char_peek(p) != '"' && char_peek(p) != '\'') || !string_read(p) ||
                !char_take(p, ':'))
                return false;
            buffer_append(&p->json, ":", 1);
        }
        if (!literal_read(p))
            return false;
    }
    buffer_append(&p->json, close == '}' ? "}" : "]", 1);
    return true;
}

static bool literal_read(struct python_text *p)
{
    static const char opens[] = "[({", closes[] = "])}";
    space_skip(p);
    char c = char_peek(p);
    const char *open = c ? strchr(opens, c) : NULL;
    if (c == '"' || c == '\'')
        return string_read(p);
    if (!open)
        return word_read(p);
    if (p->depth == TOOL_CALL_MAX_DEPTH)
        return false;
    p->at++;
    p->depth++;
    bool good = items_read(p, closes[open - opens]);
    p->depth--;
    return good;
}

/* ---- calls ---- */

static size_t word_size(const struct python_text *p)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t n = 0;
    while (p->at + n < p->size && p->text[p->at + n] && strchr(letters, p->text[p->at + n]))
        n++;
    return n;
}

/* a=1, b="x") as {"a":1,"b":"x"}. */
static bool arguments_read(struct python_text *p)
{
    buffer_append(&p->json, "{", 1);
    for (size_t n = 0; !char_take(p, ')'); n++) {
        if (n > 0 && !char_take(p, ','))
            return false;
        if (n > 0 && char_take(p, ')'))
            break;
        space_skip(p);
        size_t name = word_size(p);
        if (name == 0)
            return false;
        buffer_printf(&p->json, "%s\"%.*s\":", n ? "," : "", (int)name, p->text + p->at);
        p->at += name;
        if (!char_take(p, '=') || !literal_read(p))
            return false;
    }
    buffer_append(&p->json, "}", 1);
    return true;
}

/* One call; its arguments are at the end of `json`. */
static bool call_read(struct python_text *p, const char **name)
{
    *name = NULL;
    space_skip(p);
    for (size_t i = 0; i < p->names->n && !*name; i++)
        if (name_begins(p->names->items[i], p->text + p->at, p->size - p->at) == TOOL_PYTHON_CALL)
            *name = p->names->items[i];
    if (!*name)
        return false;
    p->at += strlen(*name);
    p->at = (size_t)((const char *)memchr(p->text + p->at, '(', p->size - p->at) - p->text) + 1;
    return arguments_read(p);
}

struct found_call {
    const char *name;
    size_t from, n;
};

/* All calls of the text, as struct found_call in `out`. */
static bool calls_read(struct python_text *p, struct buffer *out)
{
    bool list = char_take(p, '['), more = true;
    while (more) {
        struct found_call c = {.from = p->json.size};
        if (!call_read(p, &c.name))
            return false;
        c.n = p->json.size - c.from;
        if (p->json.failed || !tool_arguments_are((const char *)p->json.data + c.from, c.n))
            return false;
        buffer_append(out, &c, sizeof c);
        more = list && char_take(p, ',');
        space_skip(p);
        more = more && char_peek(p) != ']';
    }
    if (list && !char_take(p, ']'))
        return false;
    space_skip(p);
    return p->at == p->size && !out->failed;
}

size_t tool_python_read(const struct tool_names *names, const char *text, size_t size,
                        void (*each)(void *ctx, const struct tool_call *call), void *ctx)
{
    struct python_text p = {.names = names, .text = text, .size = size};
    struct buffer found = {0};
    size_t n = calls_read(&p, &found) ? found.size / sizeof(struct found_call) : 0;
    for (size_t i = 0; each && i < n; i++) {
        struct found_call c;
        memcpy(&c, found.data + i * sizeof c, sizeof c);
        struct tool_call call = {c.name, (const char *)p.json.data + c.from, c.n};
        each(ctx, &call);
    }
    buffer_free(&found);
    buffer_free(&p.json);
    buffer_free(&p.string);
    return n;
}
