/* What a gateway may ask of the coordinator: which models are served, and to run a prompt on one. A
 * table of functions, so that a gateway is tested against a table of its own and never sees the
 * core.
 *
 * All on the coordinator's loop thread, nothing blocks. Callbacks come from the loop, never from
 * within a call of this table. */
#ifndef HP_COORDINATOR_REQUESTS_H
#define HP_COORDINATOR_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/bytes.h"
#include "common/pack.h"
#include "common/sampling.h"
#include "common/score.h"

struct model;      /* model/model.h */
struct coord_work; /* coordinator/work.h */

enum {
    REQUEST_MAX_MODELS = 256,
    REQUEST_KEY_NAME_BYTES = 64,
    REQUEST_CLIENT_BYTES = 80,
    REQUEST_PRIORITY_MOST = 100
};

/* One deployment. Valid until control returns to the loop; `model` as long as the deployment is
 * listed, so ask again when a request begins. */
struct request_model {
    const char *name;       /* of the deployment: the model's name in the API */
    const char *state;      /* "serving" and the other words of a deployment's state */
    const char *state_text; /* for people: why it does not serve; "" when it does */
    bool serving;
    bool waits;             /* it does not, for a moment: requests are taken, and wait for it */
    uint64_t created_s;     /* Unix time */
    uint64_t context;       /* longest sequence: prompt and output */
    uint32_t vocabulary;    /* ids are below it */
    uint32_t slots, busy;   /* sequences that it may have at once, and has */
    bool embeds;            /* it gives rows and writes no text */
    uint32_t retry_after_s; /* at least 1: when one that is refused now (the queue is full, it does
                               not serve) had better come again */
    const char *content;    /* digest of the model's content, in hexadecimal; NULL: not known */
    struct model *model;    /* tokenizer, chat template, vocabulary; there when it serves */
};

enum request_finish {
    REQUEST_STOP,   /* an end token: it was sampled, counted, and not handed out */
    REQUEST_LENGTH, /* max_tokens, or the end of the context */
};

struct request_usage {
    uint64_t prompt_tokens, output_tokens; /* output counts the end token */
    uint64_t cached_tokens;    /* of the prompt: those that another request had computed */
    double waited_s;           /* in the queue, before its stages heard of it */
    double prefill_s;          /* until the first token was made */
    double decode_s;           /* from the first to the last, as they were made */
    double planned_s;          /* what the plan says of the prompt, read alone; 0: not known */
    uint32_t end_token;        /* that was sampled, where it ended by one */
    uint64_t reasoning_tokens; /* of the output, as whoever reads it counted them; the core's: 0 */
};

/* A client's request as its answer has it in x-request-id, and lines of the log that are about it;
 * "-" of 0, which is none. */
enum { REQUEST_NAME_BYTES = 24 };
struct request_name {
    char s[REQUEST_NAME_BYTES];
};
static inline struct request_name request_name(uint64_t number)
{
    struct request_name name = {"-"};
    if (number)
        snprintf(name.s, sizeof name.s, "req_%016llx", (unsigned long long)number);
    return name;
}

struct request_callbacks {
    void *ctx;
    /* Ids in the order they were sampled, at least one a call. */
    void (*tokens)(void *ctx, uint64_t request, const uint32_t *ids, size_t n);
    /* Exactly one of these two closes a request that was not cancelled; nothing follows. */
    void (*finished)(void *ctx, uint64_t request, enum request_finish finish,
                     const struct request_usage *usage);
    void (*failed)(void *ctx, uint64_t request, const struct err *why,
                   const struct request_usage *usage);
    /* Of a request with `embed`, which has no tokens: the pooled row, before it is finished. */
    void (*row)(void *ctx, uint64_t request, const float *values, size_t n);
    /* Of a request with `said_scores` or `prompt_scores`: rows of so many scores, `n` in all. Those
     * of the prompt (of all its tokens but the first, in their order) come before any token, those
     * of tokens right before these, and that of an end token with the others of its run. */
    void (*scores)(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                   size_t n);
};

