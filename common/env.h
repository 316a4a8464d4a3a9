/* Time and chance, handed in. Whatever decides something asks a `struct env`, so that a whole
 * cluster can run in one process under virtual time and a seed replays any failure. Nothing else in
 * the deciding code may look at a clock or draw a number. */
#ifndef HP_COMMON_ENV_H
#define HP_COMMON_ENV_H

#include <stddef.h>
#include <stdint.h>

struct env {
    void *ctx;
    uint64_t (*now_ns)(void *ctx); /* monotonic */
    void (*random_bytes)(void *ctx, void *out, size_t n);
};

static inline uint64_t env_now_ns(const struct env *env)
{
    return env->now_ns(env->ctx);
}
/* Eight bytes of its chance. */
uint64_t env_random_u64(const struct env *env);

/* The machine's own clock (CLOCK_MONOTONIC) and its random device. */
extern const struct env env_real;

/* Virtual time and a seeded generator (splitmix64): the test moves the clock. */
struct env_virtual {
    uint64_t now_ns;
    uint64_t state;
};
struct env env_virtual_init(struct env_virtual *v, uint64_t seed);

/* One step of splitmix64 over a caller's state: the project's only seeded generator. */
uint64_t random_next(uint64_t *state);
/* Uniform in [0, 1). */
double random_unit(uint64_t *state);

/* Factor by which waits and deadlines of tests stretch, from HP_TIME_SCALE (default 1): sanitizers
 * and valgrind make programs slower, not wrong. */
double env_time_scale(void);

#endif
