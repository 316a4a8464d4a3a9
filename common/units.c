#include "common/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool units_bytes_parse(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    bool decimal = unit && strcasecmp(end + 1, "B") == 0,
         binary = unit && (!end[1] || strcasecmp(end + 1, "iB") == 0);
    bool good = isdigit((unsigned char)*text) && !errno && n && (!*end || decimal || binary);
    uint64_t bytes = n;
    for (const char *u = units; good && unit && u <= unit; u++)
        good = !__builtin_mul_overflow(bytes, decimal ? UINT64_C(1000) : UINT64_C(1024), &bytes);
    if (good)
        *out = bytes;
    return good;
}
