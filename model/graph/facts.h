/* What a file says of its model: from the keys of a GGUF file (config_gguf.c) or from config.json
 * (config_hub.c). */
#ifndef HP_MODEL_GRAPH_FACTS_H
#define HP_MODEL_GRAPH_FACTS_H

#include "common/arena.h"
#include "common/json.h"
#include "model/files/gguf.h"
#include "model/graph/family.h"
#include "model/weight_table.h"

/* Strings and factors are made in the arena; `t` gives the sizes and the rope factors that GGUF
 * keeps in tensors. HP_EPARSE, HP_EUNSUPPORTED, HP_ENOMEM. */
int facts_from_gguf(const struct gguf *g, const char *file, struct weight_table *t,
                    struct arena *arena, struct family_facts *out, struct err *e);
int facts_from_hub(const struct json_at *config, struct arena *arena, struct family_facts *out,
                   struct err *e);
/* How a model of embeddings pools, by its folder's 1_Pooling/config.json and modules.json (NULL:
 * there is none): an encoder in any case, a decoder where modules.json names a pooling, and then it
 * has no head of logits. HP_EPARSE, HP_EUNSUPPORTED. */
int facts_hub_pooling(const struct json_at *pooling, const struct json_at *modules,
                      struct model_config *c, struct err *e);
/* How config.json says that positions rotate: fills in the config's `rope`, and that of windows. */
int facts_hub_rope(const struct facts_source *s, struct model_config *c);
/* HP_EUNSUPPORTED where a GGUF file's keys ask for something that its family does not compute. */
int facts_gguf_heeded(const struct facts_source *s, const struct model_config *c);

#endif
