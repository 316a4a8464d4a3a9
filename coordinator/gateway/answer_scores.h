/* How likely the tokens of an answer were, and those of its prompt, as rows of JSON that grow as
 * tokens come: OpenAI's two shapes of "logprobs", llama-server's "completion_probabilities" with
 * its "tokens", and vLLM's "prompt_logprobs". No I/O; on the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_ANSWER_SCORES_H
#define HP_COORDINATOR_GATEWAY_ANSWER_SCORES_H

#include <stdbool.h>

#include "common/bytes.h"
#include "common/score.h"
#include "model/tokenizer/tokenizer.h"

/* Rows of one reply together have no more bytes than this, and those of all replies that are being
 * made: what a request may ask for is more than a reply should be. */
enum { ANSWER_SCORES_BYTES = 32 << 20, ANSWER_SCORES_ALL_BYTES = 256 << 20 };

struct answer_scores {
    const struct tokenizer *tokenizer; /* borrowed; NULL: nobody asked */
    enum answer_scores_shape { SCORES_OF_COMPLETION, SCORES_OF_CHAT, SCORES_OF_LLAMA } shape;
    bool probabilities;       /* instead of their logarithms; llama-server's alone */
    bool lists_ids;           /* ... and its ids of the tokens */
    bool tells;               /* "logprobs" is asked for: also of the prompt, where it is echoed */
    bool all;                 /* "prompt_logprobs" is */
    uint32_t top, prompt_top; /* the likeliest that each of the two has */
    uint32_t said_width, prompt_width; /* scores a token that come from the core */
    struct buffer waiting;             /* struct score: of tokens that have not come */
    /* completions: a list each; the others: objects in `tokens` */
    struct buffer tokens, values, tops, offsets;
    struct buffer ids;
    struct buffer prompt; /* prompt_logprobs */
    uint64_t offset;      /* of the next token, in characters of the text */
    size_t n_prompt;      /* tokens of the prompt that are there */
    double sum;           /* of the answer's logarithms, */
    size_t n_summed;      /* of so many tokens */
    size_t counted_bytes; /* of all this, as its owner last counted them */
};

void answer_scores_fini(struct answer_scores *s);
/* The next token of a prompt, with its row of prompt_width (NULL: it is the first, which follows
 * nothing). `echoed`: it stands in the answer, and its text there. */
void answer_scores_prompt(struct answer_scores *s, uint32_t id, const struct score *row,
                          bool echoed);
/* Scores came: rows of tokens that come next. */
void answer_scores_come(struct answer_scores *s, const struct score *scores, size_t n);
/* The next token of the answer: takes its row from those that came. */
void answer_scores_token(struct answer_scores *s, uint32_t id);
/* A token that ends the answer and is none of its text: completions and llama-server list it with
 * the others, as many as were made, and evaluation harnesses leave out the last one that they find;
 * chats do not. */
void answer_scores_end(struct answer_scores *s, uint32_t id);
/* Of the answer's tokens so far; 0 where nothing came of them. */
double answer_scores_mean(const struct answer_scores *s);
/* There was no memory for some of it. */
bool answer_scores_failed(const struct answer_scores *s);
size_t answer_scores_bytes(const struct answer_scores *s);
/* Whether there is something to hand out. */
bool answer_scores_wait(const struct answer_scores *s);
/* `,"logprobs":{...}`: what is there, which is dropped; null where nothing was asked for. */
void answer_scores_write(struct answer_scores *s, struct buffer *out);
/* The rows of a chat, or of llama-server's, as one list, "[...]"; dropped. */
void answer_scores_write_list(struct answer_scores *s, struct buffer *out);
/* The ids as a list; dropped. */
void answer_scores_write_ids(struct answer_scores *s, struct buffer *out);
/* `,"prompt_logprobs":[...]`, or nothing. */
void answer_scores_write_prompt(struct answer_scores *s, struct buffer *out);

#endif
