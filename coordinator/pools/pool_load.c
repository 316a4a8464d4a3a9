#include "coordinator/pools/pool_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct line_load {
    uint64_t asked; /* samples of this window */
    double per_s;   /* of the last */
};

struct model_load {
    uint64_t on_time, missed; /* when the window began */
    uint64_t answers;         /* of the last */
    double attainment;
};

struct pool_load {
    uint64_t begun_ns; /* 0: nothing was asked yet */
    struct model_load *models;
    struct line_load lines[]; /* [topology.n_models] */
};

struct pool_load *pool_load_create(const struct pool_plan *p)
{
    size_t lines = (size_t)p->topology.n_models, models = (size_t)p->spec->workload.n_models;
    struct pool_load *l =
        calloc(1, sizeof *l + lines * sizeof *l->lines + models * sizeof *l->models);
    if (l)
        l->models = (struct model_load *)(void *)(l->lines + lines);
    return l;
}

void pool_load_note(struct pool_plan *p, int line, uint32_t samples)
{
    if (p->load)
        p->load->lines[line].asked += samples;
}

/* ---- windows ---- */

static uint64_t counts_missed(const struct pool_counts *n)
{
    return n->late + n->dropped + n->failed;
}

static void window_end(struct pool_plan *p, double seconds)
{
    for (int i = 0; i < p->topology.n_models; i++) {
        struct line_load *l = &p->load->lines[i];
        l->per_s = (double)l->asked / seconds;
        l->asked = 0;
    }
    for (int m = 0; m < p->spec->workload.n_models; m++) {
        struct model_load *l = &p->load->models[m];
        const struct pool_counts *n = &p->spec->models[m].counts;
        uint64_t good = n->on_time - l->on_time, bad = counts_missed(n) - l->missed;
        l->answers = good + bad;
        l->attainment = l->answers ? (double)good / (double)l->answers : 1;
    }
}

static void window_begin(struct pool_plan *p, uint64_t now_ns)
{
    p->load->begun_ns = now_ns;
    for (int m = 0; m < p->spec->workload.n_models; m++) {
        const struct pool_counts *n = &p->spec->models[m].counts;
        p->load->models[m].on_time = n->on_time;
        p->load->models[m].missed = counts_missed(n);
    }
}

bool pool_load_step(const struct coord *c, struct pool_plan *p)
{
    uint64_t now = coord_now(c), begun = p->load ? p->load->begun_ns : 0;
    if (!p->load || (begun && now - begun < coord_ms(POOL_LOAD_WINDOW_MS)))
        return false;
    if (begun)
        window_end(p, (double)(now - begun) * 1e-9);
    window_begin(p, now);
    return begun != 0;
}

/* ---- what they tell ---- */

double pool_load_asked(const struct pool_plan *p, int model)
{
    double per_s = 0;
    for (int i = 0; p->load && i < p->topology.n_models; i++)
        per_s += p->lines[i].model == model ? p->load->lines[i].per_s : 0;
    return per_s;
}

double pool_load_attainment(const struct pool_plan *p, int model, uint64_t *answers)
{
    *answers = p->load ? p->load->models[model].answers : 0;
    return *answers ? p->load->models[model].attainment : 1;
}

/* The part of what `p` promises for a model that is asked of `load`; the lines of both are alike.
 */
static double model_part(const struct pool_plan *p, const struct pool_plan *load, int model)
{
    double part = 0;
    for (int i = 0; load->load && i < load->topology.n_models; i++) {
        double per_s = load->load->lines[i].per_s;
        if (load->lines[i].model != model || per_s <= 0)
            continue;
        int own = pool_line_find(p, model, load->lines[i].size);
        double rate = own < 0 ? 0 : p->topology.models[own].rate;
        part += rate > 0 ? per_s / rate : INFINITY;
    }
    return part;
}

double pool_load_weight(const struct pool_plan *p, int model)
{
    double rate = p->topology.models[model].rate;
    return rate > 0 ? model_part(p, p, model) * rate : 0;
}

bool pool_load_fits(const struct pool_plan *p, const struct pool_plan *load)
{
    const struct pool_spec *a = p->spec, *b = load->spec;
    bool same = a->workload.n_models == b->workload.n_models &&
                p->topology.n_models == load->topology.n_models;
    for (int m = 0; same && m < a->workload.n_models; m++)
        same = strcmp(a->workload.models[m].name, b->workload.models[m].name) == 0 &&
               a->models[m].n_lengths == b->models[m].n_lengths;
    return same;
}

double pool_load_level(const struct pool_plan *p, const struct pool_plan *load)
{
    double most = 0;
    for (int m = 0; m < load->spec->workload.n_models; m++)
        most = fmax(most, model_part(p, load, m));
    return most > 0 ? 1 / most : INFINITY;
}
