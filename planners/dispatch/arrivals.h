/* When requests arrive: Poisson, uniform, bursty, or a trace of the caller's. A stream gives
 * arrivals of all models one by one, in order of time, in constant memory, and the same ones again
 * for the same seed.
 *
 * Bursty is a Markov-modulated Poisson process of two phases per model: calm and burst, whose
 * lengths are exponential with means of 0.8 s and 0.2 s; in a burst requests come three times as
 * fast as in the calm, and the mean over both is the rate asked for.
 */
#ifndef HP_PLANNERS_DISPATCH_ARRIVALS_H
#define HP_PLANNERS_DISPATCH_ARRIVALS_H

#include <stdint.h>

#include "common/status.h"

enum arrivals_kind { ARRIVALS_POISSON, ARRIVALS_UNIFORM, ARRIVALS_BURSTY, ARRIVALS_TRACE };
extern const char *const arrivals_words[]; /* "poisson", "uniform", "bursty", NULL */

struct arrival {
    int64_t at_ns;
    int model;
};

/* 1: *out is the next arrival, not before the one before; 0: no more; negative: an error, with its
 * text in `e`. */
typedef int (*arrival_next_fn)(void *ctx, struct arrival *out, struct err *e);

enum { ARRIVALS_MAX_MODELS = 256 };

struct arrivals_model {
    double rate;     /* requests per second; 0: none */
    uint64_t random; /* state of its generator */
    int64_t next_ns, phase_end_ns;
    int burst; /* in the burst phase */
};

struct arrivals {
    enum arrivals_kind kind;
    int64_t end_ns; /* nothing arrives from then on */
    struct arrivals_model models[ARRIVALS_MAX_MODELS];
    int n_models;
};

/* A stream of `seconds` with a rate per model. */
void arrivals_init(struct arrivals *a, enum arrivals_kind kind, const double *rates, int n_models,
                   double seconds, uint64_t seed);
/* The stream's arrival_next_fn; ctx is the struct arrivals. */
int arrivals_next(void *ctx, struct arrival *out, struct err *e);

#endif
