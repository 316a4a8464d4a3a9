#include "common/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What a suffix counts in; 0 when it is none. */
static uint64_t unit_bytes(const char *suffix)
{
    static const char letters[] = "KMGT";
    const char *letter = *suffix ? strchr(letters, toupper((unsigned char)*suffix)) : NULL;
    if (!*suffix || strcasecmp(suffix, "B") == 0)
        return 1;
    bool decimal = letter && strcasecmp(suffix + 1, "B") == 0,
         binary = letter && (!suffix[1] || strcasecmp(suffix + 1, "iB") == 0);
    uint64_t bytes = decimal || binary ? 1 : 0;
    for (const char *l = letters; bytes && l <= letter; l++)
        bytes *= decimal ? 1000 : 1024;
    return bytes;
}

/* Digits, and perhaps a point with more or a power of ten; nothing else that strtod knows. */
static bool is_number(const char *text, const char *end)
{
    return isdigit((unsigned char)*text) && strspn(text, "0123456789.eE+-") >= (size_t)(end - text);
}

bool units_bytes_parse(const char *text, uint64_t *out)
{
    char *end, *whole_end;
    double number = strtod(text, &end);
    errno = 0;
    uint64_t bytes = strtoull(text, &whole_end, 10), unit = unit_bytes(end);
    if (!is_number(text, end) || !unit)
        return false;
    if (whole_end != end) {
        number *= (double)unit;
        if (!(number < 0x1p64))
            return false;
        bytes = (uint64_t)number;
    } else if (errno || __builtin_mul_overflow(bytes, unit, &bytes)) {
        return false;
    }
    if (bytes)
        *out = bytes;
    return bytes > 0;
}
