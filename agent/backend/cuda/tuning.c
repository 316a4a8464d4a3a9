/* Products of one row by quantised weights go one of two ways, which add up the same numbers in the
 * same order: by blocks that go when their own outputs are done, or by some that stay until all is.
 * Which is faster depends on the GPU, on the shapes, and on what runs before and after: a block
 * that is there early reads weights while the kernel before it still runs, which a product that is
 * timed by itself cannot show. So whole steps find out (steps.c): they are recorded once for each
 * way, go each way in turn, each between two moments of the GPU's clock, and from then on the one
 * that took less. Nothing is computed that nobody wants. Whatever cannot be measured, what is not
 * faster by TUNING_GAIN, and products of steps that are not kept go by blocks that do not stay. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

static const double TUNING_GAIN = 0.01;

/* Blocks of a multiprocessor, of products that are cut into more than it has of them. */
enum { WAY_NONE_STAYS, WAY_STAY };
static const char *const way_names[CUDA_WAYS] = {"no block stays", "6 blocks stay"};

/* ---- what was measured ---- */

static int seconds_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean of the faster half: a graph's first start, and what another stream does beside it, are no
 * part of it. */
static double seconds_usual(const double *trials, int way)
{
    enum { EACH = CUDA_TRIALS / CUDA_WAYS, HALF = EACH / 2 };
    double of[EACH], sum = 0;
    for (int i = 0; i < EACH; i++)
        of[i] = trials[CUDA_WAYS * i + way];
    qsort(of, EACH, sizeof *of, seconds_compare);
    for (int i = 0; i < HALF; i++)
        sum += of[i];
    return sum / HALF;
}

/* The fastest, if it is worth another than the first. */
static int way_best(const double *seconds)
{
    int best = 0;
    for (int i = 1; i < CUDA_WAYS; i++)
        best = seconds[i] < seconds[best] ? i : best;
    return seconds[best] < seconds[0] * (1 - TUNING_GAIN) ? best : 0;
}

static void moments_free(struct cuda_trials *t)
{
    for (int i = 0; i < CUDA_TRIALS; i++)
        for (int k = 0; k < 2; k++) {
            if (t->moments[i][k])
                gpu_event_destroy(t->moments[i][k]);
            t->moments[i][k] = NULL;
        }
}

/* 0, GPU_BUSY: some trials are still under way, or CUDA's error. */
static int trials_read(const struct cuda_trials *t, double *seconds)
{
    int rc = 0;
    for (int i = 0; !rc && i < CUDA_TRIALS; i++)
        rc = gpu_moments_between(t->moments[i][0], t->moments[i][1], &seconds[i]);
    return rc;
}

/* So that people may hear of it. */
static void tuned_note(struct cuda_tuning *all, const struct cuda_trials *t)
{
    pthread_mutex_lock(&all->lock);
    struct cuda_tuned *to = &all->of[all->n++ % CUDA_TUNED];
    to->way = t->way;
    memcpy(to->seconds, t->seconds, sizeof to->seconds);
    pthread_mutex_unlock(&all->lock);
}

static void trials_decide(struct cuda_tuning *all, struct cuda_trials *t)
{
    double trials[CUDA_TRIALS];
    int rc = trials_read(t, trials);
    if (rc == GPU_BUSY)
        return;
    cuda_trials_give_up(t);
    if (rc)
        return;
    for (int i = 0; i < CUDA_WAYS; i++)
        t->seconds[i] = seconds_usual(trials, i);
    t->way = way_best(t->seconds);
    tuned_note(all, t);
}

/* ---- trials ---- */

void cuda_trials_give_up(struct cuda_trials *t)
{
    t->decided = true;
    t->way = 0;
    moments_free(t);
}

int cuda_trials_way(struct cuda_stream *s, struct cuda_trials *t)
{
    struct cuda_tuning *all = &s->device->tuning;
    if (all->forced) {
        t->decided = true;
        t->way = all->forced_way;
    }
    if (!t->decided && t->n == CUDA_TRIALS)
        trials_decide(all, t);
    return t->decided ? t->way : t->n % CUDA_WAYS;
}

static bool trial_is_next(const struct cuda_trials *t)
{
    return !t->decided && t->n < CUDA_TRIALS;
}

void cuda_trial_begin(struct cuda_stream *s, struct cuda_trials *t)
{
    struct CUevent_st **moments = t->moments[t->n % CUDA_TRIALS];
    for (int k = 0; trial_is_next(t) && k < 2; k++)
        if (gpu_moment_create(&moments[k])) {
            moments[k] = NULL;
            cuda_trials_give_up(t);
        }
    if (trial_is_next(t))
        cuda_note(s, gpu_event_record(moments[0], s->stream));
}

void cuda_trial_end(struct cuda_stream *s, struct cuda_trials *t)
{
    if (!trial_is_next(t))
        return;
    cuda_note(s, gpu_event_record(t->moments[t->n][1], s->stream));
    t->n++;
}

/* ---- for others ---- */

/* HP_TEST_CUDA_DECODE, for tests and for bench/gpu/measure.c, says how all go: "way=N", or by so
 * many blocks that stay. */
void cuda_tuning_init(struct cuda_tuning *t)
{
    const char *said = getenv("HP_TEST_CUDA_DECODE");
    pthread_mutex_init(&t->lock, NULL);
    t->forced = said != NULL;
    if (said && strncmp(said, "way=", 4) == 0)
        t->forced_way = (int)(strtoul(said + 4, NULL, 10) % CUDA_WAYS);
    else if (said)
        t->forced_by = (uint32_t)strtoul(said, NULL, 10);
}

void cuda_tuning_fini(struct cuda_tuning *t)
{
    pthread_mutex_destroy(&t->lock);
}

void cuda_product_run(struct cuda_stream *s, struct gpu_product *p)
{
    const struct cuda_tuning *all = &s->device->tuning;
    int way = all->forced ? all->forced_way : s->keeps ? s->way : WAY_NONE_STAYS;
    uint32_t blocks = gpu_decode_blocks(p),
             most = (uint32_t)s->device->facts.multiprocessors * GPU_PERSISTENT_BLOCKS;
    p->persistent_blocks = all->forced_by                     ? all->forced_by
                           : way == WAY_STAY && blocks > most ? most
                                                              : 0;
    if (blocks && s->keeps)
        s->steps->trials.have_ways = true;
    gpu_product_run(s->stream, p);
}

/* "2110.0 1980.4* us": a step by each way. */
static void tuned_say(const struct cuda_tuned *t, char *out, size_t size)
{
    size_t begin = strlen(out), n = begin;
    for (int i = 0; i < CUDA_WAYS && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%.1f%s",
                              i       ? " "
                              : begin ? "; "
                                      : "",
                              t->seconds[i] * 1e6, i == t->way ? "*" : "");
    n += n < size ? (size_t)snprintf(out + n, size - n, " us") : 0;
    if (n >= size)
        out[begin] = '\0';
}

bool cuda_tuning_say(struct cuda_tuning *all, struct device_choice *out)
{
    *out = (struct device_choice){"products of one row", "", ""};
    pthread_mutex_lock(&all->lock);
    unsigned n = all->n, told = n < CUDA_TUNED ? n : CUDA_TUNED;
    for (unsigned i = 1; i <= told; i++)
        tuned_say(&all->of[(n - i) % CUDA_TUNED], out->why, sizeof out->why);
    if (n)
        snprintf(out->how, sizeof out->how, "%s", way_names[all->of[(n - 1) % CUDA_TUNED].way]);
    pthread_mutex_unlock(&all->lock);
    return n > 0;
}
