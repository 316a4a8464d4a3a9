#include "agent/discover_devices.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/gpu_spec.h"
#include "common/units.h"

enum { SPEC_TEXT = 1024, CORE_FREE = -1 };

/* One device as it was asked for. */
struct device_spec {
    const char *text;
    char items[SPEC_TEXT];            /* of the text, without "cpu" or "cuda:0" */
    int any;                          /* so many cores, whichever */
    bool rest;                        /* whatever is left */
    uint64_t memory_bytes;            /* 0: a share of what is left */
    uint64_t host_bytes, small_bytes; /* of a GPU */
    int n_threads;                    /* 0: by the cores */
};

struct division {
    struct discover_share *share;
    int owner[DISCOVER_MAX_CORES]; /* of the share's cores: a device, or CORE_FREE */
    struct device_spec specs[DISCOVER_MAX_DEVICES];
    struct gpu_spec gpus[DISCOVER_MAX_DEVICES];
    int n;
};

/* ---- reading ---- */

static int core_claim(struct division *w, int device, long core, struct err *e)
{
    const char *text = w->specs[device].text;
    for (int i = 0; i < w->share->n_cores; i++) {
        if (w->share->cores[i] != core)
            continue;
        if (w->owner[i] == device)
            return err_set(e, HP_EUSAGE, "--device %s: core %ld is named twice", text, core);
        if (w->owner[i] != CORE_FREE)
            return err_set(e, HP_EUSAGE,
                           "--device %s: core %ld is of --device %s already; a core is of one "
                           "device",
                           text, core, w->specs[w->owner[i]].text);
        w->owner[i] = device;
        return 0;
    }
    return err_set(e, HP_EUSAGE, "--device %s: core %ld is not one that this agent may use", text,
                   core);
}

/* "3" or "0-3". */
static int range_read(struct division *w, int device, const char *item, struct err *e)
{
    char *end = NULL;
    long from = isdigit((unsigned char)*item) ? strtol(item, &end, 10) : -1, to = from;
    if (from >= 0 && *end == '-' && isdigit((unsigned char)end[1]))
        to = strtol(end + 1, &end, 10);
    if (from < 0 || *end || to < from || to > 1000000)
        return err_set(e, HP_EUSAGE,
                       "--device %s: \"%s\" is neither cores such as 0 or 2-3, nor any:COUNT, nor "
                       "mem=BYTES, nor threads=N",
                       w->specs[device].text, item);
    int rc = 0;
    for (long core = from; rc == 0 && core <= to; core++)
        rc = core_claim(w, device, core, e);
    return rc;
}

static int count_read(const struct device_spec *s, const char *item, const char *value, int *out,
                      struct err *e)
{
    char *end;
    long n = strtol(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || n < 1 || n > DISCOVER_MAX_CORES)
        return err_set(e, HP_EUSAGE, "--device %s: %s is not a number from 1 to %d", s->text, item,
                       (int)DISCOVER_MAX_CORES);
    *out = (int)n;
    return 0;
}

static int host_read(struct device_spec *s, const char *item, struct err *e)
{
    bool host = strncmp(item, "host=", 5) == 0, small = strncmp(item, "small=", 6) == 0;
    if (!host && !small)
        return err_set(
            e, HP_EUSAGE,
            "--device %s: \"%s\" is not of a GPU; mem=BYTES, host=BYTES and small=BYTES are",
            s->text, item);
    return units_bytes_parse(strchr(item, '=') + 1, host ? &s->host_bytes : &s->small_bytes)
               ? 0
               : err_set(e, HP_EUSAGE, "--device %s: %s is not a size such as " UNITS_BYTES_HELP,
                         s->text, item);
}

/* Small weights lie where the host has room for them. */
static int host_check(const struct device_spec *s, struct err *e)
{
    return s->small_bytes == 0 || s->host_bytes
               ? 0
               : err_set(e, HP_EUSAGE,
                         "--device %s: small= says what lies in the room of host=BYTES, which is "
                         "not said",
                         s->text);
}

