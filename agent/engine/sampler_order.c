#include "agent/engine/sampler_order.h"

#include <string.h>

/* The bits of a weight, from the highest: 12, 11 and 9. None is above 1, whose highest 12 bits are
 * 1016. */
enum { TOP_SHIFT = 20, PART_SHIFT = 9, PART_MASK = 0x7ff, REST_MASK = 0x1ff };

/* What is looked for: a mass, or a rank. */
struct aim {
    double mass;
    uint32_t rank; /* 0: a mass */
};

static uint32_t bits_of(float w)
{
    uint32_t bits;
    memcpy(&bits, &w, sizeof bits);
    return bits;
}

static float weight_of(uint32_t bits)
{
    float w;
    memcpy(&w, &bits, sizeof w);
    return w;
}

/* Four tables, so that neighbours, which often fall into one bucket, do not wait for each other. */
static void top_sums(struct sampler_order *o)
{
    enum { TABLES = 4, USED = 1024 };
    double sums[TABLES][USED] = {{0}};
    size_t i = 0;
    for (; i + TABLES <= o->n; i += TABLES)
        for (size_t t = 0; t < TABLES; t++)
            sums[t][bits_of(o->weights[i + t]) >> TOP_SHIFT] += (double)o->weights[i + t];
    for (; i < o->n; i++)
        sums[0][bits_of(o->weights[i]) >> TOP_SHIFT] += (double)o->weights[i];
    for (int b = 0; b < USED; b++)
        o->top.sum[b] = sums[0][b] + sums[1][b] + sums[2][b] + sums[3][b];
}

static void top_counts(struct sampler_order *o)
{
    for (size_t i = 0; i < o->n; i++)
        o->top.count[bits_of(o->weights[i]) >> TOP_SHIFT] += o->weights[i] > 0;
}

double sampler_order_begin(struct sampler_order *o, bool ranked)
{
    double all = 0;
    memset(&o->top, 0, sizeof o->top);
    top_sums(o);
    if (ranked)
        top_counts(o);
    for (int b = 0; b < ORDER_BUCKETS; b++)
        all += o->top.sum[b];
    return all;
}

/* The bucket in which the aim lies, from the highest down; *before and *rank grow by what lies
 * above it. */
static int bucket_find(const struct sampler_order_histogram *h, const struct aim *aim,
                       double *before, uint32_t *rank)
{
    for (int b = ORDER_BUCKETS - 1; b >= 0; b--) {
        bool here = aim->rank ? h->count[b] && *rank + h->count[b] >= aim->rank
                              : h->sum[b] > 0 && *before + h->sum[b] > aim->mass;
        if (here)
            return b;
        *before += h->sum[b];
        *rank += h->count[b];
    }
    return -1;
}

static void part_count(struct sampler_order *o, size_t n, int shift, uint32_t mask)
{
    memset(&o->part, 0, sizeof o->part);
    for (size_t i = 0; i < n; i++) {
        uint32_t b = bits_of(o->scratch[i].weight) >> shift & mask;
        o->part.sum[b] += (double)o->scratch[i].weight;
        o->part.count[b]++;
    }
}

static size_t part_keep(struct sampler_order *o, size_t n, int shift, uint32_t mask,
                        uint32_t bucket)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if ((bits_of(o->scratch[i].weight) >> shift & mask) == bucket)
            o->scratch[kept++] = o->scratch[i];
    return kept;
}

/* Among equal weights, which are in order of their tokens. */
static bool equal_find(const struct sampler_order *o, size_t n, const struct aim *aim,
                       double before, uint32_t rank, struct sampler_order_cut *out)
{
    for (size_t i = 0; i < n; i++) {
        double after = before + (double)o->scratch[i].weight;
        if (aim->rank ? ++rank == aim->rank : after > aim->mass) {
            *out = (struct sampler_order_cut){o->scratch[i], before, after};
            return true;
        }
        before = after;
    }
    return false;
}

static bool cut_find(struct sampler_order *o, const struct aim *aim, struct sampler_order_cut *out)
{
    static const struct {
        int shift;
        uint32_t mask;
    } levels[] = {{PART_SHIFT, PART_MASK}, {0, REST_MASK}};
    double before = 0;
    uint32_t rank = 0;
    int b = bucket_find(&o->top, aim, &before, &rank);
    if (b < 0)
        return false;
    uint32_t low = (uint32_t)b << TOP_SHIFT;
    size_t n = o->kernels->gather(o->weights, o->n, weight_of(low ? low : 1),
                                  weight_of(low | ((1u << TOP_SHIFT) - 1)), o->scratch);
    for (int l = 0; l < 2; l++) {
        part_count(o, n, levels[l].shift, levels[l].mask);
        b = bucket_find(&o->part, aim, &before, &rank);
        if (b < 0)
            return false;
        n = part_keep(o, n, levels[l].shift, levels[l].mask, (uint32_t)b);
    }
    return equal_find(o, n, aim, before, rank, out);
}

bool sampler_order_find_mass(struct sampler_order *o, double target, struct sampler_order_cut *out)
{
    return cut_find(o, &(struct aim){.mass = target}, out);
}
bool sampler_order_find_rank(struct sampler_order *o, uint32_t k, struct sampler_order_cut *out)
{
    return cut_find(o, &(struct aim){.rank = k}, out);
}
