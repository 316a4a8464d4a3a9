/* The models that deployments refer to: their manifests, and what the shell found in their heads.
 */
#ifndef HP_COORDINATOR_MODEL_SLOTS_H
#define HP_COORDINATOR_MODEL_SLOTS_H

#include "common/digest.h"
#include "common/pack.h"
#include "coordinator/model_facts.h"
#include "coordinator/state.h"

enum { MODEL_SLOT_KEY = DIGEST_HEX + 8 };

struct model_slot {
    char key[MODEL_SLOT_KEY]; /* `id`, or "ID.4" where experts are in four groups */
    char id[DIGEST_HEX];
    uint32_t expert_groups; /* 1: in one, as the model is deployed first */
    char name[128];
    uint8_t *manifest;
    size_t manifest_size;
    bool opening, open;
    uint32_t users;     /* work that holds it open (work.h) */
    struct err failure; /* code 0 while there is none */
    struct arena arena; /* what `facts` points to */
    struct model_facts facts;
};

/* NULL: none with this id (or key). */
struct model_slot *model_slot_find(struct coord *c, const char *key);
/* The same model with each block's experts in so many groups, which are layers of their own
 * (model_open_divided); 1: as it is. Opened like any other. NULL: no memory. */
struct model_slot *model_slot_divided(struct coord *c, const struct model_slot *m,
                                      uint32_t expert_groups);
/* Experts of its block with the most; 0: none of its blocks can be divided. */
int model_slot_experts(const struct model_slot *m);
/* Finds or makes the slot of a manifest, keeps it, and has it opened. */
int model_slot_use(struct coord *c, struct pack_span manifest, struct model_slot **out,
                   struct err *e);
/* The shell has opened a model (facts, copied) or could not (NULL, and why). False: nobody knows
 * this model any more. */
bool model_slots_opened(struct coord *c, const char *key, const struct model_facts *facts,
                        const struct err *why);
/* Closes what no deployment uses. */
void model_slots_sweep(struct coord *c);
int model_slots_restore(struct coord *c, struct pack_span manifest, struct err *e);
void model_slots_free(struct coord *c);

#endif
