/* Operators of a language model's graph in its network (model/onnx/rows.h), on a CPU device with as
 * many threads as the network has, or on the device on which its plans run, in float32: weights are
 * used where they lie in the file, in the file's format, unless its format has to be put together
 * first. Plans of one network share them, and each is loaded when a plan is about to run it. Used
 * by one thread. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_ROWS_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_ROWS_H

#include "agent/backend/cpu/nn.h"
#include "agent/engine/network/network_device.h"
#include "model/onnx/rows.h"

struct network_rows;

/* `limit_bytes` of weights and what products scratch in; `there` (NULL: this CPU) outlives it. On a
 * device, weights are those of the account's (NULL: nobody counts) other networks, too; on this CPU
 * they lie in the file, and count there once. HP_ENOMEM. */
int network_rows_create(uint64_t limit_bytes, const struct network_device *there,
                        const struct network_account *account, struct network_rows **out,
                        struct err *e);
/* After all plans. */
void network_rows_destroy(struct network_rows **r);

/* Makes an operator ready, unless it is. HP_ENOMEM says how many bytes are missing; HP_EPARSE,
 * naming tensor and block: weights that are no numbers; HP_EUNSUPPORTED; HP_EDEVICE. */
int network_rows_load(struct network_rows *r, const struct nn *nn, const struct onnx_rows *o,
                      struct err *e);
/* Lets go of all that was loaded, while nothing runs. */
void network_rows_clear(struct network_rows *r);
/* in[inputs of the operator], float32 [rows, width] as its graph has them; of OP_EMBED int64
 * [rows]. HP_EINVAL: an id or a number of an expert that there is not; HP_ENOMEM. */
int network_rows_run(struct network_rows *r, const struct nn *nn, const struct onnx_rows *o,
                     const void *const *in, int64_t rows, float *out, struct err *e);
/* The same put on the device, of what lies there; tables are the host's alone. What experts are
 * numbered by has been looked at. HP_EBUG. */
int network_rows_put(struct network_rows *r, const struct onnx_rows *o, const void *const *in,
                     int64_t rows, float *out, struct err *e);
/* Whether `route` [rows, 2 * used] of an OP_EXPERT_MATMUL names its experts. HP_EINVAL. */
int network_rows_route_check(const struct onnx_rows *o, const float *route, int64_t rows,
                             struct err *e);
/* What the weights of all that was loaded hold. */
uint64_t network_rows_bytes(const struct network_rows *r);

#endif
