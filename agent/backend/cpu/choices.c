/* Says what computes what on the CPU, and why. */
#include <stdio.h>
#include <string.h>

#include "agent/backend/cpu/amx.h"
#include "agent/backend/cpu/cpu_int.h"
#include "agent/backend/cpu/onednn.h"

static void choice_add(struct device_choice *out, int room, int *n, const char *what,
                       const char *how, const char *why)
{
    if (*n == room)
        return;
    struct device_choice *c = &out[(*n)++];
    snprintf(c->what, sizeof c->what, "%s", what);
    snprintf(c->how, sizeof c->how, "%s", how);
    snprintf(c->why, sizeof c->why, "%s", why);
}

static void instructions_say(const struct cpu_device *d, struct device_choice *out, int room,
                             int *n)
{
    char features[96], why[DEVICE_CHOICE_TEXT];
    const struct cpu_kernels *best;
    kernels_features(features, sizeof features);
    if (kernels_choose(NULL, &best, NULL) == 0 && best != d->kernels)
        snprintf(why, sizeof why, "--kernels asks for it; this CPU can run %s (%s)", best->name,
                 features);
    else
        snprintf(why, sizeof why, "the best that this CPU can run (%s)", features);
    choice_add(out, room, n, "instructions", d->kernels->name, why);
}

/* "; from 8 rows on Q3_K Q6_K" behind `out`, where that holds of any format. */
static void formats_say(const struct cpu_device *d, size_t rows, char *out, size_t size)
{
    size_t n = strlen(out), begin = n;
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        if (!d->kernels->blocks->dot[t] || matmul_panel_rows(d, (enum dtype)t) != rows)
            continue;
        if (n == begin && n < size)
            n += (size_t)snprintf(out + n, size - n, "; from %zu rows on", rows);
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, " %s", dtype_info((enum dtype)t)->name);
    }
}

static void quantised_say(const struct cpu_device *d, struct device_choice *out, int room, int *n)
{
    const char *how = d->kernels == &kernels_avx2       ? "8-bit integers, AVX2"
                      : d->kernels == &kernels_avx_vnni ? "8-bit integers, AVX-VNNI"
                                                        : "8-bit integers, VNNI";
    bool tiles = d->kernels == &kernels_amx;
    char why[DEVICE_CHOICE_TEXT];
    choice_add(out, room, n, "quantised, few rows", how,
               "reads each byte of the file's blocks once for a few rows");
    if (tiles || (d->kernels == &kernels_avx512_bf16 && amx_is_usable()))
        snprintf(why, sizeof why, "AMX was measured %.2f times as fast as VNNI, to the same bits",
                 amx_gain());
    else
        snprintf(why, sizeof why, "bytes leave their blocks once for all rows");
    for (size_t rows = 1; rows <= BLOCKS_PANEL_ROWS_MOST; rows++)
        formats_say(d, rows, why, sizeof why);
    choice_add(out, room, n, "quantised, more rows", tiles ? "8-bit integers, AMX" : how, why);
}

/* What the system does where huge pages are asked for: "always", "madvise" or "never". */
static void huge_pages_word(char *out, size_t size)
{
    char line[64] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (f && !fgets(line, sizeof line, f))
        line[0] = '\0';
    if (f)
        fclose(f);
    char *word = strchr(line, '['), *end = word ? strchr(word, ']') : NULL;
    if (end)
        *end = '\0';
    snprintf(out, size, "%s", end ? word + 1 : "never");
}

static void pages_say(const struct cpu_device *d, struct device_choice *out, int room, int *n)
{
    char word[16], how[DEVICE_CHOICE_WORD], why[DEVICE_CHOICE_TEXT];
    huge_pages_word(word, sizeof word);
    snprintf(how, sizeof how, "%s pages%s%s", strcmp(word, "never") == 0 ? "small" : "huge",
             d->numa ? ", " : "", d->numa ? numa_text(d->numa) : "");
    snprintf(why, sizeof why, "transparent_hugepage/enabled says %s; %s", word,
             !d->numa                ? "the box has one NUMA node"
             : numa_refused(d->numa) ? "the system has refused to place memory: it lies "
                                       "where it was first written"
                                     : "memory lies on the nodes of the device's cores");
    choice_add(out, room, n, "pages", how, why);
}

int cpu_choices(const struct device *device, struct device_choice *out, int room)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    bool bf16 = d->kernels->panel_dot != NULL;
    char panels[DEVICE_CHOICE_WORD];
    int n = 0;
    snprintf(panels, sizeof panels, "bf16 panels, %s", onednn_version());
    instructions_say(d, out, room, &n);
    quantised_say(d, out, room, &n);
    choice_add(
        out, room, &n, "F32, F16 and BF16", bf16 ? panels : "float32; prompts 16-bit integers",
        bf16 ? "the CPU multiplies bf16; --compute f32 takes the file's rows"
             : "the CPU has no bf16 arithmetic; two 16-bit products take one float32's time");
    choice_add(out, room, &n, "attention", bf16 ? "float32; bf16 for long prefixes" : "float32",
               bf16 ? "bf16 pays where queries are many and keys long"
                    : "the CPU has no bf16 arithmetic");
    pages_say(d, out, room, &n);
    return n;
}
