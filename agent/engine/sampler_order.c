#include "agent/engine/sampler_order.h"

#include <string.h>

/* The bits of a weight, from the highest: 12, then 8, 8 and 4. None is above 1, whose highest 12
 * bits are 1016. */
enum {
    TOP_SHIFT = 20,
    TABLES = 4, /* neighbours often fall into one bucket and must not wait for each other */
    MANTISSA_BITS = 23,
    TALLY_BITS = 41,
    TALLY_MOST = 1 << (TALLY_BITS - MANTISSA_BITS) /* as many weights fit one bucket of a tally */
};

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

/* All of a bucket have one exponent, so that their mass is a sum of integers, without rounding. A
 * tally has that of the mantissas in its low bits and the number of weights above. */
static uint64_t tally_of(uint32_t bits)
{
    return (UINT64_C(1) << TALLY_BITS) + (bits & ((1u << MANTISSA_BITS) - 1));
}

/* Adds tallies to sums and counts and clears them. `bits` are those of a weight in the first
 * bucket, `step` what lies between neighbours. */
static void tallies_take(struct sampler_order_histogram *h, int n_buckets, uint32_t bits,
                         uint32_t step)
{
    for (int b = 0; b < n_buckets; b++, bits += step) {
        uint64_t tally = 0;
        uint32_t exponent = bits >> MANTISSA_BITS;
        for (int t = 0; t < TABLES; t++) {
            tally += h->tally[t][b];
            h->tally[t][b] = 0;
        }
        uint64_t count = tally >> TALLY_BITS, mantissas = tally - (count << TALLY_BITS);
        if (exponent)
            mantissas += count << MANTISSA_BITS;
        double unit = (double)weight_of((exponent ? exponent : 1) << MANTISSA_BITS) * 0x1p-23;
        h->sum[b] += (double)mantissas * unit;
        h->count[b] += (uint32_t)count;
    }
}

static inline void top_tally_one(struct sampler_order_histogram *h, int table, float w)
{
    uint32_t bits = bits_of(w);
    h->tally[table][bits >> TOP_SHIFT] += tally_of(bits);
}

/* Zeros are counted too, in the first bucket. */
static void top_tally(struct sampler_order_histogram *h, const float *w, size_t n)
{
    size_t i = 0;
    for (; i + TABLES <= n; i += TABLES) {
        top_tally_one(h, 0, w[i]);
        top_tally_one(h, 1, w[i + 1]);
        top_tally_one(h, 2, w[i + 2]);
        top_tally_one(h, 3, w[i + 3]);
    }
    for (; i < n; i++)
        top_tally_one(h, 0, w[i]);
}

/* Tallies are clear between counts. */
static void histogram_clear(struct sampler_order_histogram *h, size_t n_buckets)
{
    memset(h->sum, 0, n_buckets * sizeof *h->sum);
    memset(h->count, 0, n_buckets * sizeof *h->count);
}

double sampler_order_begin(struct sampler_order *o)
{
    double all = 0;
    histogram_clear(&o->top, ORDER_BUCKETS);
    for (size_t i = 0; i < o->n; i += TALLY_MOST) {
        top_tally(&o->top, o->weights + i, o->n - i < TALLY_MOST ? o->n - i : TALLY_MOST);
        tallies_take(&o->top, ORDER_BUCKETS, 0, 1u << TOP_SHIFT);
    }
    for (int b = 0; b < ORDER_BUCKETS; b++)
        all += o->top.sum[b];
    return all;
}

/* The bucket in which the aim lies, from the highest down; *before and *rank grow by what lies
 * above it. */
static int bucket_find(const struct sampler_order_histogram *h, int n_buckets,
                       const struct aim *aim, double *before, uint32_t *rank)
{
    for (int b = n_buckets - 1; b >= 0; b--) {
        bool here = aim->rank ? h->sum[b] > 0 && *rank + h->count[b] >= aim->rank
                              : h->sum[b] > 0 && *before + h->sum[b] > aim->mass;
        if (here)
            return b;
        *before += h->sum[b];
        *rank += h->count[b];
    }
    return -1;
}

