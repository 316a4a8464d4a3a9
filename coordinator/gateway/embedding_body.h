/* The body of a request for embeddings, and the answer's: from JSON to tokens, from rows to JSON.
 * Only openai_embedding.c works with it. No I/O and nothing shared: any thread may work on one. */
#ifndef HP_COORDINATOR_GATEWAY_EMBEDDING_BODY_H
#define HP_COORDINATOR_GATEWAY_EMBEDDING_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "coordinator/gateway/body_ids.h"
#include "model/model.h"

enum { EMBEDDING_MAX_TEXTS = 2048 };

/* Whose fields, and whose answer. */
enum embedding_form {
    EMBEDDING_OPENAI,
    EMBEDDING_OLLAMA,     /* POST /api/embed */
    EMBEDDING_OLLAMA_ONE, /* POST /api/embeddings, the older one: a "prompt" and one row */
    EMBEDDING_LLAMA,      /* llama-server's POST /embedding: a "content", and rows in rows */
    EMBEDDING_RERANK,     /* POST /v1/rerank (rank_body.h) */
    EMBEDDING_SCORE,      /* POST /v1/score (the same) */
};
static inline bool embedding_speaks_ollama(enum embedding_form f)
{
    return f == EMBEDDING_OLLAMA || f == EMBEDDING_OLLAMA_ONE;
}
/* The rows are not told, but how near they are. */
static inline bool embedding_compares(enum embedding_form f)
{
    return f == EMBEDDING_RERANK || f == EMBEDDING_SCORE;
}

/* One text, or one list of ids. */
struct embedding_text {
    struct buffer ids; /* u32 each; freed when they are in the core */
    size_t n_ids;
    float *row; /* [width] */
};

/* Zero-initialised is empty. */
struct embedding_body {
    json_t *root;        /* until its inputs are taken */
    struct body_ids ids; /* of "input", until then as well */
    char *name;          /* of the model; NULL until it is known where there is but one */
    bool base64;
    bool scales; /* rows, to length 1, whatever the model says */
    enum embedding_form form;
    json_t *compared;       /* texts that are, those in whose light first: n_queries */
    size_t n_queries, best; /* best: so many are told */
    bool returns_texts;
    /* What the loop knows of the model, before the inputs are taken. */
    struct model *model; /* shared */
    bool normalised;
    size_t width, dimensions; /* of a row, and the first of these that are asked for */
    uint64_t context;
    struct embedding_text *texts; /* [n_texts] */
    size_t n_texts;
    uint64_t prompt_tokens;
    /* Of the last call that failed; each may be NULL. */
    struct err failure;
    const char *param, *code;
};

/* What the body calls the texts that rows are made of. */
const char *embedding_body_field(const struct embedding_body *b);
/* Reads all but the inputs. HP_EINVAL: `failure` says what is wrong, `param` the field. */
int embedding_body_parse(struct embedding_body *b, const char *text, size_t size);
/* Tokenizes the inputs and makes room for their rows. HP_EINVAL as above, HP_ENOMEM. */
int embedding_body_encode(struct embedding_body *b);
/* Appends the answer; rows, or what is asked for of them, are scaled to length 1 where the model
 * says so. */
void embedding_body_write(struct embedding_body *b, struct buffer *out);
void embedding_body_fini(struct embedding_body *b);

#endif
