#include "planners/dispatch/arrivals.h"

#include <math.h>

#include "common/env.h"

const char *const arrivals_words[] = {"poisson", "uniform", "bursty", NULL};

#define CALM_S 0.8
#define BURST_S 0.2
#define BURST_FACTOR 3.0

static int64_t exponential_ns(uint64_t *random, double rate)
{
    double ns = -log(1 - random_unit(random)) / rate * 1e9;
    return ns < 9e17 ? (int64_t)ns : INT64_MAX / 8;
}

/* Time to the next arrival; a phase that ends before starts the next one (the process has no
 * memory). */
static void step_bursty(struct arrivals_model *m)
{
    double calm_rate = m->rate * (CALM_S + BURST_S) / (CALM_S + BURST_S * BURST_FACTOR);
    for (;;) {
        int64_t next = m->next_ns +
                       exponential_ns(&m->random, m->burst ? calm_rate * BURST_FACTOR : calm_rate);
        if (next < m->phase_end_ns) {
            m->next_ns = next;
            return;
        }
        m->next_ns = m->phase_end_ns;
        m->burst = !m->burst;
        m->phase_end_ns += exponential_ns(&m->random, 1 / (m->burst ? BURST_S : CALM_S));
    }
}

static void stream_step(struct arrivals *a, struct arrivals_model *m)
{
    switch (a->kind) {
    case ARRIVALS_UNIFORM: m->next_ns += (int64_t)(1e9 / m->rate); break;
    case ARRIVALS_BURSTY:
        if (m->next_ns < a->end_ns)
            step_bursty(m);
        break;
    default: m->next_ns += exponential_ns(&m->random, m->rate); break;
    }
}

void arrivals_init(struct arrivals *a, enum arrivals_kind kind, const double *rates, int n_models,
                   double seconds, uint64_t seed)
{
    *a = (struct arrivals){.kind = kind, .n_models = n_models, .end_ns = (int64_t)(seconds * 1e9)};
    for (int i = 0; i < n_models; i++) {
        struct arrivals_model *m = &a->models[i];
        m->rate = rates[i];
        m->random =
            seed * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)i * UINT64_C(0xD1B54A32D192ED03);
        random_next(&m->random);
        if (m->rate <= 0) {
            m->next_ns = INT64_MAX;
            continue;
        }
        m->phase_end_ns = exponential_ns(&m->random, 1 / CALM_S);
        if (kind == ARRIVALS_UNIFORM)
            m->next_ns = (int64_t)(random_unit(&m->random) * 1e9 /
                                   m->rate); /* models do not arrive in step */
        else
            stream_step(a, m);
    }
}

int arrivals_next(void *ctx, struct arrival *out, struct err *e)
{
    struct arrivals *a = ctx;
    (void)e;
    int first = 0;
    for (int i = 1; i < a->n_models; i++)
        if (a->models[i].next_ns < a->models[first].next_ns)
            first = i;
    if (a->models[first].next_ns >= a->end_ns)
        return 0;
    *out = (struct arrival){a->models[first].next_ns, first};
    stream_step(a, &a->models[first]);
    return 1;
}
