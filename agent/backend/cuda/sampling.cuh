/* What a block that samples from a row knows, counts of its threads, and where a mass of weights is
 * reached in their order. A candidate is the bits of a weight above and the token turned over
 * below, as the host has it (agent/engine/sampler_kernels.h). */
#ifndef HP_AGENT_BACKEND_CUDA_SAMPLING_CUH
#define HP_AGENT_BACKEND_CUDA_SAMPLING_CUH

#include "agent/backend/cuda/cuda.cuh"
#include "agent/backend/cuda/kernels.h"

enum {
    THREADS = 512,
    WARPS = THREADS / WARP,
    BUCKETS = 1024, /* of 10 bits of a weight, but for the first, which are the 12 highest */
    BUCKETS_EACH = BUCKETS / WARP,
    MANTISSA_BITS = 23,
    TALLY_BITS = 41,
    SELECT_SMALL = 64, /* as the host's selection has it */
    LIST = BUCKETS,    /* candidates that one thread orders quickly */
    LIST_MOST = 8192   /* and at all */
};
#define SAMPLE_DOUBT 1e-10   /* of all mass, as the host has it */
#define WEIGHT_DOUBT 0x1p-50 /* more than the exponentials of two libraries differ by */

/* The first with which the mass exceeds something, or the one of a rank. */
struct order_fall {
    bool found;
    uint32_t bits, token;
    double before, after;
};
struct sample_block {
    gpu_sample_ask ask;
    unsigned long long tally[BUCKETS]; /* or a list of candidates */
    double top_mass[BUCKETS], part_mass[BUCKETS];
    uint32_t top_count[BUCKETS], part_count[BUCKETS];
    double group_mass[WARP], sums[WARPS];
    uint32_t group_count[WARP], counts[2][WARPS];
    float greatests[WARPS];
    order_fall fall;
    int bucket; /* that a walk has found; -1: none */
    uint32_t rank, token, doubts;
    double before;
};

static __device__ float candidate_weight(uint64_t c)
{
    return __uint_as_float((unsigned)(c >> 32));
}

/* ---- of all threads; another call comes after a barrier ---- */

