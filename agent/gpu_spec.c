#include "agent/gpu_spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/plugin.h"

enum { ORDINAL_MOST = 99, SHARE_LEAST = 4 /* 1/4 */ };

/* ---- reading ---- */

static int share_read(const char *text, const char *share, struct gpu_spec *s, const char **after,
                      struct err *e)
{
    static const char words[] = "/share=1/";
    size_t n = sizeof words - 1;
    if (strncmp(share, words, n) != 0 || share[n] < '2' || share[n] > '0' + SHARE_LEAST ||
        (share[n + 1] && share[n + 1] != ','))
        return err_set(e, HP_EUSAGE,
                       "--device %s: a share of a GPU is cuda:%d/share=1/2, 1/3 or 1/4", text,
                       s->ordinal);
    s->of = share[n] - '0';
    *after = share + n + 1;
    return 0;
}

int gpu_spec_read(const char *text, struct gpu_spec *out, const char **after, struct err *e)
{
    char *end;
    *out = (struct gpu_spec){.of = 1};
    if (strncmp(text, "cuda:", 5) != 0 || !isdigit((unsigned char)text[5]))
        return 0;
    long ordinal = strtol(text + 5, &end, 10);
    if (ordinal > ORDINAL_MOST || (*end && *end != ',' && *end != '/'))
        return 0;
    out->is = true;
    out->ordinal = (int)ordinal;
    *after = end;
    return *end == '/' ? share_read(text, end, out, after, e) : 0;
}

/* ---- who has which part ---- */

static bool is_of(const struct gpu_spec *s, int ordinal)
{
    return s->is && s->ordinal == ordinal;
}

/* The fewest equal parts of which all shares of the GPU are some. */
static int cut_find(const struct gpu_spec *specs, int n, int ordinal)
{
    int cut = 1;
    for (int i = 0; i < n; i++) {
        int least = cut;
        while (is_of(&specs[i], ordinal) && cut % specs[i].of)
            cut += least;
    }
    return cut;
}

/* Its name tells the devices of one GPU apart. */
static void name_give(const struct gpu_spec *specs, int n, int own, char *name)
{
    int before = 0, all = 0;
    for (int i = 0; i < n; i++) {
        all += is_of(&specs[i], specs[own].ordinal);
        before += i < own && is_of(&specs[i], specs[own].ordinal);
    }
    if (all > 1)
        snprintf(name, DISCOVER_DEVICE_NAME, "cuda%d-%d", specs[own].ordinal, before);
    else
        snprintf(name, DISCOVER_DEVICE_NAME, "cuda%d", specs[own].ordinal);
}

int gpu_specs_divide(const struct gpu_spec *specs, const char *const *texts, int n,
                     struct discover_device *devices, struct err *e)
{
    for (int own = 0; own < n; own++) {
        const struct gpu_spec *s = &specs[own];
        int cut = s->is ? cut_find(specs, n, s->ordinal) : 0, first = 0;
        if (!s->is)
            continue;
        for (int i = 0; i < own; i++)
            first += is_of(&specs[i], s->ordinal) ? cut / specs[i].of : 0;
        if (first + cut / s->of > cut)
            return s->of == 1
                       ? err_set(e, HP_EUSAGE, "--device %s: cuda:%d is named twice", texts[own],
                                 s->ordinal)
                       : err_set(
                             e, HP_EUSAGE,
                             "--device %s: the devices before it leave no such share of cuda:%d",
                             texts[own], s->ordinal);
        if (s->of > 1)
            devices[own].part = (struct device_part){cut, first, cut / s->of};
        name_give(specs, n, own, devices[own].name);
    }
    return 0;
}

/* ---- finding ---- */

/* What devices before it of the same GPU have been given. */
static uint64_t bytes_before(const struct gpu_spec *specs, int own,
                             const struct discover_device *devices)
{
    uint64_t bytes = 0;
    for (int i = 0; i < own; i++)
        bytes += is_of(&specs[i], specs[own].ordinal) ? devices[i].memory_bytes : 0;
    return bytes;
}

static int memory_give(const struct plugin_facts *facts, const char *text, int of,
                       uint64_t given_bytes, struct discover_device *own, struct err *e)
{
    uint64_t free_bytes = facts->free_bytes > given_bytes ? facts->free_bytes - given_bytes : 0;
    if (!own->memory_bytes)
        own->memory_bytes = facts->free_bytes / 10 * 9 / (uint64_t)of;
    if (own->memory_bytes <= free_bytes)
        return 0;
    return err_set(e, HP_EUSAGE, "--device %s: %llu of its %llu bytes are free%s: %llu are missing",
                   text, (unsigned long long)free_bytes, (unsigned long long)facts->total_bytes,
                   given_bytes ? " beside what the devices before it take" : "",
                   (unsigned long long)(own->memory_bytes - free_bytes));
}

static int gpu_find(const struct gpu_spec *s, const char *text, uint64_t given_bytes,
                    struct discover_device *own, struct err *e)
{
    const struct plugin *p;
    struct plugin_facts facts;
    int rc = plugin_cuda(&p, e);
    rc = rc < 0 ? rc : p->facts(s->ordinal, &own->part, &facts, e);
    rc = rc < 0 ? rc : memory_give(&facts, text, s->of, given_bytes, own, e);
    if (rc < 0)
        return rc;
    own->backend = p->backend;
    own->ordinal = s->ordinal;
    own->n_threads = 1;
    own->multiprocessors = facts.multiprocessors;
    own->all_multiprocessors = facts.all_multiprocessors;
    own->kept_by = facts.kept_by;
    if (s->of > 1)
        snprintf(own->model, sizeof own->model, "%.80s 1of%d", facts.name, s->of);
    else
        snprintf(own->model, sizeof own->model, "%.*s", DISCOVER_MODEL - 1, facts.name);
    return 0;
}

int gpu_specs_find(const struct gpu_spec *specs, const char *const *texts, int n,
                   struct discover_device *devices, struct err *e)
{
    int rc = 0;
    for (int d = 0; rc == 0 && d < n; d++)
        if (specs[d].is)
            rc = gpu_find(&specs[d], texts[d], bytes_before(specs, d, devices), &devices[d], e);
    return rc;
}
