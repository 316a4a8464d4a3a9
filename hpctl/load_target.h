/* The deployment that a load drives: whether it serves, and whether the plan's requests fit it. */
#ifndef HP_HPCTL_LOAD_TARGET_H
#define HP_HPCTL_LOAD_TARGET_H

#include "hpctl/load_run.h"

/* Asks the API about r->deployment and sets r->vocabulary; `where` may get a key of the API.
 * HP_ESTALE: it does not serve now; HP_EINVAL: it writes no text, or a request is longer than its
 * context; else as http_get. */
int load_target_ask(struct context *where, struct load_run *r, struct err *e);

#endif
