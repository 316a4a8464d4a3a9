/* Which sequences of devices the search starts from. Internal to this folder. */
#ifndef HP_PLANNERS_PIPELINE_ORDERS_H
#define HP_PLANNERS_PIPELINE_ORDERS_H

#include "planners/pipeline/evaluate.h"

struct orders {
    int n, stride;
    int *length;  /* [n] */
    int *devices; /* [n * stride] */
};

/* All sequences of devices, twins not told apart, where they are few. Otherwise nodes in chains of
 * good links, from every node, with the fastest kinds of device, the two fastest, and so on; and
 * each node alone. Every one holds the devices that must be used. HP_ENOMEM. */
int orders_make(struct exact *x, struct orders *out, struct err *e);

#endif
