/* A request for a completion, from its body to its answer. Only these include this:
 *
 *     openai_completion.c         reads the body, makes prompts of it
 *     openai_choices.c            opens its choices in the core, and answers with their tokens
 *     openai_kept.c               choices of answers that outlive their readers
 *     openai_completion_life.c    its beginning and its ends
 *
 * On the loop's thread, but for the fields that a worker has while `working`. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_COMPLETION_INT_H
#define HP_COORDINATOR_GATEWAY_OPENAI_COMPLETION_INT_H

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/event_ids.h"
#include "coordinator/gateway/kept_streams.h"
#include "coordinator/gateway/openai.h"
#include "coordinator/gateway/openai_answer.h"
#include "coordinator/gateway/patience.h"
#include "coordinator/gateway/prompt.h"

struct completion {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct completion *next, **link;
    struct piece piece;
    bool working; /* a worker has it */
    bool streams; /* its stream has begun */
    bool spoke;   /* it has told something since the last pulse */
    char client[REQUEST_CLIENT_BYTES];
    bool chat;
    struct buffer raw;
    struct openai_body *body;
    int parsed;
    const char *param;
    struct err *failure; /* of parsing and encoding; NULL afterwards: streams that wait are many */
    struct model *model; /* shared */
    bool in_pools;       /* these serve the model */
    uint64_t came_ns;
    uint64_t context;
    uint32_t retry_after_s;
    struct prompt prompt;
    /* While the core's queue is full and nothing of this request is in it. */
    struct patience patience;
    uint32_t n_opened;        /* of the answer's choices */
    struct kept_stream *kept; /* it may be read once more; NULL: only now */
    bool again;               /* it is */
    bool goes_on;             /* its reader has a part of it */
    size_t scores_bytes;      /* of logprobs that its choices hold */
    struct openai_answer answer;
};

/* ---- openai_completion_life.c ---- */

/* One among o->open. NULL: no memory. */
struct completion *completion_create(struct openai *o, struct http_exchange *x,
                                     const struct dialect *d, bool chat, const char *client);
void completion_destroy(struct completion *c);
/* All of these end it: it may be gone afterwards. */

/* Somebody else reads its answer from now on. */
void completion_taken(void *ctx);
/* Answers with an error, before anything of it runs; `param` and `code` may be NULL. */
void completion_refuse(struct completion *c, int rc, const char *text, const char *param,
                       const char *code);
/* What runs of it ends; its reader is told why. */
void completion_fail(struct completion *c, const struct err *why);
/* Its client does not take its stream. */
void completion_give_up(struct completion *c);

/* ---- openai_kept.c: of an answer that outlives its reader; of others the core's own ---- */

int completion_choice_open(struct completion *c, struct openai_choice *choice,
                           const struct request_spec *spec, struct err *e);
/* The choice goes on where its answer is kept, unless it is satisfied. */
void completion_choice_leave(struct completion *c, struct openai_choice *choice, bool satisfied,
                             struct request_usage *usage);
/* Its choices know how far their reader is. */
void completion_position_read(struct completion *c);
void completion_unkeep(struct completion *c);

/* ---- openai_choices.c ---- */

/* Its prompts are made: as many of them as may be in the core at once are opened, the others
 * follow. It may be gone afterwards. */
void completion_open(struct completion *c);

#endif
