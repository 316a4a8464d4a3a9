#include "coordinator/pools/pool_correction.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_spec.h"

/* Of a model on a kind of device, over all shares of such. */
struct kind_times {
    uint64_t batches, slow, fast;
    double ratio_sum;
};

static struct kind_times kind_times_sum(const struct pool_plan *p, int model, const char *kind)
{
    struct kind_times t = {0};
    for (int i = 0; i < p->topology.n_shares; i++) {
        const struct pool_share *s = &p->shares[i];
        if (s->model != model || !s->agent || strcmp(member_kind(s->agent, s->device), kind) != 0)
            continue;
        t.batches += s->batches;
        t.slow += s->slow;
        t.fast += s->fast;
        t.ratio_sum += s->ratio_sum;
    }
    return t;
}

static bool kind_times_are_off(const struct kind_times *t)
{
    return t->batches >= POOL_CORRECTION_BATCHES &&
           (4 * t->slow >= 3 * t->batches || 4 * t->fast >= 3 * t->batches);
}

/* ---- the document ---- */

static void tables_scale(json_t *profile, const char *kind, double factor)
{
    json_t *table, *row, *cell;
    const char *name;
    size_t i, k;
    json_object_foreach(json_object_get(json_object_get(profile, "latency"), kind), name, table)
        json_array_foreach(json_object_get(table, "seconds"), i, row)
            json_array_foreach(row, k, cell) if (json_is_number(cell))
                json_array_set_new(row, k, json_real(json_number_value(cell) * factor));
}

static void profile_correct(json_t *profile, const char *kind, double factor)
{
    json_t *shorter;
    const char *length;
    tables_scale(profile, kind, factor);
    json_object_foreach(json_object_get(profile, "lengths"), length, shorter)
        tables_scale(shorter, kind, factor);
}

/* Corrects what is off in the document, which is made when the first is found. */
static void model_correct(const struct pool_plan *p, int model, json_t **document,
                          char why[POOL_WHY])
{
    const char *name = p->spec->models[model].facts.name, *kinds[POOL_MAX_PEERS];
    int n = 0;
    for (int i = 0; i < p->topology.n_shares && n < POOL_MAX_PEERS; i++) {
        const struct pool_share *s = &p->shares[i];
        const char *kind = s->agent ? member_kind(s->agent, s->device) : "";
        bool seen = s->model != model || !kind[0];
        for (int k = 0; k < n; k++)
            seen = seen || strcmp(kinds[k], kind) == 0;
        if (seen)
            continue;
        kinds[n++] = kind;
        struct kind_times t = kind_times_sum(p, model, kind);
        if (!kind_times_are_off(&t))
            continue;
        double factor = t.ratio_sum / (double)t.batches;
        if (!*document) {
            *document = json_deep_copy(p->spec->document);
            snprintf(why, POOL_WHY,
                     "batches of \"%.60s\" take %.2f times as long on %.60s as planned", name,
                     factor, kind);
        }
        profile_correct(json_object_get(json_object_get(*document, "profiles"), name), kind,
                        factor);
    }
}

struct pool_spec *pool_correction_make(const struct pool_plan *p, char why[POOL_WHY])
{
    json_t *document = NULL;
    struct pool_spec *corrected = NULL;
    struct err e = {0};
    if (p->spec->workload.replan_margin <= 0)
        return NULL;
    for (int m = 0; m < p->spec->workload.n_models; m++)
        model_correct(p, m, &document, why);
    if (document && pool_spec_read(document, &corrected, &e) < 0) {
        log_warn("coordinator", "pools_not_corrected", "why=\"%s\"", e.text);
        return NULL;
    }
    return corrected;
}
