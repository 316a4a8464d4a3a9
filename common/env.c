#include "common/env.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t real_now_ns(void *ctx)
{
    (void)ctx;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void real_random_bytes(void *ctx, void *out, size_t n)
{
    (void)ctx;
    unsigned char *p = out;
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got <= 0)
            continue;
        p += got;
        n -= (size_t)got;
    }
}

const struct env env_real = {NULL, real_now_ns, real_random_bytes};

uint64_t env_random_u64(const struct env *env)
{
    uint64_t v;
    env->random_bytes(env->ctx, &v, sizeof v);
    return v;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1.0p-53;
}

static uint64_t virtual_now_ns(void *ctx)
{
    return ((struct env_virtual *)ctx)->now_ns;
}

static void virtual_random_bytes(void *ctx, void *out, size_t n)
{
    struct env_virtual *v = ctx;
    unsigned char *p = out;
    while (n > 0) {
        uint64_t word = random_next(&v->state);
        size_t take = n < sizeof word ? n : sizeof word;
        memcpy(p, &word, take);
        p += take;
        n -= take;
    }
}

struct env env_virtual_init(struct env_virtual *v, uint64_t seed)
{
    v->now_ns = 0;
    v->state = seed;
    return (struct env){v, virtual_now_ns, virtual_random_bytes};
}

double env_time_scale(void)
{
    const char *s = getenv("HP_TIME_SCALE");
    double v = s ? strtod(s, NULL) : 1.0;
    return v > 0.0 ? v : 1.0;
}
