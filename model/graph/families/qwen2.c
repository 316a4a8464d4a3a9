/* Qwen2 and 2.5: a LLaMA whose q, k and v have biases. */
#include "model/graph/families/parts.h"

static void qwen2_build(struct graph_builder *b)
{
    part_decoder(b, &(struct part_decoder){.attention = {.qkv_bias = BIAS_ALWAYS}});
}

const struct family family_qwen2 = {.name = "qwen2",
                                    .form_name = {"qwen2", "qwen2"},
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
                                    .build = qwen2_build};
