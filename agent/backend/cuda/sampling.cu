/* Tokens from rows of logits, as the host's sampler picks them (agent/engine/sampler.c): a block a
 * row. Weights are the host's to the bit, or the row is in doubt; masses are added in another order
 * than the host's, and a draw or a cut that this could have turned leaves the row in doubt, too.
 * What is in doubt goes to the host, which picks from it. */
#include "agent/backend/cuda/sampling.cuh"

/* ---- logits ---- */

/* The room has the bits of each logit: penalties and bias, rounded as the host rounds. */
static __device__ void logits_change(const gpu_sample_ask *a, const gpu_sample_change *changes,
                                     uint64_t *c)
{
    changes += a->first;
    for (uint32_t i = threadIdx.x; i < a->n_seen; i += THREADS) {
        float x = __uint_as_float((unsigned)c[changes[i].token]);
        if (a->repetition != 1)
            x = x > 0 ? __fdiv_rn(x, a->repetition) : __fmul_rn(x, a->repetition);
        c[changes[i].token] = __float_as_uint(__fsub_rn(x, changes[i].amount));
    }
    __syncthreads();
    changes += a->n_seen;
    for (uint32_t i = threadIdx.x; i < a->n_added; i += THREADS) {
        float x = __uint_as_float((unsigned)c[changes[i].token]);
        c[changes[i].token] = __float_as_uint(__fadd_rn(x, changes[i].amount));
    }
    __syncthreads();
    changes += a->n_added;
    for (uint32_t i = threadIdx.x; i < a->n_ruled_out; i += THREADS)
        c[changes[i].token] = __float_as_uint(-INFINITY);
    __syncthreads();
}

static __device__ float logits_greatest(sample_block *b, const uint64_t *c, uint32_t n)
{
    float most = -INFINITY;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        float x = __uint_as_float((unsigned)c[i]);
        most = x > most ? x : most;
    }
    return block_greatest(b, most);
}

/* The first of the greatest; the last of all where none is a number. */
static __device__ void token_heaviest(sample_block *b, const uint64_t *c, uint32_t n, float most)
{
    for (uint32_t i = threadIdx.x, at = n; i < n && at == n; i += THREADS) {
        float x = __uint_as_float((unsigned)c[i]);
        at = x <= most && x >= most ? i : n;
        if (at < n)
            atomicMin(&b->token, at);
    }
    __syncthreads();
    if (threadIdx.x == 0 && b->token == UINT32_MAX)
        b->token = n - 1;
}

/* Logits become candidates; 0 stands for those that weigh nothing even in double. */
static __device__ void candidates_make(sample_block *b, uint64_t *c, uint32_t n, float most)
{
    uint32_t doubts = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        double at = ((double)__uint_as_float((unsigned)c[i]) - (double)most) / b->ask.temperature,
               e = exp(at);
        float least = (float)(e * (1 - WEIGHT_DOUBT)), weight = (float)e;
        doubts += least != (float)(e * (1 + WEIGHT_DOUBT)) && e > 0;
        doubts += at > -745.2 && at < -745.1; /* where double ends */
        c[i] = e > 0 ? (uint64_t)__float_as_uint(weight) << 32 | (uint32_t)~i : 0;
    }
    if (doubts)
        atomicAdd(&b->doubts, doubts);
    __syncthreads();
}

/* ---- the order of weights ---- */

/* With top-p tokens are drawn from in the order of their weights. */
static __device__ void draw_by_weight(sample_block *b, const uint64_t *c, uint32_t n)
{
    const gpu_sample_ask *a = &b->ask;
    weights_tally(b, c, n, 20, 0, b->top_mass, b->top_count);
    double all = mass_at_least(b, c, n, 0), left = all, doubt = SAMPLE_DOUBT * all;
    if (a->top_k > 0 && a->top_k < n) {
        order_find(b, c, n, {0, a->top_k});
        left = b->fall.found ? b->fall.after : all;
        __syncthreads();
    }
    double wanted = a->top_p * left;
    order_find(b, c, n, {wanted, 0});
    bool certain = b->fall.found && fall_is_certain(wanted, b->fall.before, b->fall.after, doubt);
    float min_p = (float)a->min_p, lightest = __uint_as_float(certain ? b->fall.bits : 0);
    double kept = certain ? b->fall.after : 0;
    __syncthreads();
    if (!certain)
        return;
    if (min_p > 0 && lightest < min_p)
        kept = mass_at_least(b, c, n, min_p);
    double at = a->chance * kept;
    order_find(b, c, n, {at, 0});
    if (threadIdx.x == 0 && b->fall.found &&
        fall_is_certain(at, b->fall.before, b->fall.after, doubt))
        b->token = b->fall.token;
}

