/* A network planned for inputs of given sizes: its values laid out in one arena by when they are
 * used, its nodes fused and turned into steps, each of which is ready to run.
 *
 * Sizes and what follows from them are worked out when the plan is made. Nodes that no step does
 * faster are run by the reference (model/onnx), one by one. Used by one thread. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_PLAN_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_PLAN_H

#include "agent/backend/cpu/nn.h"
#include "agent/engine/network/network_device.h"
#include "agent/engine/network/network_rows.h"
#include "agent/engine/network/network_shelf.h"
#include "common/env.h"
#include "model/onnx/network.h"

/* Who reads a value: nodes first[v] to first[v + 1] of `nodes`. */
struct network_facts {
    const struct onnx_network *network;
    int *first, *nodes;
    bool *is_output;               /* by value */
    struct network_device *device; /* on which plans run; NULL: this CPU */
    struct network_rows *rows;     /* of language models; NULL: it has no such node */
    struct network_shelf *shelf;   /* of plans that run one after the other; NULL: each has its own.
                                      Whoever makes it sets it, and it outlives the plans */
};
/* `device` (NULL: this CPU) outlives them. `account` (NULL: nobody counts) is of its weights. */
int network_facts_make(const struct onnx_network *n, struct network_device *device,
                       const struct network_account *account, struct network_facts *out,
                       struct err *e);
void network_facts_free(struct network_facts *f);

struct network_plan;

/* With a shelf, steps have to be made ready (network_plan_ready) before they run. Plans have the
 * same steps whatever they run on. Of the inputs types and sizes count alone. `facts` and `nn`
 * outlive the plan. Failures are those of the network's nodes, or HP_EUNSUPPORTED where sizes
 * depend on more than sizes; then the reference decides. */
int network_plan_make(const struct network_facts *facts, struct nn *nn,
                      const struct ndarray *const *inputs, struct network_plan **out,
                      struct err *e);
void network_plan_free(struct network_plan **p);
bool network_plan_fits(const struct network_plan *p, const struct ndarray *const *inputs);

/* outputs[n_outputs]: zero, and then the caller's to free; or of the type and sizes that the plan
 * makes, which are written over. HP_ESTALE: a size turned out otherwise than planned, the reference
 * decides; else as nodes fail. Nothing is allocated but for zero outputs and by nodes that the
 * reference runs. */
int network_plan_run(struct network_plan *p, const struct ndarray *const *inputs,
                     struct ndarray *outputs, struct err *e);
/* The same in so many stages, cut where few bytes cross: what crosses is handed on as bytes, and
 * nothing else is left. */
int network_plan_run_cut(struct network_plan *p, int n_stages, const struct ndarray *const *inputs,
                         struct ndarray *outputs, struct err *e);

/* The same, cut before the steps cuts[n_cuts], each after the one before. */
int network_plan_run_at(struct network_plan *p, const int *cuts, int n_cuts,
                        const struct ndarray *const *inputs, struct ndarray *outputs,
                        struct err *e);

/* The same whole, with a look at the clock at its begin (stamps_ns[0]) and its end
 * (stamps_ns[steps]), and with `each` after every step (inputs count for the first step, outputs
 * for the last). */
int network_plan_run_timed(struct network_plan *p, const struct env *env, bool each,
                           uint64_t *stamps_ns, const struct ndarray *const *inputs,
                           struct ndarray *outputs, struct err *e);

/* Bytes that a stage hands on that ends before step `at`, of 1 to steps - 1. */
uint64_t network_plan_crossing(const struct network_plan *p, int at);
/* What stands between the steps before `at` and those from there on, as arrays that lie in the plan
 * and hold what they say from one run to the next: before the first step the inputs, behind the
 * last one the outputs, else what crosses, as bytes, behind a number of the plan (between plans of
 * other numbers bytes mean other things). Fills in out[most] and returns how many there are. */
int network_plan_border(struct network_plan *p, int at, struct ndarray *out, int most);
/* Copies in[n] to the border before step `at`, of which border[n_border] is what
 * network_plan_border says. HP_EINVAL: they are others (named); HP_ESTALE: another plan made them.
 */
int network_plan_enter(struct network_plan *p, int at, const struct ndarray *border, int n_border,
                       const struct ndarray *in, int n, struct err *e);
/* Makes the steps [first, end) ready, and with them all that crosses at either end: loads their
 * weights, says to the plan's shelf what they use of it, and lays their values out in an arena.
 * Others cannot be run, and nothing of theirs is held. HP_ELIMIT, HP_ENOMEM, and as
 * network_rows_load. Of facts without a shelf network_plan_make has done so for all. */
int network_plan_ready(struct network_plan *p, int first, int end, struct err *e);
/* Lets go of what was made ready for them, in plans of a shelf that no other plan uses: they are to
 * be made ready again before they run. */
void network_plan_release(struct network_plan *p, int first, int end);
/* The most bytes of values that are there at once while these steps run. */
uint64_t network_plan_peak(const struct network_plan *p, int first, int end);
/* Runs the steps [first, end) alone. Failures as network_plan_run. */
int network_plan_run_part(struct network_plan *p, int first, int end, struct err *e);
/* The same, with looks at the clock as above. */
int network_plan_run_part_timed(struct network_plan *p, int first, int end, const struct env *env,
                                bool each, uint64_t *stamps_ns, struct err *e);
/* The node that a step does; -1: it moves what a node needs. */
int network_plan_node(const struct network_plan *p, int step);

struct network_plan_facts {
    int steps, reference_steps, cut_steps; /* cut: primitives that several threads share out */
    uint64_t arena_bytes, scratch_bytes;
};
struct network_plan_facts network_plan_describe(const struct network_plan *p);

#endif