struct request_spec {
    const char *model;      /* name of the deployment */
    const uint32_t *prompt; /* copied */
    size_t n_prompt;
    uint64_t max_tokens; /* 0: to the end of the context; more than fits is cut to what fits */
    const struct sampling_params *sampling; /* copied */
    bool ignore_end;                        /* samples on after end tokens */
    uint64_t fork_of; /* a request with the same prompt, opened just before: this one begins with
                         what that one's stages have computed; 0: none */
    uint32_t n_forks; /* so many follow that fork of this one */
    int32_t priority; /* lower goes first; a key's is not below 0, and its own is added */
    bool embed;       /* an encoder's row of the prompt instead of tokens; other models refuse */
    uint32_t said_scores;   /* 1 + n: each token comes with its logarithmic probability and the n
                               likeliest; 0: without */
    uint32_t prompt_scores; /* the same of the prompt, which is computed as a whole then; forks are
                               not to be asked for */
    const char *client;     /* who asks, for fair shares of the queue: "key NAME" or "address A";
                               copied; NULL: nobody in particular */
    uint64_t number;        /* of the client's request that it is part of (request_name); 0: none */
    struct request_callbacks callbacks;
    /* A number by chance, the request's own: it outlives the coordinator, whose next run has it in
     * `streams`. Not of one with `embed` or scores of its prompt. 0: it ends with this run. */
    uint64_t stream;
    struct pack_span note; /* with `stream`: whatever the caller wants to have back then; copied */
};

/* A request of an earlier run. */
struct request_before {
    uint64_t stream;
    struct pack_span note;
    bool ended; /* with this answer, as it was told; else it goes on, and attach brings all its
                   tokens */
    const uint32_t *ids;
    size_t n;
    const struct score *scores; /* as they were told, end token and all */
    size_t n_scores;
    enum request_finish finish;
    struct request_usage usage;
};

/* What people look at, as JSON. */
enum request_document {
    DOCUMENT_CLUSTER,  /* {"cluster", "version", "boot", "clock_s", "agents": what `node ls -o json`
                          lists, "deployments": what `ps -o json` does} */
    DOCUMENT_TOPOLOGY, /* hp-cluster/1 with what is unreachable and doubted (topology.h) */
    DOCUMENT_AGENT,    /* of the name: what `node describe -o json` says */
    DOCUMENT_DEPLOYMENT, /* of the name: what `describe -o json` says, with all prompts kept */
};

/* A plan of a deployment over other boxes than it has, made beside what runs and never carried out.
 */
struct request_what_if {
    const char *deployment;
    const char *without; /* agents and devices that may not be used, with commas between */
    /* Exactly once, unless `what_if` of struct requests refused it. `why`: there is no plan, and
     * this is why; else `json`, n bytes that are gone afterwards: {"deployment", "without",
     * "prompt_tokens", "answer_tokens", "context", "sequences", "wire", "wire_why", "before" (null
     * where it does not serve), "after": {"ttft_s", "tpot_s", "tokens_per_s", "requests_per_s"},
     * "timeline": [of each stage {"arrive_s", "start_s", "end_s"} by slice], "plan": hp-plan/1}. */
    void (*done)(void *ctx, const char *json, size_t n, const struct err *why);
    void *ctx;
};

/* How a limit of an API key stands; `limit` 0: there is none. */
struct request_limit {
    uint64_t limit, remaining;
    double reset_s; /* until all of it is there again; negative: it does not come back */
};
struct request_limits {
    struct request_limit requests, tokens;
    bool some_models; /* it may use some deployments, not all */
};

/* Takes one figure, for requests.metrics. */
typedef void (*metrics_row_fn)(void *out, const char *name, const char *type, const char *help,
                               const char *labels, double value);

/* Who asks is a `client`: "key NAME" (an API key), "address A", or NULL for nobody in particular.
 */