static int item_read(struct division *w, int device, const char *item, struct err *e)
{
    struct device_spec *s = &w->specs[device];
    bool memory = strncmp(item, "mem=", 4) == 0, threads = strncmp(item, "threads=", 8) == 0,
         any = strncmp(item, "any:", 4) == 0;
    bool gpu = w->gpus[device].is;
    if (threads && !gpu)
        return count_read(s, item, item + 8, &s->n_threads, e);
    if (memory && !units_bytes_parse(item + 4, &s->memory_bytes))
        return err_set(e, HP_EUSAGE, "--device %s: %s is not a size such as " UNITS_BYTES_HELP,
                       s->text, item);
    if (memory)
        return 0;
    if (gpu)
        return host_read(s, item, e);
    if (s->any || (any && !s->rest))
        return err_set(e, HP_EUSAGE, "--device %s: any:COUNT stands alone, without other cores",
                       s->text);
    s->rest = false;
    return any ? count_read(s, item, item + 4, &s->any, e) : range_read(w, device, item, e);
}

static int spec_read(struct division *w, int device, const char *text, struct err *e)
{
    struct device_spec *s = &w->specs[device];
    const char *after = NULL;
    int rc = gpu_spec_read(text, &w->gpus[device], &after, e);
    s->text = text;
    s->rest = !w->gpus[device].is;
    if (rc < 0)
        return rc;
    if (!w->gpus[device].is) {
        after = text + 3;
        if (strncmp(text, "cpu", 3) != 0 || !strchr(":,", *after))
            return err_set(e, HP_EUSAGE,
                           "--device %s: is neither cpu[:CORES][,mem=BYTES][,threads=N] nor "
                           "cuda:N[/share=1/V][,mem=BYTES][,host=BYTES[,small=BYTES]]",
                           text);
    }
    if (strlen(after) >= sizeof s->items || strstr(after, ",,") || strstr(after, ":,") ||
        (*after && strchr(":,", after[strlen(after) - 1])))
        return err_set(e, HP_EUSAGE, "--device %s: something is missing in it, or it is too long",
                       text);
    snprintf(s->items, sizeof s->items, "%s", *after ? after + 1 : "");
    char *rest = s->items, *item;
    while (rc == 0 && (item = strsep(&rest, ",")) != NULL && *item)
        rc = item_read(w, device, item, e);
    return rc;
}

static int cpus_count(const struct division *w)
{
    int n = 0;
    for (int d = 0; d < w->n; d++)
        n += !w->gpus[d].is;
    return n;
}

/* ---- cores ---- */

static int cores_free(const struct division *w)
{
    int n = 0;
    for (int i = 0; i < w->share->n_cores; i++)
        n += w->owner[i] == CORE_FREE;
    return n;
}

static int cores_take(struct division *w, int device, int n, struct err *e)
{
    if (n < 1 || n > cores_free(w))
        return err_set(e, HP_EUSAGE, "--device %s: the other devices leave it %d cores",
                       w->specs[device].text, cores_free(w));
    for (int i = 0; n > 0; i++)
        if (w->owner[i] == CORE_FREE) {
            w->owner[i] = device;
            n--;
        }
    return 0;
}

/* Those that are named have them already. */
static int cores_divide(struct division *w, struct err *e)
{
    int rc = 0, rest = -1;
    for (int d = 0; rc == 0 && d < w->n; d++)
        if (w->specs[d].any)
            rc = cores_take(w, d, w->specs[d].any, e);
    for (int d = 0; rc == 0 && d < w->n; d++) {
        if (!w->specs[d].rest)
            continue;
        if (rest >= 0)
            return err_set(e, HP_EUSAGE,
                           "--device %s: two devices without cores; say which cores are whose, or "
                           "any:COUNT",
                           w->specs[d].text);
        rest = d;
    }
    return rc == 0 && rest >= 0 ? cores_take(w, rest, cores_free(w), e) : rc;
}

/* The share's cores in the order of the devices. */
static void cores_order(struct division *w)
{
    struct discover_share *s = w->share;
    int ordered[DISCOVER_MAX_CORES], n = 0;
    for (int d = 0; cpus_count(w) && d < w->n; d++) {
        s->devices[d].first_core = n;
        for (int i = 0; i < s->n_cores; i++)
            if (w->owner[i] == d)
                ordered[n++] = s->cores[i];
        s->devices[d].n_cores = n - s->devices[d].first_core;
    }
    if (!cpus_count(w))
        return;
    memcpy(s->cores, ordered, (size_t)n * sizeof *ordered);
    s->n_cores = n;
}

