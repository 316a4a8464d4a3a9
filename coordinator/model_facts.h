/* What the core needs to know of a model; the shell opens the model (tests make one up). */
#ifndef HP_COORDINATOR_MODEL_FACTS_H
#define HP_COORDINATOR_MODEL_FACTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/pack.h"
#include "common/profile_parts.h"

struct model;

struct layer_facts {
    const char *name, *class_name;
    uint64_t param_bytes, elements; /* as the file has them; numbers */
    uint64_t state_bytes_per_token, output_bytes_per_token;
    double flops_per_token;
    uint64_t expert_bytes; /* of param_bytes: of these a token reads only the experts it takes */
    int experts, experts_used; /* 0: no mixture */
    uint32_t window; /* of its attentions, the widest: so many tokens' state is kept; 0: of all */
    uint64_t kept_bytes, kept_f32_bytes; /* what a device holds of them with compute `auto` and
                                            `f32`, by their number formats; 0: not known */
};

enum { MODEL_WINDOWS = 8, MODEL_KV_GROUPS = 8 };

struct model_facts {
    const char *architecture;
    const struct pack_list *borders; /* [n_layers], struct message_value: what crosses after each;
                                        NULL: not said */
    const struct layer_facts *layers;
    int n_layers;
    const struct profile_part *parts; /* [n_layers] of a model that is divided
                                         (model_open_divided); NULL: it is whole */
    const char *const *needs; /* what a device must run: kinds of operators and number formats by
                                 name; NULL-terminated, or NULL: not said */
    uint32_t vocabulary, width, context;
    uint32_t long_from; /* sequences that may reach more rotate by factors of their own; 0: none do
                         */
    uint32_t windows[MODEL_WINDOWS + 1]; /* of its attentions, each size once; 0 ends them */
    uint32_t
        odd_head; /* elements of a key or value that no whole blocks of KV_Q8_0 hold; 0: none */
    /* [n_layers + 1]: of each group of attentions whose keys and values look alike, how many stand
     * before a layer: so groups and blocks are numbered in orders (agent/engine/kv_groups.h). NULL:
     * not said. */
    const uint32_t (*kv_before)[MODEL_KV_GROUPS];
    uint32_t pooling; /* enum model_pooling: an encoder, whose texts are one batch each; 0: not */
    double
        workspace_bytes_per_token; /* of a batch: what a stage holds beside weights and KV cache */
    double expert_rows_bytes_per_token; /* of these: scratch of products with experts */
    const uint32_t *end_ids;
    size_t n_end_ids;
    struct model *handle; /* handed through to requests.h; may be NULL */
    /* Text of ids, for `greedy`; NULL: none is given. */
    int (*text)(void *ctx, const uint32_t *ids, size_t n, struct buffer *out);
    void *text_ctx;
};

#endif
