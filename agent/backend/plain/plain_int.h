/* What the files of the plain backend share. */
#ifndef HP_AGENT_BACKEND_PLAIN_PLAIN_INT_H
#define HP_AGENT_BACKEND_PLAIN_PLAIN_INT_H

#include <stdatomic.h>

#include "agent/backend/plain/plain.h"

struct plain_device {
    struct device base;
    uint64_t limit_bytes;
    atomic_ullong used_bytes;
};

/* Matrices and tables stay where the file has them; vectors are float32 of our own. */
struct plain_weight {
    const struct weight *source;
    enum weight_use use;
    struct weight *made; /* the source with the bytes of its format; NULL: the file has these */
    float *vector;       /* NULL: in place */
    uint64_t counted_bytes;
};

struct plain_op {
    struct op_request request;
};

/* ops.c */
bool plain_op_supports(enum op_kind kind, enum dtype weight);
int plain_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                     struct err *e);
void plain_op_release(struct device_op **op);
void plain_op_run(struct stream *s, const struct device_op *op, const struct tensor *in,
                  const struct tensor *out, const struct op_batch *batch);

/* experts.c */
void plain_route(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                 const struct op_batch *batch);
void plain_expert_matmul(const struct plain_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch);
void plain_head_matmul(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                       const struct op_batch *batch);
void plain_join_heads(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                      const struct op_batch *batch);
void plain_expert_sum(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                      const struct op_batch *batch);
void plain_gate_rows(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *batch);
void plain_clamped_swiglu(const struct plain_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch);

/* kv.c */
uint64_t plain_kv_page_bytes(const struct device *d, const struct kv_layout *l);
void plain_attention(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *batch);
void plain_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                     const struct kv_part *part, void *out);
void plain_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                     const struct kv_part *part, const void *data);

#endif
