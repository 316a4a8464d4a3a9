/* When each request to models of fixed shape arrives: drawn, all models in their proportions, or
 * read from a file of `seconds` or `seconds,model`. Equal options give equal requests, which are
 * those of `hpctl simulate --rates weights`. Nothing is sent here. */
#ifndef HP_HPCTL_INFER_PLAN_H
#define HP_HPCTL_INFER_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "planners/dispatch/arrivals.h"

struct infer_options {
    enum arrivals_kind kind;
    const char *file;         /* of ARRIVALS_TRACE */
    const char *const *names; /* [n_models]: those that the file may name */
    const double *parts;      /* [n_models]: of the rate; they sum up to 1 */
    int n_models;
    int only;          /* of a file only this model's lines count; -1: all */
    double rate_per_s; /* of all together; 0: the file's own pace */
    double seconds;    /* of arrivals; INFINITY: the whole file */
    uint64_t seed;
};

struct infer_arrival {
    double at_s; /* after the start */
    int model;
};

struct infer_plan {
    struct infer_arrival *requests; /* in order of time */
    size_t n, room;
    double seconds; /* over which they arrive */
};

/* HP_ENOENT, HP_EIO, HP_EPARSE (names the line), HP_ELIMIT, HP_EINVAL (not one request),
 * HP_ENOMEM; nothing is left to free then. */
int infer_plan_make(const struct infer_options *o, struct infer_plan *out, struct err *e);
void infer_plan_free(struct infer_plan *p);

#endif
