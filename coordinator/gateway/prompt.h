/* From a body to the tokens that are fed to the model: JSON, template, tokenizer. Runs on any
 * thread: it touches what it is given, and a model whose text parts were prepared
 * (model_text_prepare). Only openai*.c and prompt.c include this. */
#ifndef HP_COORDINATOR_GATEWAY_PROMPT_H
#define HP_COORDINATOR_GATEWAY_PROMPT_H

#include "coordinator/gateway/openai_body.h"
#include "model/model.h"

/* What became of it. */
struct prompt {
    struct buffer ids; /* u32 each */
    int rc;
    struct err failure;
    const char *param, *code; /* of the refusal; NULL */
};

/* Fills `out` and frees what the body holds of the prompt. A prompt that cannot fit into `context`
 * is refused by its bytes before it is tokenized, with the code and in the words that clients know
 * ("context_length_exceeded"). */
void prompt_make(struct openai_body *b, struct model *model, uint64_t context, struct prompt *out);

#endif
