/* Networks (ONNX models) on this machine's CPU or a device of it, fast: planned once for each
 * combination of input sizes (network_plan.h), by oneDNN and our own loops, on the calling thread
 * and those that it is given. What a plan cannot be made for runs node by node in the reference
 * (model/onnx/network.h), whose errors are the ones that users see. Used by one thread at a time.
 */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_ENGINE_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_ENGINE_H

#include "agent/engine/network/network_plan.h"

struct network_engine;

/* Takes the network over, which it closes also on failure: *n is NULL afterwards. `threads` (NULL:
 * the caller computes alone) outlive it; results have the same bits whatever they are. So does
 * `device` (NULL: this CPU), on which plans run; what none can be made for there is refused.
 * HP_ENOMEM, HP_EDEVICE. */
int network_engine_open(struct onnx_network **n, struct threads *threads,
                        struct network_device *device, struct network_engine **out, struct err *e);
void network_engine_close(struct network_engine **g);

/* As network_run: inputs[n_inputs] stay the caller's, outputs[n_outputs], all zero, become the
 * caller's. Outputs of the right types and sizes are written over instead, and then a run of sizes
 * that ran before allocates nothing where no node is left to the reference. More stages than steps:
 * as many as can be. Failures as network_run has them. */
int network_engine_run(struct network_engine *g, int n_stages, const struct ndarray *const *inputs,
                       struct ndarray *outputs, struct err *e);

/* What runs of the last inputs do; all zero where the reference runs all. */
struct network_plan_facts network_engine_describe(const struct network_engine *g);

#endif
