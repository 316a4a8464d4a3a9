/* Drives a deployment by a plan of requests (load_plan.h) over the HTTP API, each as a stream of
 * its own; none is sent again, but for those that resume. Open loop: a request is sent when it
 * arrives, however many are open. Closed loop: so many clients send the plan's requests one after
 * the other. */
#ifndef HP_HPCTL_LOAD_RUN_H
#define HP_HPCTL_LOAD_RUN_H

#include "hpctl/context.h"
#include "hpctl/load_causes.h"
#include "hpctl/load_plan.h"

enum load_outcome {
    LOAD_UNSENT,  /* not yet due, or hpctl had as many streams open as it may */
    LOAD_OPEN,    /* sent; its answer had not ended when waiting ended */
    LOAD_DONE,    /* the whole answer came */
    LOAD_REFUSED, /* answered with another status than 200 */
    LOAD_FAILED,  /* broke off: an error within its stream, or a lost connection */
};
extern const char *const load_outcomes[]; /* "unsent", "open" and so on, NULL */

/* Times are seconds after the start; of a request that is done all are there. */
struct load_result {
    enum load_outcome outcome;
    int cause; /* of what is neither done nor open: index of load_run.causes; -1: none */
    double sent_s, first_s, end_s;
    uint32_t answer_tokens, cached_tokens;
    double waited_s, prefill_s, decode_s; /* what the server says of it */
    double planned_s; /* and the plan of its prefill, had it run alone; 0: not known */
};

enum { LOAD_RESUME_S = 60 };

struct load_run {
    /* From the caller: */
    const struct context *where;
    const char *deployment;
    const struct load_plan *plan;
    uint64_t seed;
    uint32_t vocabulary, common;
    size_t most_open;
    double patience_s; /* after the last arrival */
    bool resumes;      /* what broke off is asked for again, with its key (docs/api.md, Answers that
                          outlive a connection), until it is whole or has not come back for
                          LOAD_RESUME_S */
    size_t clients;    /* 0: open loop; else they send until plan->seconds have passed */
    /* May be NULL: text of the answer of request `index` has come. */
    void (*heard)(void *ctx, size_t index, const char *text, size_t n, double now_s);
    /* Called four times a second, may be NULL: seconds since the start, how many are open. */
    void (*progress)(void *ctx, double now_s, size_t open);
    void *ctx;
    /* What came of it: */
    struct load_result *results; /* [plan->n] */
    struct load_cause causes[LOAD_MAX_CAUSES];
    int n_causes;
    double seconds;   /* from the start to the end of waiting */
    bool interrupted; /* by Ctrl-C; results are of what came until then */
};

/* Sends all, and waits until every answer has ended, the patience is over or Ctrl-C. HP_ENOMEM. */
int load_run(struct load_run *r, struct err *e);
void load_run_free(struct load_run *r);

#endif
