#include "coordinator/gateway/json_write.h"

#include <stdio.h>
#include <utf8proc.h>

static const char *escape_of(unsigned char c, char room[8])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: snprintf(room, 8, "\\u%04X", (unsigned)c); return room;
    }
}

/* How many bytes from `at` on stand for themselves. */
static size_t plain_run(const char *text, size_t at, size_t n)
{
    utf8proc_int32_t c;
    size_t i = at;
    while (i < n) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == '"' || byte == '\\')
            break;
        utf8proc_ssize_t took = byte < 0x80 ? 1
                                            : utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                                                               (utf8proc_ssize_t)(n - i), &c);
        if (took <= 0)
            break;
        i += (size_t)took;
    }
    return i - at;
}

void json_write_string(struct buffer *out, const char *text, size_t n)
{
    char room[8];
    buffer_append(out, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t run = plain_run(text, i, n);
        buffer_append(out, text + i, run);
        i += run;
        if (i == n)
            break;
        const char *instead = (unsigned char)text[i] < 0x80
                                  ? escape_of((unsigned char)text[i], room)
                                  : "\xEF\xBF\xBD";
        buffer_append(out, instead, strlen(instead));
        i++;
    }
    buffer_append(out, "\"", 1);
}

void json_write_text(struct buffer *out, const char *text)
{
    if (text)
        json_write_string(out, text, strlen(text));
    else
        buffer_append(out, "null", 4);
}
