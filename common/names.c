#include "common/names.h"

#include <string.h>

bool name_has_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

bool name_is_valid(const char *text, size_t most_bytes)
{
    size_t n = 0;
    while (name_has_character(text[n]))
        n++;
    return text[n] == '\0' && text[0] != '-' && n > 0 && n <= most_bytes;
}

void name_like(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; n < size - 1 && text[n]; n++)
        out[n] = name_has_character(text[n]) ? text[n] : '-';
    out[n] = '\0';
    if (out[0] == '-')
        out[0] = '_';
}