/* ---- the order of tokens ---- */

/* Without top-k and top-p; those that weigh less than min-p count for nothing. A warp adds a part
 * of the row, and one thread looks where among the parts, and in one, the draw falls. */
static __device__ void draw_by_token(sample_block *b, const uint64_t *c, uint32_t n)
{
    float least = (float)b->ask.min_p;
    uint32_t each = (n + BUCKETS - 1) / BUCKETS, lane = threadIdx.x % WARP;
    for (uint32_t part = threadIdx.x / WARP; part < BUCKETS; part += WARPS) {
        uint32_t first = part * each, end = first + each < n ? first + each : n;
        double sum = 0;
        for (uint32_t i = first + lane; i < end; i += WARP)
            if (candidate_weight(c[i]) >= least)
                sum += (double)candidate_weight(c[i]);
        for (int by = WARP / 2; by; by /= 2)
            sum += __shfl_xor_sync((unsigned)ALL_LANES, sum, by);
        if (lane == 0) {
            b->part_mass[part] = sum;
            b->part_count[part] = first < end ? end - first : 0;
        }
    }
    if (threadIdx.x == 0) {
        b->before = 0;
        b->rank = 0;
    }
    double all = mass_at_least(b, c, n, least), at = b->ask.chance * all;
    buckets_walk(b, b->part_mass, b->part_count, {at, 0});
    if (threadIdx.x != 0 || b->bucket < 0)
        return;
    uint32_t first = (uint32_t)(BUCKETS - 1 - b->bucket) * each;
    double before = b->before;
    for (uint32_t i = first; i < first + each && i < n; i++) {
        double weight = candidate_weight(c[i]) >= least ? (double)candidate_weight(c[i]) : 0;
        if (before + weight > at) {
            if (fall_is_certain(at, before, before + weight, SAMPLE_DOUBT * all))
                b->token = i;
            return;
        }
        before += weight;
    }
}

/* ---- top-k alone: the order in which the host's selection leaves them ---- */

static __device__ void candidates_swap(unsigned long long *a, unsigned long long *b)
{
    unsigned long long c = *a;
    *a = *b;
    *b = c;
}

/* As sampler_select_first: by one thread. */
static __device__ void list_select(unsigned long long *c, uint32_t n, uint32_t k)
{
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t at = low;
        candidates_swap(&c[low + (high - low) / 2], &c[high - 1]);
        for (uint32_t i = low; i + 1 < high; i++)
            if (c[i] > c[high - 1])
                candidates_swap(&c[i], &c[at++]);
        candidates_swap(&c[at], &c[high - 1]);
        if (at == k || at + 1 == k)
            return;
        if (at < k)
            low = at + 1;
        else
            high = at;
    }
}

/* Candidates from the first on are kept as long as at least k come before the middle one; gives how
 * many are left (k: no more is to be done). */
static __device__ uint32_t candidates_halve(sample_block *b, uint64_t *c, uint32_t n, uint32_t k)
{
    while (n > SELECT_SMALL) {
        unsigned long long *middle = (unsigned long long *)&c[n / 2],
                           *last = (unsigned long long *)&c[n - 1];
        if (threadIdx.x == 0)
            candidates_swap(middle, last);
        __syncthreads();
        uint64_t pivot = c[n - 1];
        uint32_t before = candidates_count(b, c, n - 1, pivot);
        if (before < k) {
            if (threadIdx.x == 0)
                candidates_swap(middle, last);
            __syncthreads();
            return n;
        }
        candidates_keep(b, c, n - 1, pivot);
        n = before;
        if (n == k)
            return n;
    }
    return n;
}

