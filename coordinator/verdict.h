/* What a handler found, for whoever stands above it to act on. */
#ifndef HP_COORDINATOR_VERDICT_H
#define HP_COORDINATOR_VERDICT_H

#include "common/status.h"

enum verdict_kind {
    VERDICT_OK,
    VERDICT_FAIL,  /* this attempt to prepare the deployment failed */
    VERDICT_BREAK, /* the deployment cannot go on as it is: it is planned anew */
    VERDICT_CUT,   /* the same, for want of a path between agents that live: no request ended one */
};

struct deployment;

struct verdict {
    enum verdict_kind kind;
    struct deployment *on;
    struct err why; /* code 0 where all is well */
};

#endif
