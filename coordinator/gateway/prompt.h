/* From a body to the tokens that are fed to the model: JSON, template, tokenizer. Runs on any
 * thread: it touches what it is given, and a model whose text parts were prepared
 * (model_text_prepare). Only openai*.c and text_work.c include this. */
#ifndef HP_COORDINATOR_GATEWAY_PROMPT_H
#define HP_COORDINATOR_GATEWAY_PROMPT_H

#include "coordinator/gateway/openai_body.h"
#include "model/model.h"

/* What became of it. */
struct prompt {
    struct buffer ids;       /* u32 each, of all the body's prompts */
    struct buffer ends;      /* size_t each: how many ids there are up to the end of each prompt */
    struct buffer echo;      /* the texts of these prompts, where they are to be echoed */
    struct buffer echo_ends; /* size_t each: of them in `echo` */
    bool reasons;            /* it ends with what begins the answer's reasoning */
    int rc;
    struct err *failure;      /* the caller's: why it failed */
    const char *param, *code; /* of the refusal; NULL */
};

/* The body's messages as their template writes them; with `continues`, up to the end of the last
 * one's content. HP_EINVAL, HP_EUNSUPPORTED, HP_ENOMEM. */
int prompt_render(const struct openai_body *b, struct model *model, struct buffer *out,
                  struct err *e);

void prompt_free(struct prompt *p);

/* Fills `out`, and the grammar of the body's sampling where the answer or its calls are held to
 * one; frees what the body holds of the prompt. `why` becomes out->failure, and lives as long as
 * that is read. A prompt that cannot fit into `context` is refused by its bytes before it is
 * tokenized, with the code and in the words that clients know ("context_length_exceeded"). */
void prompt_make(struct openai_body *b, struct model *model, uint64_t context, struct prompt *out,
                 struct err *why);

#endif
