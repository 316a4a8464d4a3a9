/* Where the stages of a deployment lie, and the plan that they follow. Both are counted, and never
 * change once they are made; on the loop only. */
#ifndef HP_COORDINATOR_STAGE_LAYOUT_H
#define HP_COORDINATOR_STAGE_LAYOUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "coordinator/state.h"
#include "transport/frame.h"

/* A plan that was taken. */
struct deployment_plan {
    unsigned refs;
    json_t *document; /* hp-plan/1, for people and the store; NULL: none was kept */
    uint64_t tokens;  /* of the prompt that it was made for */
    int *slices;      /* the document's; none: it leaves them open */
    int n_slices;
};

struct layout_stage {
    char agent[MEMBER_NAME];
    int device; /* of the agent's */
    int first_layer, end_layer;
    double compute_s, memory_bytes; /* predicted: of the plan's prompt; weights and KV */
};

struct stage_layout {
    unsigned refs;
    struct deployment_plan *plan; /* NULL: none */
    uint64_t context, kv_tokens, max_sequences, max_batch_tokens;
    enum frame_dtype wire; /* as what activations cross between the stages */
    int n_stages;
    struct layout_stage stages[];
};

/* Counts the document (may be NULL). NULL: no memory. */
struct deployment_plan *deployment_plan_create(json_t *document, uint64_t tokens);
struct deployment_plan *deployment_plan_use(struct deployment_plan *p); /* NULL is fine */
void deployment_plan_release(struct deployment_plan **p);

/* All zero, for the caller to fill. NULL: no memory. */
struct stage_layout *stage_layout_create(int n_stages);
struct stage_layout *stage_layout_use(struct stage_layout *l); /* NULL is fine */
void stage_layout_release(struct stage_layout **l);
/* The same layers on the same devices, by the same figures. */
bool stage_layout_same_stages(const struct stage_layout *a, const struct stage_layout *b);

/* As records have it. HP_EPARSE, HP_ENOMEM. */
json_t *stage_layout_to_json(const struct stage_layout *l); /* NULL: null */
int stage_layout_from_json(const json_t *value, struct stage_layout **out, struct err *e);

#endif
