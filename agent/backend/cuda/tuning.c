/* Products of one row by quantised weights go one of several ways, which add up the same numbers in
 * the same order: by blocks that go when their own outputs are done, or by some or more that stay
 * until all is. Which is fastest depends on the GPU and on the shape, so each device finds out: the
 * first products of a shape go each way in turn, each between two moments of the GPU's clock, and
 * from then on all go the one that took least. Layers have weights of their own, so that weights
 * come from memory as they always do, and nothing is computed that nobody wants. Whatever cannot be
 * measured, and what is not faster by TUNING_GAIN, goes by blocks that do not stay. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

static const double TUNING_GAIN = 0.01;
/* Blocks of a multiprocessor that stay, by ways. */
static const uint32_t ways[CUDA_WAYS] = {0, GPU_PERSISTENT_BLOCKS, GPU_PERSISTENT_BLOCKS + 2};

/* ---- what was measured ---- */

static int seconds_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean of the faster half: a kernel's first launch, and what another stream does beside it, are no
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

static void moments_free(struct cuda_tuned *t)
{
    for (int i = 0; i < CUDA_TRIALS; i++)
        for (int k = 0; k < 2; k++) {
            if (t->moments[i][k])
                gpu_event_destroy(t->moments[i][k]);
            t->moments[i][k] = NULL;
        }
}

/* Without having measured. */
static void tuned_give_up(struct cuda_tuned *t)
{
    t->decided = true;
    moments_free(t);
}

/* 0, GPU_BUSY: some trials are still to come or under way, or CUDA's error. */
static int trials_read(const struct cuda_tuned *t, double *seconds)
{
    int rc = t->n == CUDA_TRIALS ? 0 : GPU_BUSY;
    for (int i = 0; !rc && i < CUDA_TRIALS; i++)
        rc = gpu_moments_between(t->moments[i][0], t->moments[i][1], &seconds[i]);
    return rc;
}

static void tuned_decide(struct cuda_tuned *t)
{
    double trials[CUDA_TRIALS];
    int rc = trials_read(t, trials);
    if (rc == GPU_BUSY)
        return;
    for (int i = 0; !rc && i < CUDA_WAYS; i++)
        t->seconds[i] = seconds_usual(trials, i);
    t->way = rc ? 0 : way_best(t->seconds);
    tuned_give_up(t);
}

/* ---- shapes ---- */

static struct cuda_shape shape_of(const struct gpu_product *p)
{
    struct cuda_shape s = {p->dtype, p->rows, p->inputs, {p->outputs}};
    for (uint32_t i = 0; i < p->n_more; i++)
        s.outputs[1 + i] = p->more[i].outputs;
    return s;
}

/* NULL: there are too many. */
static struct cuda_tuned *tuned_find(struct cuda_tuning *all, const struct gpu_product *p)
{
    const struct cuda_shape shape = shape_of(p);
    for (int i = 0; i < all->n; i++)
        if (memcmp(&all->of[i].shape, &shape, sizeof shape) == 0)
            return &all->of[i];
    if (all->n == CUDA_TUNED)
        return NULL;
    all->of[all->n] = (struct cuda_tuned){.shape = shape};
    return &all->of[all->n++];
}

/* ---- trials ---- */

/* The next trial's moments, of which the first is put on the stream. False: there are none. */
static bool trial_begin(struct cuda_stream *s, struct cuda_tuned *t)
{
    struct CUevent_st **moments = t->moments[t->n];
    for (int k = 0; k < 2; k++)
        if (gpu_moment_create(&moments[k])) {
            moments[k] = NULL;
            tuned_give_up(t);
            return false;
        }
    cuda_note(s, gpu_event_record(moments[0], s->stream));
    return true;
}

static void trial_end(struct cuda_stream *s, struct cuda_tuned *t)
{
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
    for (int i = 0; i < t->n; i++)
        moments_free(&t->of[i]);
    pthread_mutex_destroy(&t->lock);
}

/* How the shape's products go is to be found out, and this one's trial begins. */
static bool tuned_try(struct cuda_stream *s, struct cuda_tuned *t)
{
    if (s->steps)
        s->steps->undecided = true;
    return t->n < CUDA_TRIALS && trial_begin(s, t);
}

/* Says how many of its blocks stay. The shape's trials, of which it is one; NULL: it is none. */
static struct cuda_tuned *product_tune(struct cuda_stream *s, struct gpu_product *p)
{
    struct cuda_tuning *all = &s->device->tuning;
    uint32_t blocks = gpu_decode_blocks(p), n = (uint32_t)s->device->facts.multiprocessors;
    bool may = blocks > n * ways[1] && !all->forced;
    struct cuda_tuned *t = may ? tuned_find(all, p) : NULL;
    if (blocks && all->forced)
        p->persistent_blocks = all->forced_by ? all->forced_by : n * ways[all->forced_way];
    if (t && !t->decided && !s->keeps)
        tuned_decide(t);
    bool tried = t && !t->decided && !s->keeps && tuned_try(s, t);
    if (t)
        p->persistent_blocks = n * ways[tried ? t->n % CUDA_WAYS : t->way];
    return tried ? t : NULL;
}

void cuda_product_run(struct cuda_stream *s, struct gpu_product *p)
{
    struct cuda_tuning *all = &s->device->tuning;
    pthread_mutex_lock(&all->lock);
    struct cuda_tuned *tried = product_tune(s, p);
    gpu_product_run(s->stream, p);
    if (tried)
        trial_end(s, tried);
    pthread_mutex_unlock(&all->lock);
}

/* "Q4_K 4096 to 11008 and 11008: 19.6 17.1 17.4 us; " behind what is there, where there is room. */
static void tuned_say(const struct cuda_tuned *t, char *out, size_t size)
{
    size_t begin = strlen(out), n = begin;
    n += (size_t)snprintf(out + n, size - n, "%s%s %u to %u", n ? "; " : "",
                          dtype_info((enum dtype)t->shape.dtype)->name, t->shape.inputs,
                          t->shape.outputs[0]);
    for (int i = 1; i <= GPU_PRODUCT_MORE && t->shape.outputs[i] && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, " and %u", t->shape.outputs[i]);
    for (int i = 0; i < CUDA_WAYS && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s %.1f%s", i ? "" : ":", t->seconds[i] * 1e6,
                              i == t->way ? "*" : "");
    n += n < size ? (size_t)snprintf(out + n, size - n, " us") : 0;
    if (n >= size)
        out[begin] = '\0';
}

bool cuda_tuning_say(struct cuda_tuning *all, struct device_choice *out)
{
    int measured = 0, stay = 0;
    *out = (struct device_choice){"products of one row", "", ""};
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < all->n; i++) {
        const struct cuda_tuned *t = &all->of[i];
        if (!t->decided || t->seconds[0] <= 0)
            continue;
        measured++;
        stay += t->way > 0;
        tuned_say(t, out->why, sizeof out->why);
    }
    pthread_mutex_unlock(&all->lock);
    snprintf(out->how, sizeof out->how, "blocks stay for %d of %d shapes", stay, measured);
    return measured > 0;
}
