/* Numbers for weights of which only the shapes are there. What a layer costs is measured before its
 * bytes come, from a file of holes; products with zeros cost less than with what a model has, whose
 * inputs stand out now and then (agent/backend/cpu/blocks.h). */
#ifndef HP_AGENT_ENGINE_MADE_UP_H
#define HP_AGENT_ENGINE_MADE_UP_H

#include "model/weights.h"

struct made_up {
    struct weight weight; /* as the one it stands for, but for `data` and `file` */
    uint8_t *memory;      /* NULL: the weight itself will do */
    uint64_t bytes;
};

/* For a vector that is all zeros one of ones, and for a matrix [outputs, inputs] of a quantised
 * format numbers of any sign that keep their inputs' size: out->memory, the caller's to give to
 * made_up_free once nobody reads the weight. It is few bytes however large it is, which come again
 * and again: who reads it where it lies finds it in a cache. NULL for all others, among them
 * experts that lie apart, and where there is no memory. */
void made_up_make(const struct weight *w, struct made_up *out);
void made_up_free(struct made_up *m);

#endif
