/* Families of models: what a file calls them, how their weights are named, and the function that
 * writes their graph (families/). One file a family; families/families.c lists them. A new family
 * that computes with the operators there are is one file and one line of that list. */
#ifndef HP_MODEL_GRAPH_FAMILY_H
#define HP_MODEL_GRAPH_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "model/graph/config.h"

enum model_form { FORM_GGUF, FORM_HUB, FORM_COUNT };

/* Matrices whose biases a config switches together. */
enum bias_group { BIAS_GROUP_ATTENTION, BIAS_GROUP_MLP, BIAS_GROUP_COUNT };
enum bias_policy { BIAS_NEVER, BIAS_ALWAYS, BIAS_AS_FOUND };

/* A weight in either kind of file, without ".weight" and without the block's prefix. A family's
 * graph uses GGUF's name. A name that ends with `!` is whole: no ".weight" follows. */
struct weight_name {
    const char *in[FORM_COUNT];
};

/* How a GGUF file's tensor is cut out of the Hub's, where it is not the whole of it. */
enum weight_cut {
    CUT_NONE,
    CUT_UNWRITTEN, /* a name that no file is written with */
    CUT_EVEN_ROWS, /* outputs by turns */
    CUT_ODD_ROWS,
    CUT_EVEN_ELEMENTS, /* the same of a row of biases */
    CUT_ODD_ELEMENTS,
    CUT_HEAD_KEYS, /* of each head the rows of keys, turned; of values */
    CUT_HEAD_VALUES,
};
struct weight_cut_row {
    const char *name; /* of GGUF */
    enum weight_cut cut;
};

/* What config.json calls the sizes. */
struct hub_keys {
    const char *width, *blocks, *heads, *kv_heads, *mlp_width, *context, *epsilon, *activation;
    const char *rotated; /* elements of a head that rotate, where that is a key; NULL: none */
    const char *activations[3]; /* its known names, the usual one first; NULL-terminated */
    int default_mlp;            /* times the width, where the key is missing or null; 0: it must be
                                   there */
    double default_epsilon;
};

struct graph_builder;
struct facts_source;
struct family_facts;

struct family {
    const char *name;
    const char *form_name[FORM_COUNT]; /* general.architecture of GGUF, model_type of config.json;
                                          NULL: none of its own */
    const char *written_as; /* general.architecture of GGUF files that are made of it; NULL: its
                               name there */
    const char *block_prefix[FORM_COUNT]; /* "blk.": before the block's number */
    const struct weight_name *names;      /* ends with an empty row */
    const struct weight_cut_row *cuts;    /* ends with an empty row; NULL: none */
    const char
        *optional_prefix[FORM_COUNT]; /* that some files leave out of all names; NULL: none */
    enum rope_style rope[FORM_COUNT];
    bool norms_of_one[FORM_COUNT];   /* weights of RMS norms are kept as what they differ from 1 */
    bool experts_turned[FORM_COUNT]; /* the same of experts' alone */
    bool turned[FORM_COUNT]; /* matrices lie as [inputs, outputs], but for embedding and head */
    const char *epsilon_key; /* of GGUF, below the architecture's name */
    const struct hub_keys *hub;
    const char *const *unneeded[FORM_COUNT]; /* endings of tensor names that may be there and say
                                                nothing; NULL-terminated, or NULL */
    /* Special tokens of GGUF files swallow the white space after them, but for these, which are
     * spelled so; NULL: none swallows any. NULL-terminated. */
    const char *const *keeping_marks;
    /* What transformers takes where config.json lacks the key; 0: none. */
    int default_context, default_kv_heads, default_window;
    int gguf_window;      /* of GGUF files that do not say theirs; 0: they have none */
    bool capped;          /* scores and logits have caps unless a file says that they have none */
    bool values_differ;   /* in size from keys: the family reads both by itself */
    bool window_switched; /* the window counts where use_sliding_window says so, and from block
                             max_window_layers on */
    int default_window_blocks;
    int window_period; /* every so many blocks one has no window; 0: all from max_window_layers on
                          have one */
    bool default_tied;
    /* Reads what the family alone has, when the rest is there; NULL: nothing. */
    int (*facts)(const struct facts_source *s, struct family_facts *f);
    /* Writes the operators, layer by layer. Errors stay in the builder. */
    void (*build)(struct graph_builder *b);
};

/* What a file says of its model, given meaning by its family. */
struct family_facts {
    const struct family *family;
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
int family_find(enum model_form form, const char *file, const char *name, size_t size,
                const struct family **out, struct err *e);

/* general.architecture of the GGUF files that are made of a model. */
const char *family_written(const struct family *f);

/* What holds for any family: dimensions within bounds, heads that divide. `file` is for messages.
 */
int facts_check(const struct family_facts *f, const char *file, struct err *e);

extern const struct family family_llama, family_mistral, family_qwen2, family_qwen3, family_gpt2,
    family_granite, family_phi3, family_gemma2, family_gemma3, family_mixtral, family_qwen2_moe,
    family_qwen3_moe, family_gpt_oss, family_deepseek2, family_bert, family_roberta,
    family_xlm_roberta, family_camembert, family_distilbert;

#endif
