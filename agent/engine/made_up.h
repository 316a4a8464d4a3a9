/* Numbers for weights of which only the shapes are there. What a layer costs is measured before its
 * bytes come, from a file of holes; products with zeros cost less than with what a model has, whose
 * inputs stand out now and then (agent/backend/cpu/blocks.h). */
#ifndef HP_AGENT_ENGINE_MADE_UP_H
#define HP_AGENT_ENGINE_MADE_UP_H

#include "common/status.h"
#include "model/weights.h"

struct made_up {
    struct weight weight; /* as the one it stands for, but for `data` and `file` */
    uint8_t *memory;      /* NULL: there is none */
    uint64_t bytes;
};

/* For a vector or matrix that is all zeros, one of ones, or of numbers of any sign that keep their
 * inputs' size: out->memory, the caller's to give to made_up_free once nobody reads the weight.
 * Takes few bytes however large it is, which come again and again. NULL stays NULL for all others.
 * HP_ENOMEM. */
int made_up_make(const struct weight *w, struct made_up *out, struct err *e);
void made_up_free(struct made_up *m);

#endif