struct level {
    int shift;
    uint32_t mask;
};

/* The n candidates of scratch, which share the bits above those of the level. */
static void part_count(struct sampler_order *o, size_t n, const struct level *l)
{
    uint32_t shared =
        (uint32_t)(o->scratch[0] >> 32) & ~((l->mask << l->shift) | ((1u << l->shift) - 1));
    histogram_clear(&o->part, l->mask + 1);
    for (size_t i = 0; i < n;) {
        for (size_t end = n - i < TALLY_MOST ? n : i + TALLY_MOST; i < end; i++) {
            uint32_t bits = (uint32_t)(o->scratch[i] >> 32);
            o->part.tally[i % TABLES][bits >> l->shift & l->mask] += tally_of(bits);
        }
        tallies_take(&o->part, (int)l->mask + 1, shared, 1u << l->shift);
    }
}

static size_t part_keep(struct sampler_order *o, size_t n, const struct level *l, uint32_t bucket)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if ((o->scratch[i] >> 32 >> l->shift & l->mask) == bucket)
            o->scratch[kept++] = o->scratch[i];
    return kept;
}

/* Among equal weights, which are in order of their tokens. */
static bool equal_find(const struct sampler_order *o, size_t n, const struct aim *aim,
                       double before, uint32_t rank, struct sampler_order_cut *out)
{
    for (size_t i = 0; i < n; i++) {
        float weight = sampler_candidate_weight(o->scratch[i]);
        double after = before + (double)weight;
        if (aim->rank ? ++rank == aim->rank : after > aim->mass) {
            *out = (struct sampler_order_cut){weight, sampler_candidate_token(o->scratch[i]),
                                              before, after};
            return true;
        }
        before = after;
    }
    return false;
}

static bool cut_find(struct sampler_order *o, const struct aim *aim, struct sampler_order_cut *out)
{
    enum { LEVELS = 3 };
    static const struct level levels[LEVELS] = {{12, 0xff}, {4, 0xff}, {0, 0xf}};
    double before = 0;
    uint32_t rank = 0;
    int b = bucket_find(&o->top, ORDER_BUCKETS, aim, &before, &rank);
    if (b < 0)
        return false;
    uint32_t low = (uint32_t)b << TOP_SHIFT;
    size_t n = o->kernels->gather(o->weights, o->weights, o->n, weight_of(low ? low : 1),
                                  weight_of(low | ((1u << TOP_SHIFT) - 1)), 0, o->scratch);
    for (int l = 0; l < LEVELS; l++) {
        part_count(o, n, &levels[l]);
        b = bucket_find(&o->part, (int)levels[l].mask + 1, aim, &before, &rank);
        if (b < 0)
            return false;
        n = part_keep(o, n, &levels[l], (uint32_t)b);
    }
    return equal_find(o, n, aim, before, rank, out);
}

bool sampler_order_bound_mass(const struct sampler_order *o, double target, double doubt,
                              float *low, float *high)
{
    double before = 0;
    uint32_t rank = 0;
    int b = bucket_find(&o->top, ORDER_BUCKETS, &(struct aim){.mass = target}, &before, &rank);
    if (b < 0 || (before > 0 && target - before <= doubt) ||
        before + o->top.sum[b] - target <= doubt)
        return false;
    *low = weight_of((uint32_t)b << TOP_SHIFT);
    *high = weight_of(((uint32_t)b << TOP_SHIFT) | ((1u << TOP_SHIFT) - 1));
    return true;
}

bool sampler_order_find_mass(struct sampler_order *o, double target, struct sampler_order_cut *out)
{
    return cut_find(o, &(struct aim){.mass = target}, out);
}
bool sampler_order_find_rank(struct sampler_order *o, uint32_t k, struct sampler_order_cut *out)
{
    return cut_find(o, &(struct aim){.rank = k}, out);
}
