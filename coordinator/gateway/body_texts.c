#include "coordinator/gateway/body_texts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"

/* ---- where a text ends ---- */

/* Eight characters that stand for themselves: no quote, no backslash, no control character, and
 * ASCII. */
static bool eight_are_plain(const char *s)
{
    const uint64_t each = 0x0101010101010101, high = 0x8080808080808080;
    uint64_t v;
    memcpy(&v, s, sizeof v);
    uint64_t quote = v ^ (each * '"'), backslash = v ^ (each * '\\');
    return ((v | (v - each * ' ') | (quote - each) | (backslash - each)) & high) == 0;
}

/* Four hexadecimal digits, or -1. */
static int32_t hex_read(const char *text, size_t n)
{
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = i < n ? text[i] : '\0';
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* The character of an escape, behind its backslash, and how many bytes spell it; 0 bytes: none. */
static size_t escape_read(const char *text, size_t n, uint32_t *c)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *at = n && *text ? strchr(letters, *text) : NULL;
    if (at) {
        *c = (uint32_t)meant[at - letters];
        return 1;
    }
    int32_t first = n && *text == 'u' ? hex_read(text + 1, n - 1) : -1, second = -1;
    if (first <= 0 || (first >= 0xDC00 && first <= 0xDFFF))
        return 0;
    *c = (uint32_t)first;
    if (first < 0xD800 || first > 0xDFFF)
        return 5;
    if (n > 7 && text[5] == '\\' && text[6] == 'u')
        second = hex_read(text + 7, n - 7);
    *c = 0x10000 + (((uint32_t)first & 0x3FF) << 10) + ((uint32_t)second & 0x3FF);
    return second >= 0xDC00 && second <= 0xDFFF ? 11 : 0;
}

/* How many bytes spell what stands there; 0: nothing that a text may have. */
static size_t character_bytes(const char *text, size_t n, bool *escaped)
{
    uint32_t c;
    if (*text == '\\') {
        size_t spelled = escape_read(text + 1, n - 1, &c);
        *escaped = true;
        return spelled ? 1 + spelled : 0;
    }
    int took = (unsigned char)*text < ' ' ? 0 : utf8_decode(text, n, &c);
    return took > 0 ? (size_t)took : 0;
}

size_t body_text_end(const char *text, size_t begin, size_t n, bool *escaped)
{
    size_t at = begin;
    *escaped = false;
    while (at < n && text[at] != '"') {
        bool plain = n - at >= 8 && eight_are_plain(text + at);
        size_t took = plain ? 8 : character_bytes(text + at, n - at, escaped);
        if (!took)
            return 0;
        at += took;
    }
    return at < n ? at : 0;
}

/* ---- which are taken out ---- */

static bool is_name(const char *text, size_t n, size_t end)
{
    size_t at = end + 1;
    while (at < n && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
        at++;
    return at < n && text[at] == ':';
}

const struct body_text *body_texts_note(struct body_texts *b, const char *text, size_t n,
                                        size_t begin, size_t end, bool escaped)
{
    struct body_text one = {b->values, begin, end, escaped};
    if (is_name(text, n, end))
        return NULL;
    b->values++;
    if (end - begin < BODY_TEXT_LONG_BYTES)
        return NULL;
    if (vector_push(b->texts, b->n, b->room, one))
        return &b->texts[b->n - 1];
    b->failed = true;
    return NULL;
}

/* ---- and put back ---- */

struct restoring {
    const struct body_text *next, *end;
    const char *text;
    size_t values;
};

/* Never longer than it is spelled. */
static size_t text_unescape(const char *text, size_t n, char *out)
{
    size_t size = 0;
    for (size_t at = 0; at < n;) {
        const char *hit = memchr(text + at, '\\', n - at);
        size_t plain = hit ? (size_t)(hit - (text + at)) : n - at;
        uint32_t c;
        memcpy(out + size, text + at, plain);
        size += plain;
        at += plain;
        if (hit) {
            at += 1 + escape_read(text + at + 1, n - at - 1, &c);
            size += utf8_encode(c, out + size);
        }
    }
    return size;
}

static int text_set(const struct body_text *t, const char *text, json_t *node)
{
    size_t n = t->end - t->begin;
    if (!t->escaped)
        return json_string_setn_nocheck(node, text + t->begin, n);
    char *plain = malloc(n + UTF8_MAX);
    int rc = plain ? json_string_setn_nocheck(node, plain, text_unescape(text + t->begin, n, plain))
                   : -1;
    free(plain);
    return rc;
}

/* Values come in the order of the text, and no deeper than bodies may be nested. */
static int node_restore(struct restoring *r, json_t *node)
{
    const char *key;
    json_t *item;
    size_t i;
    int rc = 0;
    if (json_is_string(node) && r->next < r->end && r->next->number == r->values++)
        return text_set(r->next++, r->text, node);
    if (json_is_array(node))
        json_array_foreach(node, i, item) rc = rc < 0 ? rc : node_restore(r, item);
    else if (json_is_object(node))
        json_object_foreach(node, key, item) rc = rc < 0 ? rc : node_restore(r, item);
    return rc;
}

int body_texts_restore(const struct body_texts *b, const char *text, json_t *root, struct err *e)
{
    if (b->n == 0)
        return 0;
    struct restoring r = {b->texts, b->texts + b->n, text, 0};
    return node_restore(&r, root) == 0 ? 0 : err_no_memory(e, "the body");
}

void body_texts_free(struct body_texts *b)
{
    free(b->texts);
    *b = (struct body_texts){0};
}
