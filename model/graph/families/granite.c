/* Granite: a LLaMA with factors on embedding, scores, residuals and logits. */
#include "model/graph/facts_source.h"
#include "model/graph/families/parts.h"

static int granite_facts(const struct facts_source *s, struct family_facts *f)
{
    struct model_config *c = &f->config;
    const struct facts_key divisor = {"logit_scale", "logits_scaling"};
    float logits = 1;
    int rc = facts_number(s, (struct facts_key){"attention.scale", "attention_multiplier"}, 1,
                          &c->score_scale);
    rc = rc < 0 ? rc
                : facts_number(s, (struct facts_key){"embedding_scale", "embedding_multiplier"}, 1,
                               &c->embedding_scale);
    rc = rc < 0 ? rc
                : facts_number(s, (struct facts_key){"residual_scale", "residual_multiplier"}, 1,
                               &c->residual_scale);
    rc = rc < 0 ? rc : facts_number(s, divisor, 1, &logits);
    if (rc == 0 && logits == 0)
        return facts_refuse(s, divisor, "logits are divided by 0");
    c->logit_scale = 1 / logits;
    return rc;
}

static void granite_build(struct graph_builder *b)
{
    const enum bias_policy *bias = b->facts->bias;
    part_decoder(b, &(struct part_decoder){.attention = {.qkv_bias = bias[BIAS_GROUP_ATTENTION],
                                                         .output_bias = bias[BIAS_GROUP_ATTENTION]},
                                           .mlp_bias = bias[BIAS_GROUP_MLP]});
}

const struct family family_granite = {.name = "granite",
                                      .form_name = {"granite", "granite"},
                                      .block_prefix = {"blk.", "model.layers."},
                                      .optional_prefix = {NULL, "model."},
                                      .names = weight_names_usual,
                                      .rope = {ROPE_PAIRS, ROPE_HALVES},
                                      .epsilon_key = "attention.layer_norm_rms_epsilon",
                                      .hub = &hub_keys_usual,
                                      .default_context = 2048,
                                      .facts = granite_facts,
                                      .build = granite_build};