/* As the host adds and draws, one after the other. */
static __device__ void list_draw(sample_block *b, const unsigned long long *c, uint32_t n)
{
    float least = (float)b->ask.min_p;
    double all = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++)
        if (candidate_weight(c[i]) >= least) {
            all = __dadd_rn(all, (double)candidate_weight(c[i]));
            last = i;
        }
    double at = __dmul_rn(b->ask.chance, all);
    for (uint32_t i = 0; i < n && at >= 0; i++)
        if (candidate_weight(c[i]) >= least) {
            at = __dsub_rn(at, (double)candidate_weight(c[i]));
            last = at < 0 ? i : last;
        }
    b->token = ~(uint32_t)c[last];
}

static __device__ void draw_by_selection(sample_block *b, uint64_t *c, uint32_t n)
{
    uint32_t k = b->ask.top_k;
    n = candidates_keep(b, c, n, 0);
    bool selects = k < n;
    if (selects)
        n = candidates_halve(b, c, n, k);
    if (n > LIST_MOST)
        return;
    for (uint32_t i = threadIdx.x; i < n && n <= LIST; i += THREADS)
        b->tally[i] = c[i];
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    unsigned long long *list = n <= LIST ? b->tally : (unsigned long long *)c;
    if (selects && n > k)
        list_select(list, n, k);
    list_draw(b, list, selects ? k : n);
}

/* ---- a row ---- */

static __device__ void token_sample(sample_block *b, uint64_t *c, uint32_t n, float most)
{
    candidates_make(b, c, n, most);
    if (b->doubts)
        return;
    if (b->ask.top_p < 1)
        draw_by_weight(b, c, n);
    else if (b->ask.top_k > 0)
        draw_by_selection(b, c, n);
    else
        draw_by_token(b, c, n);
}

/* Each number by a thread: they lie in memory of the host. */
static __device__ void ask_read(gpu_sample_ask *to, const gpu_sample_ask *from)
{
    switch (threadIdx.x) {
    case 0: to->temperature = from->temperature; break;
    case 1: to->top_p = from->top_p; break;
    case 2: to->min_p = from->min_p; break;
    case 3: to->chance = from->chance; break;
    case 4: to->repetition = from->repetition; break;
    case 5: to->wanted = from->wanted; break;
    case 6: to->top_k = from->top_k; break;
    case 7: to->first = from->first; break;
    case 8: to->n_seen = from->n_seen; break;
    case 9: to->n_added = from->n_added; break;
    case 10: to->n_ruled_out = from->n_ruled_out; break;
    }
}

__global__ void sample_kernel(gpu_sampling p)
{
    __shared__ sample_block b;
    const float *row = p.logits.data + blockIdx.x * p.logits.stride;
    uint64_t *c = p.room + (uint64_t)blockIdx.x * p.width;
    if (threadIdx.x == 0) {
        b.token = UINT32_MAX;
        b.doubts = 0;
    }
    ask_read(&b.ask, &p.asks[blockIdx.x]);
    __syncthreads();
    if (b.ask.wanted) {
        for (uint32_t i = threadIdx.x; i < p.width; i += THREADS)
            c[i] = __float_as_uint(row[i]);
        __syncthreads();
        logits_change(&b.ask, p.changes, c);
        float most = logits_greatest(&b, c, p.width);
        if (b.ask.temperature > 0 && most > -INFINITY && most < INFINITY)
            token_sample(&b, c, p.width, most);
        else
            token_heaviest(&b, c, p.width, most);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        p.tokens[blockIdx.x] = b.token;
    for (uint32_t i = threadIdx.x; b.token == UINT32_MAX && i < p.width; i += THREADS)
        p.rows[(uint64_t)blockIdx.x * p.width + i] = row[i];
}

void gpu_sample(struct CUstream_st *s, const struct gpu_sampling *p)
{
    CUDA_LAUNCH(sample_kernel, p->n, THREADS, s)(*p);
}
