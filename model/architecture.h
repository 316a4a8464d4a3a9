/* Families of models: what a file calls them, how to read their sizes, and which operators their
 * weights feed. A family is a row of the table in architecture.c made of recipes; layers.c turns
 * recipes into a graph. A new family that computes with the operators there are is a new row. */
#ifndef HP_MODEL_ARCHITECTURE_H
#define HP_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"
#include "model/gguf.h"
#include "model/layers.h"
#include "model/weight_table.h"

enum model_form { FORM_GGUF, FORM_HUB, FORM_COUNT };

/* Matrices whose biases a config switches together. */
enum bias_group { BIAS_GROUP_NONE, BIAS_GROUP_ATTENTION, BIAS_GROUP_MLP, BIAS_GROUP_COUNT };
enum bias_policy { BIAS_NEVER, BIAS_ALWAYS, BIAS_AS_FOUND };

/* One operator of a layer. The shape of its weight follows from the widths of its values. A list
 * ends with a row of kind OP_KIND_COUNT. */
struct op_recipe {
    enum op_kind kind;
    enum graph_value in, in2, out;
    const char *weight[FORM_COUNT]; /* name without ".weight" and without the block's prefix; NULL:
                                       no weight */
    const char *tied[FORM_COUNT]; /* the weight's name where embeddings are tied; NULL: the same */
    bool accumulate;
    enum bias_group bias;
};

struct architecture {
    const char *name;
    const char *form_name[FORM_COUNT]; /* general.architecture of GGUF, model_type of config.json;
                                          NULL: none of its own */
    const char *block_prefix[FORM_COUNT]; /* "blk.": before the block's number */
    enum rope_style rope[FORM_COUNT];
    const struct op_recipe *embed, *attention, *mlp, *head;
    const char *const *unneeded[FORM_COUNT]; /* endings of tensor names that may be there and say
                                                nothing; NULL-terminated, or NULL */
    /* What transformers takes where config.json lacks the key; 0: none. */
    int default_context, default_kv_heads, default_window;
};

/* What a file says of its model, given meaning by its family. */
struct model_facts {
    const struct architecture *family;
    enum model_form form;
    enum bias_policy bias[BIAS_GROUP_COUNT];
    struct model_config config;
};

/* Every dimension (vocabulary, width, heads * head_dim, MLP width), every head size and count of
 * blocks is at most these. */
enum {
    MODEL_DIMENSION_MAX = 1 << 24,
    MODEL_HEAD_MAX = 1 << 16,
    MODEL_BLOCKS_MAX = 1 << 16,
    MODEL_CONTEXT_MAX = 1 << 30
};

/* HP_EUNSUPPORTED naming what the file has and what is known. `name` need not be a C string. */
int architecture_find(enum model_form form, const char *file, const char *name, size_t size,
                      const struct architecture **out, struct err *e);

/* From the keys of a GGUF file (config_gguf.c) or from config.json (config_hub.c). Strings and
 * factors are made in the arena; `t` gives the sizes and the rope factors that GGUF keeps in
 * tensors. */
int facts_from_gguf(const struct gguf *g, const char *file, struct weight_table *t,
                    struct arena *arena, struct model_facts *out, struct err *e);
int facts_from_hub(const struct json_at *config, struct arena *arena, struct model_facts *out,
                   struct err *e);

/* What holds for any family: dimensions within bounds, heads that divide. `file` is for messages.
 */
int facts_check(const struct model_facts *f, const char *file, struct err *e);

#endif
