/* Qwen3: a LLaMA whose queries and keys are normed head by head. */
#include "model/graph/families/parts.h"

static void qwen3_build(struct graph_builder *b)
{
    enum bias_policy bias = b->facts->bias[BIAS_GROUP_ATTENTION];
    part_decoder(b, &(struct part_decoder){
                        .attention = {.qkv_bias = bias, .output_bias = bias, .head_norms = true}});
}

const struct family family_qwen3 = {.name = "qwen3",
                                    .form_name = {"qwen3", "qwen3"},
                                    .block_prefix = {"blk.", "model.layers."},
                                    .optional_prefix = {NULL, "model."},
                                    .names = weight_names_usual,
                                    .rope = {ROPE_HALVES, ROPE_HALVES},
                                    .epsilon_key = "attention.layer_norm_rms_epsilon",
                                    .hub = &hub_keys_usual,
                                    .default_context = 32768,
                                    .default_kv_heads = 32,
                                    .default_window = 4096,
                                    .window_switched = true,
                                    .default_window_blocks = 28,
                                    .build = qwen3_build};
