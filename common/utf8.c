#include "common/utf8.h"

#include <string.h>

/* What the second byte may be, by the first: this is where overlong forms, surrogates and code
 * points past U+10FFFF are refused.
 */
static int lead_length(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0xC2)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0)
            *low = 0xA0;
        if (lead == 0xED)
            *high = 0x9F;
        return 3;
    }
    if (lead > 0xF4)
        return 0;
    if (lead == 0xF0)
        *low = 0x90;
    if (lead == 0xF4)
        *high = 0x8F;
    return 4;
}

int utf8_decode(const char *s, size_t n, uint32_t *c)
{
    uint8_t lead = (uint8_t)s[0], low, high;
    if (lead < 0x80) {
        *c = lead;
        return 1;
    }
    int length = lead_length(lead, &low, &high);
    if (length == 0)
        return -1;
    uint32_t value = lead & (0x7FU >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n)
            return 0;
        uint8_t b = (uint8_t)s[i];
        if (b < low || b > high)
            return -i;
        value = value << 6 | (b & 0x3FU);
        low = 0x80;
        high = 0xBF;
    }
    *c = value;
    return length;
}

size_t utf8_encode(uint32_t c, char out[UTF8_MAX])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00U >> length & 0xF0U) | c);
    return length;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t c;
        int length = utf8_decode(s + at, n - at, &c);
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    return at;
}

size_t utf8_previous(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && ((uint8_t)s[at] & 0xC0) == 0x80);
    return at;
}

void utf8_append(struct buffer *out, uint32_t c)
{
    char bytes[UTF8_MAX];
    buffer_append(out, bytes, utf8_encode(c, bytes));
}

void utf8_clean(char *text)
{
    utf8_clean_bytes(text, strlen(text));
}

void utf8_clean_bytes(char *text, size_t n)
{
    for (size_t at = utf8_valid_prefix(text, n); at < n; at += utf8_valid_prefix(text + at, n - at))
        text[at] = '?';
}

void utf8_trim(char *text)
{
    size_t n = strlen(text), last = n ? utf8_previous(text, n) : 0;
    uint32_t c;
    if (n && utf8_decode(text + last, n - last, &c) == 0)
        text[last] = 0;
}

void utf8_copy(char *out, size_t size, const char *text)
{
    size_t n = text ? strlen(text) : 0, kept = n < size ? n : size - 1;
    if (kept)
        memmove(out, text, kept);
    out[kept] = 0;
    if (kept < n)
        utf8_trim(out);
    utf8_clean(out);
}
