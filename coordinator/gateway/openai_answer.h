/* What one request is answered with: as many choices as it asked for, each the text of a request of
 * the core. They go out interleaved, as events of a stream, or all in one reply when the last is
 * over. Only openai*.c includes this; on the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_ANSWER_H
#define HP_COORDINATOR_GATEWAY_OPENAI_ANSWER_H

#include "coordinator/gateway/answer_reader.h"
#include "coordinator/gateway/answer_scores.h"
#include "coordinator/gateway/completion.h"
#include "coordinator/gateway/http.h"
#include "coordinator/gateway/openai_json.h"

struct pool_scores; /* pool_scores.h */

struct openai_choice {
    void *owner; /* whose callbacks get it */
    uint32_t index;
    uint64_t request;           /* the core's; 0: not begun, or over */
    struct pool_scores *scored; /* that of pools instead; the same */
    const char *finish;         /* NULL: it goes on */
    uint32_t n_read;            /* tokens that were taken; of a kept answer, for `id:` lines, */
    uint32_t n_had;             /* and those that its reader has from before, */
    bool had_end;               /* with its end */
    struct request_usage usage; /* so far: its tokens, and times where its stream tells them */
    uint64_t first_ns; /* when its first token came, where that is asked for; 0: none has */
    struct completion_text text;
    struct answer_scores scores;
    const char *echo; /* [n_echo], borrowed: the prompt's text, which is told first */
    size_t n_echo;
    struct answer_reader reader;         /* of the text: what it is made of */
    struct buffer said, reasoned, calls; /* of a whole message, as far as it was read */
    uint64_t n_reasoned; /* tokens that came as reasoning, where its dialect tells of them */
};

struct openai_answer {
    struct http_exchange *x; /* borrowed */
    struct openai_head head;
    struct answer_blocks blocks; /* the head's */
    bool stream;
    bool kept;                     /* it may be read once more (kept_streams.h), */
    bool marks;                    /* and its events have ids (event_ids.h) */
    bool told;                     /* something was read since the mark */
    struct openai_choice *choices; /* [n_choices] */
    uint32_t n_choices, n_left;    /* n_left: of those that are not over */
    uint32_t n_per_prompt;         /* the choices of a prompt follow each other, */
    uint32_t n_given;              /* and of so many as are made so many go out: the likeliest */
    struct request_usage usage;    /* each prompt once, the output of all that are over; times are
                                      the longest */
};

/* n choices with these stop strings, none of which has begun. HP_ENOMEM; answer_fini either way. */
int answer_init(struct openai_answer *a, uint32_t n, void *owner, const struct tokenizer *t,
                char *const *stops, int n_stops, struct err *e);
/* What is looked for in the text, before any has come; names and format are borrowed. HP_ENOMEM. */
int answer_expect(struct openai_answer *a, const struct answer_rules *rules, struct err *e);
void answer_fini(struct openai_answer *a);

/* Heads of a stream's choices; `had`: by who has them from before. */
void answer_begin(struct openai_answer *a, bool had);
/* Before tokens are taken: where in a stream what is read of them will begin. */
size_t answer_mark(struct openai_answer *a);
/* Behind each of them: reads it, where somebody wants to know how many are reasoning. */
void answer_count(struct openai_answer *a, struct openai_choice *c);
/* What was read of them since that mark is the reader's, who may have it from before (`had`). */
void answer_settle(struct openai_answer *a, size_t mark, bool had);
/* What may be handed out of a stream's choice goes out, from that mark on; false when the client
 * does not take it. `had`: nothing does, the reader has it from before. */
bool answer_push(struct openai_answer *a, struct openai_choice *c, size_t mark, bool had);
/* A choice is over. The last one ends the reply; before that false says that the client does not
 * take a stream. */
bool answer_choice_end(struct openai_answer *a, struct openai_choice *c, const char *finish,
                       const struct request_usage *usage);
/* Ends a stream that has begun with an error, behind all the text that has come. */
void answer_fail(struct openai_answer *a, int http_status, const struct err *why);

#endif
