/* Runs that are timed: whole, and with a look at the clock after each step, by turns. */
#include "agent/engine/network/network_timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/doubles.h"

enum { LEAST_RUNS = 11, MOST_RUNS = 400 };

static const double LEAST_S = 1e-9; /* of a step: nothing takes no time */

struct timed_runs {
    const struct network_timing *of;
    uint64_t *stamps_ns; /* [steps + 1] */
    double *times;       /* [MOST_RUNS * n_layers] */
    double sums[MOST_RUNS], wholes[MOST_RUNS];
    double look_s; /* that each step's time has too much */
    int n_runs;
};

/* ---- middles ---- */

/* The limits of the middle half of what was measured. */
static void middle_half(const double *x, int n, double *low, double *high)
{
    double sorted[MOST_RUNS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    doubles_sort(sorted, (size_t)n);
    *low = sorted[n / 4];
    *high = sorted[n - 1 - n / 4];
}

/* Mean of the middle half, and twice its standard error as a part of it: of a normal distribution
 * the middle half is 1.35 standard deviations wide. */
static double middle_mean(const double *x, int n, double *spread)
{
    double low, high, sum = 0;
    int count = 0;
    middle_half(x, n, &low, &high);
    for (int i = 0; i < n; i++)
        if (x[i] >= low && x[i] <= high) {
            sum += x[i];
            count++;
        }
    *spread = 2 * (high - low) / 1.35 / sqrt(n) / (sum / count);
    return sum / count;
}

/* ---- runs ---- */

/* What enters lies where later values of a run may, too. */
static int values_enter(const struct network_timing *t, struct err *e)
{
    return t->inputs ? 0
                     : network_plan_enter(t->plan, t->first, t->border, t->n_entering, t->entering,
                                          t->n_entering, e);
}

/* Whole, or with a look after each step: by one way through the code. On two ways, steps that find
 * the stack elsewhere took up to 5 % longer or shorter, all in one process alike. */
static int run_once(const struct timed_runs *r, const struct env *env, bool each, struct err *e)
{
    const struct network_timing *t = r->of;
    int rc = values_enter(t, e);
    if (rc == 0)
        rc = t->inputs ? network_plan_run_timed(t->plan, env, each, r->stamps_ns, t->inputs,
                                                t->outputs, e)
                       : network_plan_run_part_timed(t->plan, t->first, t->end, env, each,
                                                     r->stamps_ns, e);
    return rc;
}

static void whole_note(struct timed_runs *r)
{
    r->wholes[r->n_runs] =
        (double)(r->stamps_ns[r->of->end - r->of->first] - r->stamps_ns[0]) * 1e-9;
}

static void sum_note(struct timed_runs *r)
{
    const struct network_timing *t = r->of;
    double *times = r->times + (size_t)r->n_runs * (size_t)t->n_layers, sum = 0;
    for (int i = 0; i < t->end - t->first; i++) {
        double s = (double)(r->stamps_ns[i + 1] - r->stamps_ns[i]) * 1e-9 - r->look_s;
        s = s > LEAST_S ? s : LEAST_S;
        times[t->layers[t->first + i] - t->first_layer] += s;
        sum += s;
    }
    r->sums[r->n_runs] = sum;
}

/* One of each kind. */
static int runs_pair(struct timed_runs *r, const struct env *env, struct err *e)
{
    int rc = 0;
    for (int each = 0; each < 2 && rc == 0; each++) {
        rc = run_once(r, env, each, e);
        if (rc == 0)
            (each ? sum_note : whole_note)(r);
    }
    return rc;
}

/* What a look at the clock takes itself: steps of a network of a few microseconds take little
 * longer. */
static double look_s(const struct env *env)
{
    enum { ROUNDS = 16, LOOKS = 64 };
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = env_now_ns(env), end_ns = begin_ns;
        for (int i = 0; i < LOOKS; i++)
            end_ns = env_now_ns(env);
        least = end_ns - begin_ns < least ? end_ns - begin_ns : least;
    }
    return (double)least * 1e-9 / LOOKS;
}

static int runs_take(struct timed_runs *r, const struct network_profile_ask *ask, double budget_s,
                     int64_t batch, struct network_profile_runs *runs, struct err *e)
{
    uint64_t end_ns = env_now_ns(ask->env) + (uint64_t)(budget_s * 1e9);
    double timed_spread = 1;
    int rc = run_once(r, ask->env, false, e); /* touches memory and makes outputs */
    runs->spread = 1;
    r->look_s = ask->device ? 0 : look_s(ask->env); /* a device has a clock of its own */
    while (rc == 0 && r->n_runs < MOST_RUNS &&
           (r->n_runs < LEAST_RUNS ||
            (fmax(runs->spread, timed_spread) > ask->spread && env_now_ns(ask->env) < end_ns))) {
        if ((rc = runs_pair(r, ask->env, e)) < 0)
            return rc;
        runs->n_runs = ++r->n_runs;
        runs->whole_s = middle_mean(r->wholes, r->n_runs, &runs->spread);
        runs->sum_s = middle_mean(r->sums, r->n_runs, &timed_spread);
        if (ask->watch && ask->watch->goes_on)
            ask->watch->goes_on(ask->watch->ctx, batch, runs);
    }
    runs->spread = fmax(runs->spread, timed_spread);
    return rc;
}

/* A layer's time is its mean over the timed runs of the middle half, so that layers add up. */
static void times_note(const struct timed_runs *r, double *seconds)
{
    double low, high;
    int count = 0, n = r->of->n_layers;
    middle_half(r->sums, r->n_runs, &low, &high);
    memset(seconds, 0, (size_t)n * sizeof *seconds);
    for (int run = 0; run < r->n_runs; run++) {
        if (r->sums[run] < low || r->sums[run] > high)
            continue;
        count++;
        for (int i = 0; i < n; i++)
            seconds[i] += r->times[run * n + i];
    }
    for (int i = 0; i < n; i++)
        seconds[i] /= count;
}

int network_timing_take(const struct network_timing *t, const struct network_profile_ask *ask,
                        double budget_s, int64_t batch, struct network_profile_runs *out,
                        double *seconds, struct err *e)
{
    struct timed_runs *r = calloc(1, sizeof *r);
    if (!r)
        return err_no_memory(e, "a profile");
    r->of = t;
    r->stamps_ns = calloc((size_t)(t->end - t->first) + 1, sizeof *r->stamps_ns);
    r->times = calloc((size_t)MOST_RUNS * (size_t)t->n_layers, sizeof *r->times);
    int rc = r->stamps_ns && r->times ? runs_take(r, ask, budget_s, batch, out, e)
                                      : err_no_memory(e, "a profile");
    if (rc == 0)
        times_note(r, seconds);
    free(r->stamps_ns);
    free(r->times);
    free(r);
    return rc;
}

int network_timing_press(const struct network_timing *t, const struct env *env,
                         void (*warm)(void *ctx), void *ctx, struct err *e)
{
    struct timed_runs r = {.of = t};
    int rc = 0;
    r.stamps_ns = calloc((size_t)(t->end - t->first) + 1, sizeof *r.stamps_ns);
    if (!r.stamps_ns)
        return err_no_memory(e, "a profile");
    for (bool first = true; rc == 0; first = false) {
        rc = run_once(&r, env, false, e);
        if (rc == 0 && first)
            warm(ctx);
    }
    free(r.stamps_ns);
    return rc == HP_ECANCELED ? 0 : rc;
}
