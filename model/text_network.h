/* Language models as networks: what pools serve. An encoder, or a decoder, of any length up to its
 * context becomes an ONNX graph (model/files/onnx.h), so that it is profiled, cut, planned and run
 * as every other network; matrices stay where they lie in the file until a plan uses them.
 *
 *     input_ids      int64 [batch, tokens]
 *     attention_mask int64 [batch, tokens]: 1, and 0 behind the end of a shorter text
 *     embedding      float32 [batch, width]: the rows pooled as the model says, their length as it
 *                    is
 *     logprobs       float32 [batch, tokens], of a model without pooling: the logarithmic
 *                    probability of each token behind those before it; 0 for the first
 *     likeliest      int64 [batch, tokens]: the token that is the likeliest there, and
 *     likeliest_logprobs float32 [batch, tokens]: how likely that is
 *
 * Products, tables and mixtures of experts work on the weights as the file has them
 * (model/onnx/rows.h); norms, biases and tables of positions are float32. */
#ifndef HP_MODEL_TEXT_NETWORK_H
#define HP_MODEL_TEXT_NETWORK_H

#include "model/model.h"
#include "model/onnx/network.h"

#define TEXT_INPUT_IDS "input_ids"
#define TEXT_INPUT_MASK "attention_mask"
#define TEXT_OUTPUT_ROW "embedding"
#define TEXT_OUTPUT_SCORES "logprobs"
#define TEXT_OUTPUT_LIKELIEST "likeliest"
#define TEXT_OUTPUT_LIKELIEST_SCORES "likeliest_logprobs"
/* Of a model that pools one output, of others these, in this order. */
enum { TEXT_OUTPUTS_ROW = 1, TEXT_OUTPUTS_SCORES = 3 };

/* The longest text that its network takes. */
int64_t text_network_longest(const struct model *m);
/* Whether the file or folder is a language model's, and no ONNX file. */
bool text_network_is(const char *path);
/* Opens either: as network_open and model_open have it; HP_EUNSUPPORTED also names an operator of a
 * language model that has no form in a network. The model is open as long as the network. */
int text_network_open(const char *path, uint64_t limit_bytes, struct onnx_network **out,
                      struct err *e);

#endif
