#include "common/host.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"

static size_t read_line(const char *file, char *out, size_t size)
{
    FILE *f = fopen(file, "r");
    bool found = f && fgets(out, (int)size, f);
    if (f)
        fclose(f);
    if (!found)
        out[0] = '\0';
    return out[0] ? strcspn(out, "\n") : 0;
}

void host_id(char out[HOST_ID])
{
    char text[256];
    size_t n = read_line("/etc/machine-id", text, sizeof text);
    if (n < 16)
        n = read_line("/proc/sys/kernel/random/boot_id", text, sizeof text);
    struct digest d = digest_of(text, n);
    digest_hex(&d, out);
}
