#include "agent/backend/cpu/amx.h"

#include <cpuid.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/env.h"

/* ---- may they be used? ---- */

enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* arch_prctl: ARCH_REQ_XCOMP_PERM, XTILEDATA */

/* Of CPUID and of what the system saves when it switches threads. */
static bool cpu_has_tiles(void)
{
    const unsigned tile = 1u << 24, int8 = 1u << 25, saves = 1u << 27, states = 3u << 17;
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & saves) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (tile | int8)) != (tile | int8))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & states) == states;
}

static bool usable;

static void usable_find(void)
{
    usable = cpu_has_tiles() && syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

bool amx_is_usable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, usable_find);
    return usable;
}

/* ---- do they pay? ---- */

/* Panels: of as many outputs as there are inputs. */
enum { INPUTS = 1024, RUNS = INPUTS / BLOCK_RUN, PANELS = INPUTS / 32, TRIES = 10 };

/* A panel and some tiles of rows as they stay in a core's cache. */
struct gain_case {
    const struct block_kernels *k;
    enum dtype t;
    struct block_tile tiles[BLOCK_JOIN_MOST]; /* all are the same one */
    size_t group_step;
    uint8_t *group, *panel;
    struct block_joined joined;
    float *out;
};

static void gain_case_free(struct gain_case *c)
{
    free(c->tiles[0].runs);
    free(c->tiles[0].apart);
    free(c->group);
    free(c->panel);
    free(c->joined.runs);
    free(c->joined.apart);
    free(c->out);
}

static bool gain_case_make(const struct block_kernels *k, enum dtype t, struct gain_case *out)
{
    const struct dtype_info *info = dtype_info(t);
    size_t groups = k->panel_outputs / k->lanes, side = RUNS * k->panel_bytes(t),
           group_bytes = INPUTS / info->block_elements * info->block_bytes * k->lanes;
    float x[INPUTS];
    *out = (struct gain_case){
        .k = k,
        .t = t,
        .tiles[0] = {.runs = calloc(RUNS, sizeof *out->tiles->runs),
                     .apart = calloc(block_most_apart_of(BLOCK_TILE, INPUTS, BLOCK_APART) + 1,
                                     sizeof *out->tiles->apart),
                     .n_runs = RUNS,
                     .rows = BLOCK_TILE},
        .group_step = k->joined_lie[t] ? group_bytes : side,
        .group = calloc(groups, group_bytes),
        .panel = malloc(groups * side),
        .joined = {.n = BLOCK_JOIN_MOST,
                   .runs = aligned_alloc(BLOCK_LINE, RUNS * k->joined_bytes + BLOCK_LINE),
                   .apart = calloc(block_joined_most_apart(INPUTS, INPUTS) + 1,
                                   sizeof *out->joined.apart)},
        .out = malloc(BLOCK_JOIN_MOST * BLOCK_TILE * k->panel_outputs * sizeof *out->out)};
    if (!out->tiles[0].runs || !out->tiles[0].apart || !out->group || !out->panel ||
        !out->joined.runs || !out->joined.apart || !out->out)
        return false;
    for (int i = 0; i < INPUTS; i++)
        x[i] = (float)(i % 17) * 0.06f - 0.5f;
    k->tile_make(t, x, 0, &out->tiles[0]); /* all rows are this one */
    for (int i = 1; i < BLOCK_JOIN_MOST; i++)
        out->tiles[i] = out->tiles[0];
    for (size_t g = 0; g < groups; g++)
        k->panel_make[t](out->group + g * group_bytes, INPUTS, out->panel + g * side);
    return true;
}

/* Tiles and a panel once; `joins`: the tiles are joined before. */
static void products_make(struct gain_case *c, bool joins)
{
    const struct block_kernels *k = c->k;
    c->joined.tiles = c->tiles;
    if (!k->joined_dot[c->t]) {
        for (size_t i = 0; i < BLOCK_JOIN_MOST; i++)
            k->panel_dot[c->t](&c->tiles[i], c->panel, false,
                               c->out + i * BLOCK_TILE * k->panel_outputs, k->panel_outputs);
        return;
    }
    if (joins)
        k->join(&c->joined);
    k->joined_dot[c->t](&c->joined, k->joined_lie[c->t] ? c->group : c->panel, c->group_step, false,
                        c->out, k->panel_outputs);
}

/* Of all panels that joined tiles meet. */
static double products_seconds(struct gain_case *c)
{
    uint64_t from = env_now_ns(&env_real);
    for (int i = 0; i < PANELS; i++)
        products_make(c, i == 0);
    return (double)(env_now_ns(&env_real) - from) * 1e-9 / (double)c->k->panel_outputs;
}

/* By turns, the least of a few: what others take of the box only adds. */
static bool gain_add(const struct block_kernels *const tables[2], enum dtype t, double seconds[2])
{
    struct gain_case cases[2] = {0};
    double least[2] = {INFINITY, INFINITY};
    bool good = gain_case_make(tables[0], t, &cases[0]) && gain_case_make(tables[1], t, &cases[1]);
    for (int i = 0; good && i < 2 * TRIES; i++)
        least[i % 2] = fmin(least[i % 2], products_seconds(&cases[i % 2]));
    for (int i = 0; i < 2; i++) {
        seconds[i] += least[i];
        gain_case_free(&cases[i]);
    }
    return good;
}

double amx_blocks_gain(const struct block_kernels *own, const struct block_kernels *others)
{
    static const enum dtype formats[] = {DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K};
    const struct block_kernels *const tables[2] = {own, others};
    double seconds[2] = {0, 0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!gain_add(tables, formats[i], seconds))
            return 0;
    return seconds[1] / seconds[0];
}

static double gain;

static void gain_find(void)
{
    gain = amx_blocks_gain(&blocks_amx, &blocks_avx512);
}

double amx_gain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, gain_find);
    return gain;
}
