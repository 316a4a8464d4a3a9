/* The lengths of a workload's model whose requests are of several: {"lengths": {"buckets": [16,
 * 64], "mask": "attention_mask"}}. Requests are padded to the next of them, with a mask of zeros
 * there. */
#ifndef HP_HPCTL_WORKLOAD_LENGTHS_H
#define HP_HPCTL_WORKLOAD_LENGTHS_H

#include "common/json.h"
#include "model/files/onnx.h"

enum { WORKLOAD_LENGTHS = 16, WORKLOAD_LENGTH_SYMBOLS = 8 };

struct workload_lengths {
    int64_t longest[WORKLOAD_LENGTHS];            /* [n], the longest first */
    int n;                                        /* 0: the model has one size */
    const char *mask;                             /* input; NULL: it is found by its name */
    const char *symbols[WORKLOAD_LENGTH_SYMBOLS]; /* of the dimensions that are the length */
    int n_symbols;
    int axis; /* of the tensor that is looked at; -1: none yet */
};

/* HP_EPARSE: "lengths" is not so. */
int workload_lengths_read(const struct json_at *model, struct workload_lengths *out, struct err *e);
/* A dimension of a tensor is the length. HP_EPARSE: another one is, too. */
int workload_lengths_note(const struct json_at *model, const struct onnx_value *v, int d,
                          struct workload_lengths *l, struct err *e);
/* Behind the inputs: that they have a length, and a mask of it; says both in the network.
 * HP_EPARSE. */
int workload_lengths_check(const struct json_at *model, const struct onnx *o,
                           struct workload_lengths *l, json_t *network, struct err *e);

#endif
