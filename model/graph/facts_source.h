/* One way to ask either kind of file for a setting: a family names GGUF's key (below the
 * architecture's name) and that of config.json. A key that one kind lacks is NULL: its fallback
 * counts there, as it does where the file has none or a null. Errors name file and key. */
#ifndef HP_MODEL_GRAPH_FACTS_SOURCE_H
#define HP_MODEL_GRAPH_FACTS_SOURCE_H

#include "common/arena.h"
#include "common/json.h"
#include "model/files/gguf.h"
#include "model/graph/family.h"
#include "model/weight_table.h"

struct facts_source {
    enum model_form form;
    const char *file;
    const struct gguf *gguf; /* of FORM_GGUF, with the architecture's name and the tensors */
    const char *prefix;
    struct weight_table *weights;
    const struct json_at *config; /* of FORM_HUB */
    struct arena *arena;
    struct err *e;
};

struct facts_key {
    const char *gguf, *hub;
};

/* A count of at most MODEL_CONTEXT_MAX; `fallback` below 0: it must be there. */
int facts_count(const struct facts_source *s, struct facts_key k, int fallback, int *out);
int facts_number(const struct facts_source *s, struct facts_key k, double fallback, float *out);
int facts_flag(const struct facts_source *s, struct facts_key k, bool fallback, bool *out);
/* HP_EUNSUPPORTED at that key. */
int facts_refuse(const struct facts_source *s, struct facts_key k, const char *what);
/* How GGUF's key says that rows become one; `fallback` where it says nothing, or none. */
int facts_pooling(const struct facts_source *s, enum model_pooling fallback,
                  struct model_config *c);
/* HP_EUNSUPPORTED where the tokens of a family of decoders see those behind them. */
int facts_causal(const struct facts_source *s);
/* The windows of all blocks: `tokens` in those for which (block + 1) is no multiple of `period` (0:
 * in all from `first` on). Where that hides nothing of the context: none. HP_ENOMEM. */
int facts_windows(const struct facts_source *s, struct model_config *c, int tokens, int first,
                  int period);

#endif