static __device__ double block_mass(sample_block *b, double x)
{
    double sum = 0;
    for (int by = WARP / 2; by; by /= 2)
        x += __shfl_xor_sync((unsigned)ALL_LANES, x, by);
    if (threadIdx.x % WARP == 0)
        b->sums[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        sum += b->sums[i];
    __syncthreads();
    return sum;
}

static __device__ uint32_t block_count(sample_block *b, uint32_t x)
{
    uint32_t sum = 0;
    for (int by = WARP / 2; by; by /= 2)
        x += __shfl_xor_sync((unsigned)ALL_LANES, x, by);
    if (threadIdx.x % WARP == 0)
        b->counts[0][threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        sum += b->counts[0][i];
    __syncthreads();
    return sum;
}

static __device__ float block_greatest(sample_block *b, float x)
{
    for (int by = WARP / 2; by; by /= 2) {
        float other = __shfl_xor_sync((unsigned)ALL_LANES, x, by);
        x = other > x ? other : x;
    }
    if (threadIdx.x % WARP == 0)
        b->greatests[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        x = b->greatests[i] > x ? b->greatests[i] : x;
    __syncthreads();
    return x;
}

/* Of a tile of THREADS: how many of those that vote come before this thread, and how many vote in
 * all. Tiles take turns with two rows of counts, so that one barrier a tile is enough. */
static __device__ uint32_t tile_place(sample_block *b, uint32_t tile, bool vote, uint32_t *all)
{
    unsigned votes = __ballot_sync((unsigned)ALL_LANES, vote), lane = threadIdx.x % WARP,
             warp = threadIdx.x / WARP;
    uint32_t *counts = b->counts[tile % 2], before = 0, sum = 0;
    if (lane == 0)
        counts[warp] = (uint32_t)__popc(votes);
    __syncthreads();
    for (unsigned i = 0; i < WARPS; i++) {
        before += i < warp ? counts[i] : 0;
        sum += counts[i];
    }
    *all = sum;
    return before + (uint32_t)__popc(votes & ((1u << lane) - 1));
}

/* Those that come before the pivot move to the front and keep their order. */
static __device__ uint32_t candidates_keep(sample_block *b, uint64_t *c, uint32_t n, uint64_t pivot)
{
    uint32_t kept = 0, all;
    for (uint32_t tile = 0; tile * THREADS < n; tile++) {
        uint32_t i = tile * THREADS + threadIdx.x;
        uint64_t one = i < n ? c[i] : 0;
        bool vote = i < n && one > pivot;
        uint32_t place = tile_place(b, tile, vote, &all);
        if (vote)
            c[kept + place] = one;
        kept += all;
    }
    __syncthreads();
    return kept;
}

static __device__ uint32_t candidates_count(sample_block *b, const uint64_t *c, uint32_t n,
                                            uint64_t pivot)
{
    uint32_t count = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        count += c[i] > pivot;
    return block_count(b, count);
}

/* ---- the order of weights ---- */

/* All of a bucket have one exponent: their mass is a sum of integers, and their number lies above
 * it. `bits` are those of a weight in the first bucket. */
static __device__ void tallies_take(sample_block *b, uint32_t bits, uint32_t step, double *mass,
                                    uint32_t *number)
{
    for (uint32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
        unsigned long long tally = b->tally[i], count = tally >> TALLY_BITS,
                           mantissas = tally - (count << TALLY_BITS);
        uint32_t exponent = (bits + i * step) >> MANTISSA_BITS;
        if (exponent)
            mantissas += count << MANTISSA_BITS;
        float unit = __uint_as_float((exponent ? exponent : 1) << MANTISSA_BITS);
        mass[BUCKETS - 1 - i] = (double)mantissas * ((double)unit * 0x1p-23);
        number[BUCKETS - 1 - i] = (uint32_t)count;
    }
    __syncthreads();
}

/* Those that share the bits above `shift` + 10 with `prefix`, by the 10 bits there; all of them by
 * their highest where shift is 20. The heaviest bucket comes first. */
static __device__ void weights_tally(sample_block *b, const uint64_t *c, uint32_t n, int shift,
                                     uint32_t prefix, double *mass, uint32_t *number)
{
    for (uint32_t i = threadIdx.x; i < BUCKETS; i += THREADS)
        b->tally[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t bits = (uint32_t)(c[i] >> 32);
        if (bits && (shift == 20 || bits >> (shift + 10) == prefix))
            atomicAdd(&b->tally[bits >> shift & (BUCKETS - 1)],
                      ((unsigned long long)1 << TALLY_BITS) + (bits & ((1u << MANTISSA_BITS) - 1)));
    }
    __syncthreads();
    tallies_take(b, shift == 20 ? 0 : prefix << (shift + 10), 1u << shift, mass, number);
}

/* A rank that is looked for, or where that is 0 a mass. */
struct order_aim {
    double mass;
    uint32_t rank;
};

static __device__ bool aim_is_here(const order_aim &aim, double before, uint32_t rank, double mass,
                                   uint32_t count)
{
    return count && (aim.rank ? rank + count >= aim.rank : before + mass > aim.mass);
}

/* The bucket in which the aim lies; b->before and b->rank grow by what comes before it. */
static __device__ void buckets_walk(sample_block *b, const double *mass, const uint32_t *number,
                                    const order_aim &aim)
{
    if (threadIdx.x < WARP) {
        double sum = 0;
        uint32_t count = 0, first = threadIdx.x * BUCKETS_EACH;
        for (uint32_t i = first; i < first + BUCKETS_EACH; i++) {
            sum += mass[i];
            count += number[i];
        }
        b->group_mass[threadIdx.x] = sum;
        b->group_count[threadIdx.x] = count;
        __syncwarp();
    }
    if (threadIdx.x == 0) {
        double before = b->before;
        uint32_t rank = b->rank;
        int at = -1;
        for (int g = 0; g < WARP && at < 0; g++) {
            bool here = aim_is_here(aim, before, rank, b->group_mass[g], b->group_count[g]);
            for (int i = g * BUCKETS_EACH; i < (g + 1) * BUCKETS_EACH && at < 0 && here; i++) {
                if (aim_is_here(aim, before, rank, mass[i], number[i])) {
                    at = i;
                } else {
                    before += mass[i];
                    rank += number[i];
                }
            }
            if (!here) {
                before += b->group_mass[g];
                rank += b->group_count[g];
            }
        }
        b->before = before;
        b->rank = rank;
        b->bucket = at < 0 ? -1 : BUCKETS - 1 - at;
    }
    __syncthreads();
}

/* The token with the so manieth of equal weights. */
static __device__ void equals_find(sample_block *b, const uint64_t *c, uint32_t n, uint32_t bits,
                                   uint32_t nth)
{
    uint32_t seen = 0, all;
    for (uint32_t tile = 0; tile * THREADS < n && seen <= nth; tile++) {
        uint32_t i = tile * THREADS + threadIdx.x;
        bool vote = i < n && (uint32_t)(c[i] >> 32) == bits;
        uint32_t place = tile_place(b, tile, vote, &all);
        if (vote && seen + place == nth)
            b->fall.token = i;
        seen += all;
    }
    __syncthreads();
}

/* Looks at what weights_tally has found of the highest bits, and goes on from there; the answer is
 * b->fall. */
static __device__ void order_find(sample_block *b, const uint64_t *c, uint32_t n,
                                  const order_aim &aim)
{
    uint32_t bits = 0;
    if (threadIdx.x == 0) {
        b->before = 0;
        b->rank = 0;
        b->fall.found = false;
    }
    __syncthreads();
    for (int shift = 20; shift >= 0; shift -= 10) {
        bool top = shift == 20;
        if (!top)
            weights_tally(b, c, n, shift, bits, b->part_mass, b->part_count);
        buckets_walk(b, top ? b->top_mass : b->part_mass, top ? b->top_count : b->part_count, aim);
        int bucket = b->bucket;
        if (bucket < 0)
            return;
        bits = bits << 10 | (uint32_t)bucket;
    }
    double weight = (double)__uint_as_float(bits), before = b->before;
    uint32_t nth = aim.rank ? aim.rank - b->rank - 1 : (uint32_t)((aim.mass - before) / weight),
             equals = b->part_count[BUCKETS - 1 - (bits & (BUCKETS - 1))];
    nth = nth < equals ? nth : equals - 1;
    equals_find(b, c, n, bits, nth);
    if (threadIdx.x == 0) {
        b->fall.found = true;
        b->fall.bits = bits;
        b->fall.before = before + nth * weight;
        b->fall.after = before + (nth + 1) * weight;
    }
    __syncthreads();
}

static __device__ bool fall_is_certain(double target, double before, double after, double doubt)
{
    return (before <= 0 || target - before > doubt) && after - target > doubt;
}

static __device__ double mass_at_least(sample_block *b, const uint64_t *c, uint32_t n, float least)
{
    double mass = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        if (candidate_weight(c[i]) >= least)
            mass += (double)candidate_weight(c[i]);
    return block_mass(b, mass);
}

#endif