/* ---- threads and memory ---- */

static int threads_divide(struct division *w, struct err *e)
{
    struct discover_share *s = w->share;
    int rc = 0;
    s->n_threads = 0;
    for (int d = 0; rc == 0 && d < w->n; d++) {
        struct discover_device *own = &s->devices[d];
        if (!w->gpus[d].is)
            own->n_threads = w->specs[d].n_threads;
        if (!own->n_threads)
            rc = discover_threads(s->cores + own->first_core, own->n_cores,
                                  (double)own->n_cores / s->n_cores, &own->n_threads, e);
        s->n_threads += own->n_threads;
    }
    return rc;
}

static int memory_divide(struct division *w, struct err *e)
{
    uint64_t all = discover_stage_bytes(w->share), asked = 0;
    int cores = 0;
    for (int d = 0; d < w->n; d++) {
        uint64_t own = w->gpus[d].is ? 0 : w->specs[d].memory_bytes;
        if (own > all - asked)
            return err_set(e, HP_EUSAGE,
                           "--device %s: the agent has %llu bytes for stages (--memory), and the "
                           "devices ask for more",
                           w->specs[d].text, (unsigned long long)all);
        asked += own;
        cores += own || w->gpus[d].is ? 0 : w->share->devices[d].n_cores;
    }
    for (int d = 0; d < w->n; d++) {
        struct discover_device *own = &w->share->devices[d];
        if (w->gpus[d].is)
            continue;
        own->memory_bytes = w->specs[d].memory_bytes
                                ? w->specs[d].memory_bytes
                                : (all - asked) / (uint64_t)cores * (uint64_t)own->n_cores;
        if (!own->memory_bytes)
            return err_set(e, HP_EUSAGE, "--device %s: the other devices leave it no memory",
                           w->specs[d].text);
    }
    return 0;
}

static void names_give(struct division *w)
{
    for (int d = 0, cpu = 0; d < w->n; d++) {
        char *name = w->share->devices[d].name;
        if (w->gpus[d].is)
            continue; /* as its part of the GPU is called */
        if (cpus_count(w) == 1)
            snprintf(name, DISCOVER_DEVICE_NAME, "cpu");
        else
            snprintf(name, DISCOVER_DEVICE_NAME, "cpu%d", cpu++);
    }
}

int discover_devices(const char *const *texts, int n, struct discover_share *share, struct err *e)
{
    if (n < 1 || n > DISCOVER_MAX_DEVICES)
        return err_set(e, HP_EUSAGE, "--device: an agent has at most %d devices",
                       (int)DISCOVER_MAX_DEVICES);
    struct division *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for devices");
    w->share = share;
    w->n = n;
    for (int i = 0; i < DISCOVER_MAX_CORES; i++)
        w->owner[i] = CORE_FREE;
    int rc = 0;
    for (int d = 0; rc == 0 && d < n; d++)
        if ((rc = spec_read(w, d, texts[d], e)) == 0)
            rc = host_check(&w->specs[d], e);
    for (int d = 0; rc == 0 && d < n; d++)
        share->devices[d] =
            (struct discover_device){.memory_bytes = w->gpus[d].is ? w->specs[d].memory_bytes : 0,
                                     .host_bytes = w->specs[d].host_bytes,
                                     .small_bytes = w->specs[d].small_bytes};
    rc = rc < 0 ? rc : gpu_specs_divide(w->gpus, texts, n, share->devices, e);
    rc = rc < 0 ? rc : gpu_specs_find(w->gpus, texts, n, share->devices, e);
    rc = rc < 0 ? rc : cores_divide(w, e);
    if (rc == 0) {
        cores_order(w);
        rc = threads_divide(w, e);
    }
    rc = rc < 0 ? rc : memory_divide(w, e);
    names_give(w);
    share->n_devices = rc < 0 ? 0 : n;
    free(w);
    return rc;
}
