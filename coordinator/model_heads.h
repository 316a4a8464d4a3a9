/* The models that the coordinator knows, as far as it needs them: a sparse copy of each model's
 * files with its heads filled in opens like the model itself and gives layers, tokenizer and chat
 * template. Weights never come here. */
#ifndef HP_COORDINATOR_MODEL_HEADS_H
#define HP_COORDINATOR_MODEL_HEADS_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"
#include "coordinator/core.h"
#include "model/model.h"

struct model_heads_order {
    const char *folder, *id;
    const uint8_t *manifest;
    size_t manifest_size;
    int expert_groups; /* as model_open_divided has it */
};

/* Makes FOLDER/ID/files/... from a manifest, opens it and its tokenizer, and fills *facts (what it
 * points to is in `arena` or the model's). Blocks; may run on any thread. HP_EPARSE,
 * HP_EUNSUPPORTED, HP_EIO, HP_ENOSPACE. */
int model_heads_open(const struct model_heads_order *o, struct arena *arena, struct model **out,
                     struct model_facts *facts, struct err *e);
/* Removes FOLDER/ID. */
void model_heads_remove(const char *folder, const char *id);

#endif