struct requests {
    void *ctx;
    /* Writes up to `max` rows of what the client may use, sorted by name, and returns how many
     * there are. */
    int (*models)(void *ctx, const char *client, struct request_model *out, int max);
    /* The row of one name; HP_ENOENT names those that there are; HP_EDENIED: it is not for this
     * client. */
    int (*find)(void *ctx, const char *client, const char *name, struct request_model *out,
                struct err *e);
    /* One request more of this client, before its body is read: counted unless its key's limits
     * refuse it: HP_ERATE, HP_EQUOTA, and *retry_after_s (at least 1) says when to come again. */
    int (*begin)(void *ctx, const char *client, uint32_t *retry_after_s, struct err *e);
    /* How the limits of the client's key stand. False: it is no key. */
    bool (*limits)(void *ctx, const char *client, struct request_limits *out);
    /* Admits a request or puts it in the queue. *id is never 0. HP_ENOENT: no such model;
     * HP_EINVAL: empty prompt, an id beyond the vocabulary, a prompt that leaves no room for a
     * token (the text names both lengths); HP_EBUSY: the queue is full or the deployment does not
     * serve now (retry later); HP_EDENIED, HP_ERATE, HP_EQUOTA, HP_ELIMIT: its key may not use the
     * model, or not now, or not so much at once. Where a budget leaves less than `max_tokens`, that
     * is the most that the answer gets. */
    int (*open)(void *ctx, const struct request_spec *r, uint64_t *id, struct err *e);
    /* No callback of it comes any more; every stage frees the sequence before its next batch.
     * `satisfied`: a stop string ended it; else the client is gone. Of an unknown or closed
     * request: nothing. May be called from a callback. *usage (may be NULL) is what was used so
     * far. */
    void (*cancel)(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage);
    /* What was used so far by a request that is open; false: it is not. */
    bool (*usage)(void *ctx, uint64_t id, struct request_usage *out);
    /* API keys: how many there are, and whether this text is one of them; its name comes in `name`
     * (may be NULL). */
    int (*api_keys)(void *ctx);
    bool (*api_key_allowed)(void *ctx, const char *key, char name[REQUEST_KEY_NAME_BYTES]);
    /* Every figure that the coordinator keeps, as Prometheus has them: rows of one name follow each
     * other. `type` is "counter" or "gauge"; `labels` is "" or `agent="a0",state="ready"`, already
     * escaped. */
    void (*metrics)(void *ctx, metrics_row_fn row, void *out);
    /* A document, appended to *out. HP_ENOENT: there is none of that name; HP_ENOMEM. */
    int (*document)(void *ctx, enum request_document which, const char *name, struct buffer *out,
                    struct err *e);
    /* HP_ENOENT: no such deployment, agent or device; HP_EBUSY: too many plans are being made. What
     * `w` points at is read during the call only. */
    int (*what_if)(void *ctx, const struct request_what_if *w, struct err *e);
    /* Work that is too long for the loop, such as a long prompt's tokens: `run` on another thread,
     * then `done` on the loop (coordinator/work.h says who owns it). `model` (may be NULL) stays
     * open until then, also when its deployment goes meanwhile. HP_EBUSY: too much is out;
     * HP_ENOENT: that model is closed; the work stays the caller's in both cases. `done` may come
     * after gateway_stop. */
    int (*work)(void *ctx, const struct model *model, struct coord_work *w, struct err *e);
    /* Requests of earlier runs that nobody has attached to so far; valid during `each`. */
    void (*streams)(void *ctx, void (*each)(void *out, const struct request_before *s), void *out);
    /* Its callbacks come from now on, with its first token. What `streams` told of it is forgotten.
     * 0: it has failed meanwhile, or had ended; else the request. */
    uint64_t (*attach)(void *ctx, uint64_t stream, const struct request_callbacks *callbacks);
    /* No later run is to hear of it. */
    void (*forget)(void *ctx, uint64_t stream);
};

#endif
