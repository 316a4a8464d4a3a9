/* What the two halves of placement share. On the loop placement.c asks and takes,
 * placement_job.c says what is to be looked at, and placement_named.c which devices may be used; on
 * any thread placement_search.c searches, by placement_ask.c, and placement_missing.c says what was
 * missing. */
#ifndef HP_COORDINATOR_PLACEMENT_INT_H
#define HP_COORDINATOR_PLACEMENT_INT_H

#include <stdint.h>

#include "coordinator/placement.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/work.h"
#include "planners/pipeline/pipeline.h"

/* A stage that the spec names. */
struct placing_range {
    const char *agent; /* what people call the device (member_device_text) */
    int first, end;
};

struct placement_job {
    struct coord_work work;
    struct coord *core; /* the loop's: the worker does not look at it */
    uint64_t deployment;
    bool back; /* the loop's, too: the work is done, and its result waits to be taken */
    const struct env *env;
    struct planner_inputs *inputs;
    struct profile profile; /* the inputs', with the bytes of `wire` */
    enum frame_dtype wire;
    bool wire_auto;           /* the search chooses it */
    uint64_t border_elements; /* divides the width of every value that may cross */
    char wire_why[240];       /* why the search chose it; "": it was asked for */
    struct arena arena;
    /* of the spec */
    struct placing_range *ranges;          /* [n_devices] */
    int *devices, *ends, n_devices;        /* devices NULL: any; ends NULL: the planner's */
    int *last_devices, *last_ends, n_last; /* where this model's layers lay when it served last; 0:
                                              not known, or not to be asked */
    int *own_devices, *own_ends, n_own;    /* the stages that it is planned beside; 0: not so */
    double answer_tokens;                  /* of a request, as it goes here; 0: not known */
    struct cluster cluster;                /* the inputs', without room where it may not go */
    bool imagined;                         /* placement_what_if.c: any device, compared in full */
    bool apart;                            /* the search weighs whether others read its prompts */
    double ttft_s, tpot_s;                 /* targets, for that */
    bool planned;
    int max_slice;
    uint32_t plan_tokens;
    uint64_t max_context, trained_context, least_sequences, most_sequences;
    uint64_t max_sequences; /* asked for; 0: not */
    struct frame_row row;   /* at the widest border */
    int experts;            /* of its mixtures; 0: it has none */
    uint32_t vocabulary;
    bool paced; /* all of them: they count the bytes of what they stand for, and nothing beside */
    /* the result */
    bool has_room; /* there is no plan, though the devices together have the room */
    int status;
    struct err error;
    struct pipeline_answer answer;
    uint64_t context, sequences;
    int tokens;
    struct placement_forecast before, after;
    json_t *apart_said; /* planners/pipeline/apart.h; NULL: not weighed */
};

static inline uint64_t placing_round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

/* ---- on the loop (placement_job.c) ---- */

/* `imagined`: with the context and room that the deployment has, on any device, whatever its spec
 * names; compared with its own stages where it serves. The caller sets what is to be run and done.
 * Errors as placement_make says. */
int placing_create(struct coord *c, struct deployment *d, bool imagined, struct placement_job **out,
                   struct err *e);
void placing_free(struct placement_job *p);

/* ---- on the loop (placement_named.c) ---- */

/* By "agent/device"; agent NULL: there is no such. */
struct placement_device placing_device_of_id(struct coord *c, const char *id);
/* Sets what the spec names (`devices`, `ends`, `ranges`), and takes the room of what is left out
 * from `cluster`, which becomes the job's own. Errors as placement_make says. */
int placing_devices_read(struct placement_job *p, struct deployment *d, struct err *e);
/* Takes the room of these agents and devices ("A,B/gpu1"), up to one that is not there: HP_ENOENT
 * names it. */
int placing_devices_leave_out(struct placement_job *p, const char *names, struct err *e);

/* ---- on any thread ---- */

/* How many sequences may be open in KV memory for so many whole contexts, and the tokens of KV that
 * a stage keeps for them. */
uint64_t placing_open_sequences(const struct placement_job *p, uint64_t context,
                                uint64_t sequences);
uint64_t placing_kv_tokens(const struct placement_job *p, uint64_t context, uint64_t sequences);
/* Bytes that a stage holds because it is part of a pipeline (transport/stage_bytes.h). */
double placing_beside_bytes(const struct placement_job *p, uint64_t context, uint64_t sequences,
                            bool last);
/* What a planner's request of this deployment begins with. */
struct pipeline_request placing_request(const struct placement_job *p, int tokens);
/* The same with the room that so many sequences of whole contexts take. */
struct pipeline_request placing_roomy_request(const struct placement_job *p, uint64_t context,
                                              uint64_t sequences, int tokens);
/* A plan with that room, in the job's arena; out->document is the caller's. HP_ECANCELED: nobody
 * waits for it any more; else pipeline_plan_make's errors. */
int placing_ask(struct placement_job *p, uint64_t context, uint64_t sequences, int tokens,
                struct pipeline_answer *out, struct err *e);
/* The tokens of the prompt that is planned for, where nobody said: PLACEMENT_TOKENS, or fewer in a
 * short context. */
int placing_tokens(uint64_t context);
/* Whether the devices that may be used have room together for the model with one context. */
bool placing_has_room(const struct placement_job *p, uint64_t context);
/* HP_EINFEASIBLE: says how many bytes are missing where, and which context would fit. */
int placing_missing_explain(struct placement_job *p, uint64_t context, struct err *e);
/* Plans, or says what is missing: sets the result. */
void placing_search(struct placement_job *p);

#endif
