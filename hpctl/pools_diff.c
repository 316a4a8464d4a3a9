#include "hpctl/pools_diff.h"

#include <stdio.h>
#include <string.h>

#include "hpctl/shown.h"

struct pipeline_text {
    char s[400];
};

/* "P4 x40 blocks 0-3 -> L4/2 x10 blocks 4-9, batches of 2": by this pipelines are told apart. */
static struct pipeline_text pipeline_text(const json_t *pipeline)
{
    struct pipeline_text t = {""};
    const json_t *stage;
    size_t i, n = 0;
    json_array_foreach(json_object_get(pipeline, "stages"), i, stage)
    {
        const json_t *layers = json_object_get(stage, "layers");
        int share = (int)number_member(stage, "share");
        n += (size_t)snprintf(
            t.s + n, n < sizeof t.s ? sizeof t.s - n : 0, "%s%s%s x%d blocks %lld-%lld",
            i ? " -> " : "", string_member(stage, "kind"),
            share > 1 ? shown_of("/%d", share).s : "", (int)number_member(stage, "count"),
            json_integer_value(json_array_get(layers, 0)),
            json_integer_value(json_array_get(layers, 1)) - 1);
        n = n < sizeof t.s ? n : sizeof t.s - 1;
    }
    snprintf(t.s + n, sizeof t.s - n, ", batches of %d", (int)number_member(pipeline, "batch"));
    return t;
}

static const json_t *plan_model(const json_t *plan, const char *name)
{
    const json_t *m;
    size_t i;
    json_array_foreach(json_object_get(plan, "models"), i, m)
    {
        if (strcmp(string_member(m, "name"), name) == 0)
            return m;
    }
    return NULL;
}

static bool model_has(const json_t *model, const char *text)
{
    const json_t *p;
    size_t i;
    json_array_foreach(json_object_get(model, "pipelines"), i, p)
    {
        if (strcmp(pipeline_text(p).s, text) == 0)
            return true;
    }
    return false;
}

static bool pipelines_print(const json_t *model, const json_t *other, char mark)
{
    const json_t *p;
    size_t i;
    bool any = false;
    json_array_foreach(json_object_get(model, "pipelines"), i, p)
    {
        struct pipeline_text text = pipeline_text(p);
        if (other && model_has(other, text.s))
            continue;
        printf("  %c %s: %.1f/s\n", mark, text.s, number_member(p, "throughput_per_s"));
        any = true;
    }
    return any;
}

/* Of the models of a plan those that the other has, too, and those that are new there; or (`gone`)
 * those that the other has no more. */
static void models_compare(const json_t *plan, const json_t *other, bool gone)
{
    const json_t *m;
    size_t i;
    json_array_foreach(json_object_get(plan, "models"), i, m)
    {
        const json_t *before = plan_model(other, string_member(m, "name"));
        if (gone && before)
            continue;
        printf("%s: %.1f/s%s\n", string_member(m, "name"), number_member(m, "throughput_per_s"),
               gone ? " is not served any more"
               : before
                   ? shown_of(", serves %.1f/s now", number_member(before, "throughput_per_s")).s
                   : ", is new");
        bool changes = !gone && pipelines_print(before, m, '-');
        changes = pipelines_print(m, before, gone ? '-' : '+') || changes;
        if (!changes)
            printf("  unchanged\n");
    }
}

void pools_diff_print(const json_t *serves, const json_t *next)
{
    models_compare(next, serves, false);
    models_compare(serves, next, true);
}

void pools_diff_why_print(const json_t *reasons, const json_t *next)
{
    const json_t *row;
    size_t i;
    if (json_array_size(reasons))
        printf("\nwhy:\n");
    json_array_foreach(reasons, i, row)
    {
        printf("  %s\n", json_string_value(row));
    }
    if (json_array_size(json_object_get(next, "why")))
        printf("\nweighed, by the least throughput / weight of a model:\n");
    json_array_foreach(json_object_get(next, "why"), i, row)
    {
        const json_t *served = json_object_get(row, "predicted");
        printf("  %-36s %10s  %s\n", string_member(row, "candidate"),
               json_is_number(served) ? shown_of("%.1f/s", json_number_value(served)).s : "-",
               string_member(row, "reason"));
    }
}
