/* An ONNX model that runs on this host, by plain loops: checked node by node, with what follows
 * from constants computed once. Its nodes can be cut into stages, which hand arrays on as bytes and
 * share nothing else. */
#ifndef HP_MODEL_ONNX_NETWORK_H
#define HP_MODEL_ONNX_NETWORK_H

#include <stdatomic.h>

#include "common/status.h"
#include "model/files/onnx.h"
#include "model/ndarray.h"
#include "model/onnx/operator.h"

struct onnx_network;

/* Opens and checks; `limit_bytes` is what arrays may hold at once, then and in runs. HP_ENOENT,
 * HP_EIO, HP_EPARSE, HP_EUNSUPPORTED, HP_EINVAL (a node that contradicts itself), HP_ELIMIT,
 * HP_ENOMEM; texts name file and node. Close with network_close. */
int network_open(const char *path, uint64_t limit_bytes, struct onnx_network **out, struct err *e);
/* The same of a file that was read already (`name` is for messages), which the network takes over
 * and on failure closes: *o is NULL afterwards. */
int network_make(const char *name, const struct onnx **o, uint64_t limit_bytes,
                 struct onnx_network **out, struct err *e);
void network_close(struct onnx_network **n);

const struct onnx *network_onnx(const struct onnx_network *n);
/* Nodes that a run runs: all but those that follow from constants. */
int network_run_nodes(const struct onnx_network *n);

/* What an input has to be, for people: "float32 batch x 3 x 224 x 224". Returns `out`. */
enum { NETWORK_INPUT_TEXT = 512 };
const char *network_input_text(const struct onnx_value *v, char out[NETWORK_INPUT_TEXT]);

/* Whether the inputs are of the graph's types and sizes. HP_EINVAL. */
int network_inputs_check(const struct onnx_network *n, const struct ndarray *const *inputs,
                         struct err *e);
/* A value that is a weight or follows from such; NULL: runs make it. */
const struct ndarray *network_constant(const struct onnx_network *n, int value);
/* Whether a node was run when the network was opened, since all that it reads is constant. */
bool network_node_is_folded(const struct onnx_network *n, int node);
/* Bytes of what follows from constants. */
uint64_t network_folded_bytes(const struct onnx_network *n);
/* What arrays may hold at once in a run, constants apart. */
uint64_t network_limit(const struct onnx_network *n);
/* A node as a call of its operator, with in[n_inputs] (NULL: left out), which must live as long. */
struct onnx_call network_call(const struct onnx_network *n, int node,
                              const struct ndarray *const *in, struct err *e);
/* Runs one node: outputs[n_outputs], all zero, become the caller's; on failure none is left. The
 * text names the node. Of shapes alone they get types and sizes as long as no size depends on what
 * `in` holds, and no data. */
int network_node_run(const struct onnx_network *n, int node, const struct ndarray *const *in,
                     bool shapes_only, struct ndarray *outputs, struct err *e);

/* Runs end with HP_ECANCELED behind the node at which this becomes true (any thread may set it); it
 * outlives the network. */
void network_stop_on(struct onnx_network *n, const atomic_bool *stop);
/* 0, or HP_ECANCELED. */
int network_stopped(const struct onnx_network *n, struct err *e);

/* Runs all nodes in `n_stages` stages. inputs[n_inputs] in the graph's order, which stay the
 * caller's; outputs[n_outputs], all zero, become the caller's, to free. HP_EINVAL: an input of
 * another type or size than the graph's, a node that cannot take what it gets (named), more stages
 * than nodes; HP_ELIMIT, HP_ENOMEM, HP_EIO. On failure no output is left. */
int network_run(const struct onnx_network *n, int n_stages, const struct ndarray *const *inputs,
                struct ndarray *outputs, struct err *e);

#endif
