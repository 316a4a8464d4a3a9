/* Whether prompts should be read by devices of their own, which hand keys and values to those that
 * answer, or by all together: two plans against one, by requests a second, time to the first token
 * and time for a token beside prompts. Pure functions, as all of pipeline.h.
 *
 * Together a stage reads a request's prompt and makes its share of the steps that answer it, and a
 * step waits for the slice that each stage is at (but the one at which it has waited for all others
 * to go on): n - 1 slices in a pipeline of n stages, one on a single stage. Apart the slower of the
 * two sides, or the link of keys and values between them, says how many requests there are, steps
 * wait for nobody, and the first token waits for the last slice's keys and values. */
#ifndef HP_PLANNERS_PIPELINE_APART_H
#define HP_PLANNERS_PIPELINE_APART_H

#include "planners/pipeline/pipeline.h"

enum {
    APART_MOST_DEVICES = 32,   /* of the cluster; beyond, nothing is weighed */
    APART_SEQUENCES = 8,       /* that answer at once, unless there is room for fewer */
    APART_ANSWER_TOKENS = 128, /* of a request, where nobody knows */
};
/* A figure gains from here on. Times lose from APART_LOSS on, unless they keep a target: one that
 * is kept neither gains nor loses. Requests a second may fall to APART_RATE, and to
 * APART_LEAST_RATE where a target is missed together. */
#define APART_GAIN 1.2
#define APART_LOSS 1.5
#define APART_RATE 0.9
#define APART_LEAST_RATE 0.5

/* While others answer a stage is at a slice for no longer than half of the time per token that is
 * asked for, or of this one, but slices have so many tokens at least: shorter ones read the weights
 * for next to nothing, and where nobody asked prompts lose little for it. */
#define APART_TPOT_DEFAULT_S 0.1
enum { APART_LEAST_BESIDE = 16, APART_LEAST_BESIDE_DEFAULT = 64 };

struct apart_request {
    /* How all is planned together: with `devices` these answer in any case, and others may read for
     * them; without, the cluster's devices are shared out. */
    const struct pipeline_request *base;
    const struct plan_pipeline *together; /* what `base` has planned */
    int answer_tokens, sequences;         /* 0: the two above */
    double ttft_s, tpot_s;                /* targets; 0: any */
};

struct apart_figures {
    double requests_per_s, ttft_s;
    double tpot_s; /* of a token while prompts are read */
};

struct apart_answer {
    bool pays;
    int n_prefill; /* devices that read, in the order of their stages; 0: no way apart exists */
    int *prefill;  /* in the arena, as the texts */
    struct pipeline_answer
        decode; /* who answers; `document` is the caller's. With n_prefill only */
    struct apart_figures together, apart;
    const char *readers, *answerers; /* "A,B/gpu1": a node with one device by its name */
    char why[400];                   /* in words, for people */
};

/* Weighs ways to share the devices out: all of them up to four, else by what devices are better at
 * than others, by who is faster and by who is slower. HP_ENOMEM, HP_EINVAL; that there is no way is
 * an answer. */
int apart_find(const struct apart_request *rq, struct arena *arena, struct apart_answer *out,
               struct err *e);
/* {"chosen", "why", "prefill", "decode", "together": {"requests_per_s", "ttft_s", "tpot_s"},
 * "apart": {..}}; the two sides and the figures only where there is a way. The caller's. NULL: no
 * memory. */
json_t *apart_document(const struct apart_answer *a);

#endif
