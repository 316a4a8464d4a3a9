/* `hpctl load` of models of fixed shape, which pools serve. */
#ifndef HP_HPCTL_LOAD_INFER_H
#define HP_HPCTL_LOAD_INFER_H

#include "hpctl/command.h"
#include "hpctl/context.h"
#include "hpctl/load_plan.h"

struct load_infer {
    const struct load_options *options; /* when requests arrive, and the seed */
    const char *name;                   /* of the one model; NULL: all, by their weights */
    size_t most_open;
    double patience_s;
};

/* Drives them and prints what came of it. HP_EUSAGE: options of language models; else as
 * infer_target_ask, infer_plan_make, infer_run. */
int load_infer_run(struct invocation *in, const struct load_infer *l, struct context *where,
                   struct err *e);

#endif
