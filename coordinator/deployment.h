/* One deployment: its states, stages and queues. State, lookups and setters, no policy:
 * lifecycle.h says what becomes of it, stages.h talks with its agents. */
#ifndef HP_COORDINATOR_DEPLOYMENT_H
#define HP_COORDINATOR_DEPLOYMENT_H

#include "common/kv_account.h"
#include "common/machine.h"
#include "coordinator/clients.h"
#include "coordinator/deployment_spec.h"
#include "coordinator/stage_layout.h"
#include "coordinator/state.h"

struct model_slot;
struct placement_job;
struct plan_vs_actual;
struct prefixes;
struct rebalance;
struct planner_inputs;
struct slices;
struct spills;

enum deployment_state {
    DEPLOYMENT_PLANNED,    /* wants a plan: waits for the model and for measurements */
    DEPLOYMENT_RECOVERING, /* the coordinator was restarted: its agents are given time to come */
    DEPLOYMENT_PREPARING,  /* its agents fetch and load */
    DEPLOYMENT_READY,      /* every stage is there; being wired */
    DEPLOYMENT_SERVING,
    DEPLOYMENT_MOVING, /* serves what is open and admits nobody: an agent under it is drained */
    DEPLOYMENT_BROKEN, /* something that it needs is gone; planned again at until_ns, or when that
                          may have changed */
    DEPLOYMENT_STOPPING,
    DEPLOYMENT_STOPPED,
    DEPLOYMENT_STATE_COUNT
};
extern const struct machine_state deployment_states[];

enum {
    DEPLOYMENT_NAME = 64,
    DEPLOYMENT_KV_ROUND = 64, /* KV is reserved in steps of so many tokens; a stage keeps one such
                                 step more for each sequence */
    DEPLOYMENT_SEQUENCE_TOKENS =
        512, /* what a sequence is taken to need where nobody said how many may be open */
    DEPLOYMENT_SEQUENCES = 32,   /* open at once, where nobody said */
    DEPLOYMENT_STOP_MS = 5000,   /* how long unloading may take before nobody waits for it */
    DEPLOYMENT_GROW_MS = 5000,   /* how long nothing has run, and an agent has been back, before a
                                    deployment grows back */
    DEPLOYMENT_DRAIN_MS = 30000, /* how long open sequences may hold up a drain */
    DEPLOYMENT_SETTLE_MS =
        2000, /* how old an order must be before a heartbeat that does not show it counts */
    DEPLOYMENT_RETRY_MS = 5000,   /* after a failure; doubles four times, to 80 s */
    DEPLOYMENT_ROOM_MS = 1000,    /* after one for want of memory that copies have taken */
    DEPLOYMENT_AGENTS_MS = 3000,  /* after a start, in which its agents come back */
    DEPLOYMENT_UPLOAD_MS = 15000, /* without progress: the upload is asked for again */
    DEPLOYMENT_PROGRESS_MS = 100, /* between two progress answers */
};

/* What is known of the stage: nothing was said, it is being prepared (or unloaded), it is here. */
enum stage_status { STAGE_UNTOLD, STAGE_WORKING, STAGE_HERE, STAGE_STATUS_COUNT };
extern const struct machine_state stage_statuses[];

enum { STAGE_WHY = 256 };
struct deployment_stage {
    struct member *agent;
    int device; /* of the agent's, as they stand in its node */
    int first_layer, end_layer;
    double compute_s, memory_bytes; /* predicted: of the plan's prompt; weights and KV */
    uint64_t input_session; /* token of the frames that come to it, of this generation; 0 where none
                               come */
    int status;             /* enum stage_status */
    bool hop_heard;         /* it hears the stage before it over the data channel (hops.h) */
    char word[16];          /* the agent's own: stage_state, as people read it */
    uint64_t done_bytes, total_bytes, moved_bytes;
    uint64_t told_ns;                  /* when stage_prepare was sent last */
    uint64_t batches_done, batches_ns; /* as heartbeats tell, and when that last changed */
    uint64_t batches_before; /* of those, before the deployment was idle last (lost_hop) */
    bool running;            /* works on a batch */
    struct {
        uint64_t missing_bytes; /* of its weights, which come while it serves */
        uint64_t first_bytes, first_ns,
            heard_ns; /* so many at first; when that, and this, was said */
    } arrivals;
    unsigned link_breaks;   /* of its link to the next stage, one soon after the other, and */
    uint64_t link_broke_ns; /* the last of them (broken_links.h) */
    /* Where a copy of its weights is, or is being made (copies.h). */
    char copy_on[MEMBER_NAME];
    bool copied, uncopied; /* that agent has told so */
    uint64_t copy_ns;      /* when it was ordered last */
    /* Chunks that somebody must upload, and those that were asked of hpctl with this token. */
    uint32_t *wanted, *asked;
    size_t n_wanted, room_wanted, n_asked, room_asked;
    char wanted_why[STAGE_WHY]; /* where they should have been there; "": they never were */
    uint64_t upload_session, progress_ns;
};

struct deployment {
    char name[DEPLOYMENT_NAME];
    uint64_t id, created_s;
    int state;
    struct deployment_spec spec;
    struct model_slot *model;
    uint64_t generation, session;
    struct deployment_stage *stages; /* none before the first plan */
    int n_stages;
    struct deployment_plan *plan;  /* NULL: none so far */
    struct stage_layout *served;   /* the layout that served last; NULL: never served */
    struct stage_layout *wish;     /* that it had before it lost agents (regrowth.h); NULL: none */
    struct stage_layout *fallback; /* while it grows back: what to serve on if that fails */
    uint64_t busy_ns;              /* when something ran, or waited, last */
    uint64_t context, kv_tokens, max_sequences, max_batch_tokens;
    enum frame_dtype wire_chosen; /* by the plan, where the spec leaves it open */
    struct err why;               /* why it does not serve */
    enum {
        DEPLOYMENT_STAYS,
        DEPLOYMENT_LEAVES_ASKED,
        DEPLOYMENT_LEAVES
    } leaves;              /* what is known of moving away from an agent (drains.h) */
    bool succession_tried; /* a successor has been tried since it serves (successors.h) */
    uint64_t heir; /* id of the one that has taken its place; 0: none. What runs goes there */
    struct rebalance *rebalance; /* while a better place is looked for and taken (rebalance.h) */
    json_t *rebalanced;          /* what the last one found and did, for people; NULL: none */
    struct {
        uint64_t seen;               /* the agents there were, as a hash; 0: none so far */
        uint64_t told;               /* how slow devices and links were when it was planned last */
        uint64_t changed_ns, due_ns; /* when that changed last; when it is planned anew, 0: not */
        unsigned changes;            /* one soon after the other */
        unsigned stays;              /* plans since then that found nothing better */
        bool asked, confirmed;       /* a plan is being made; one said that it pays */
        int failure;                 /* why the last one that failed did */
    } watch;                         /* of one that rebalances by itself */
    bool returns;                    /* it has lost its place while it served, and no plan for
                                        another has failed since */
    bool roomier;  /* it was tried once more for want of memory since it served last */
    bool beside;   /* it is planned beside its own stages, which stay meanwhile */
    bool yields;   /* to a successor in a better place */
    bool keeps;    /* its stages may be at work for requests of before this process: it finds out */
    bool unclosed; /* a stage may hold sequences that are closed here (a message was lost): it is
                      connected anew when nothing runs */
    uint64_t since_ns;         /* of this state */
    uint64_t until_ns;         /* a deadline of this state; 0: none */
    uint64_t readers_ns;       /* when it looks next whether its prompts are read as it wants */
    uint64_t profile_until_ns; /* measurements were asked for until then; 0: not asked */
    unsigned failures;         /* in a row */

    uint64_t listener_peer, listener_ask; /* who hears of the progress; 0: nobody */
    uint64_t told_ns;                     /* when it heard last */
    uint64_t stop_peer, stop_ask;         /* who asked to undeploy */

    uint64_t next_sequence;
    struct sequence *active, *waiting_first, *waiting_last;
    struct sequence *active_by_id; /* the same as a map */
    uint32_t n_active, n_waiting;
    uint64_t passes;                    /* through the queue, so far */
    struct client_row *clients, nobody; /* a map by client (clients.h); for want of memory */
    double ran_s;                       /* how long sequences ran lately (shares.h); 0: none yet */
    struct {
        double most;               /* sequences that may run at once; 0: not known yet */
        bool found;                /* they were too many once: it grows slowly since then */
        bool wanted;               /* somebody waited for it since the last look */
        double steps, steps_s;     /* tokens since the last look, and the time that they took */
        double read_s, plan_s;     /* of prompts lately, measured and by the plan */
        double short_s;            /* of those lately that the plan gives next to no time */
        uint64_t refused, crowded; /* for --ttft; looks in which some waited for --tpot */
    } targets;                     /* what is known of keeping them (targets.h) */
    double answer_tokens;          /* how long answers were lately (growth.h); 0: none yet */
    struct {
        uint64_t preempted, recomputed; /* sequences that gave way; tokens computed again for it */
    } growth_counts;
    struct {
        uint64_t places;               /* lost while it served */
        uint64_t sequences, recovered; /* lost, and those that have gone on */
        double pause_s, last_pause_s;  /* of all that have; of the last one */
        uint64_t at_ns; /* when its place was lost last, and goes without; 0: it has one */
        double found_s,
            last_place_s; /* the last loss: from the agent's last sign; until it served */
        struct err why;   /* of the last one */
    } losses;
    struct kv_account kv; /* of those that are open, and those that are kept (prefixes.h) */
    uint64_t overdue_ns;  /* before then no sequence's time is up */
    uint64_t doubted_ns;  /* before then nobody is let in: a link between its stages broke */

    /* Parts of others, who make and free them. */
    struct planner_inputs *inputs; /* of the last planning; NULL: none so far */
    struct placement_job *placing; /* its plan, being made or waiting to be taken (placement.h);
                                      NULL: none */
    unsigned outdated;             /* plans in a row that something changed under */
    struct slices *slices;         /* for prompts of every length (slices.h); NULL: none so far */
    struct plan_vs_actual *plan_vs_actual; /* what its prompts took, beside what was expected; NULL:
                                              none so far */
    struct prefixes *prefixes; /* what its stages have of prompts (prefixes.h); NULL: nothing */
    struct {
        uint64_t requests, hits, tokens, evicted; /* tokens: that were not computed again */
    } prefix_counts;
    struct spills *spills; /* what its agents have spilled (spills.h); NULL: nothing was told */
    struct {
        uint64_t spilled, given_up;   /* chains that were evicted: spilled; cheaper to compute */
        uint64_t hits, tokens, swaps; /* sequences that began with what was spilled, their tokens
                                         of it; of these, those that had given way */
        uint64_t declined, failed;    /* computed all the same; because it could not be read */
        double last_read_s, last_compute_s; /* what was compared last */
    } spill_counts;
    struct {
        uint64_t fetched, declined, tokens;  /* beginnings that another deployment had more of: that
                                                came from there, that were computed all the same;
                                                tokens that came */
        double last_fetch_s, last_compute_s; /* what was compared last; 0: not known */
    } peer_counts;
    struct {
        uint64_t next_ns, begun_ns;      /* when the next may begin; when this one did */
        uint64_t keeper_ns;              /* when it is looked next for whoever keeps them */
        uint64_t copied, tokens, failed; /* copies that were made, and all their tokens */
        uint64_t used, used_tokens;      /* lost sequences that went on from theirs */
    } replicas;                          /* copies of keys and values elsewhere (replication.h) */
    struct {
        uint64_t steps, drafts, right; /* steps that verified guesses; these; of them right */
    } draft_counts;
    struct {
        uint64_t prompt, output; /* of prompts that began; of answers so far */
    } tokens;
    struct {
        uint64_t done, moved, failed, bytes; /* prompts that another plan read for it; sequences
                                                that came while they ran; of both */
        double exposed_s; /* from when all was computed to when all had come, as seen from here */
    } handoffs;
};

/* One more deployment, with this name. NULL: no memory. */
struct deployment *deployment_add(struct coord *c, const char *name);
/* Takes it out of the table and frees it; its sequences and the parts of others are gone. */
void deployment_remove(struct coord *c, struct deployment *d);
struct deployment *deployment_find(struct coord *c, const char *name); /* none that is stopping */
/* HP_ENOENT, with the nearest name that there is as its hint. */
int deployment_missing(const struct coord *c, const char *name, struct err *e);
struct deployment *deployment_of_id(struct coord *c, uint64_t id);
/* The plan that reads prompts for it, or for which it does that (prefill_plans.h); NULL: none. */
struct deployment *deployment_partner(struct coord *c, const struct deployment *d);
/* The agents and devices that read prompts for it, "A,B/cpu1": as --prefill names them or, of
 * `auto`, as the plan says that it serves by. "": it reads them itself. */
const char *deployment_readers(const struct deployment *d);
/* Whoever has room may keep its copies. */
static inline bool deployment_keeps_anywhere(const struct deployment *d)
{
    return strcmp(d->spec.replicate_to, "auto") == 0;
}
/* What the first of these is called. */
void deployment_partner_name(const struct deployment *d, char out[DEPLOYMENT_NAME]);
enum { DEPLOYMENT_PARTNER_ENDING = sizeof "/prefill" - 1 };

/* Clients see it: it is not part of another one (NAME/prefill, NAME/next, NAME/last). */
bool deployment_has_face(const struct deployment *d);

/* Its stages fetch and load, or are looked for. */
static inline bool deployment_prepares(const struct deployment *d)
{
    return d->state == DEPLOYMENT_RECOVERING || d->state == DEPLOYMENT_PREPARING;
}
/* Sequences that are open go on. */
static inline bool deployment_serves(const struct deployment *d)
{
    return d->state == DEPLOYMENT_SERVING || d->state == DEPLOYMENT_MOVING;
}

/* The deployment serves, or is on its way back to that: who asks now waits for a moment. */
static inline bool deployment_takes(const struct deployment *d)
{
    return deployment_serves(d) || (d->returns && d->state < DEPLOYMENT_STOPPING);
}

/* Of the prompt that its plan was made for; 0: there is no plan. */
static inline uint64_t deployment_plan_tokens(const struct deployment *d)
{
    return d->plan ? d->plan->tokens : 0;
}

/* ---- stages ---- */

/* The first of the stages that are on this member, and the next one after `s`; NULL: none is. */
struct deployment_stage *deployment_stage_of(struct deployment *d, const struct member *m);
struct deployment_stage *deployment_stage_next(struct deployment *d,
                                               const struct deployment_stage *s);
/* The stage with this number; NULL: it is not this member's. */
struct deployment_stage *deployment_stage_at(struct deployment *d, const struct member *m,
                                             uint64_t number);
/* Of which generation its agents hold a stage that is newer than what is known here, as it is where
 * the store has an older state than they (its disk was full, a backup was put back). 0: none does.
 * What no count of generations comes to is not believed. `only`: of all agents where NULL. */
uint64_t deployment_generation_ahead(const struct coord *c, const struct deployment *d,
                                     const struct member *only);
/* What its agent said last of holding this stage; NULL: nothing of this generation. */
const struct message_held_stage *deployment_stage_held(const struct deployment *d,
                                                       const struct deployment_stage *s);
bool deployment_stages_here(const struct deployment *d); /* all of them, and their agents */
/* Whether an agent under it is being taken out of service: asked of the agents, so that a restart
 * forgets nothing. */
bool deployment_stages_drain(const struct deployment *d);
void deployment_stages_free(struct deployment *d);
/* The first deployment that has a stage on this member; NULL: none. */
const struct deployment *deployment_using(struct coord *c, const struct member *m);
bool deployments_use(struct coord *c, const struct member *m);

/* ---- setters ---- */

void deployment_move(struct coord *c, struct deployment *d, int to); /* enum deployment_state */
/* Something has changed that may help: if it is broken, it is tried again at once. */
void deployment_retry(const struct coord *c, struct deployment *d);
void deployment_stage_move(struct deployment_stage *s, int to); /* enum stage_status */
/* The last answer to whoever hears of its progress: `result` (taken), or why not. */
void deployment_listener_answer(struct coord *c, struct deployment *d, json_t *result,
                                const struct err *why);

/* As what activations cross between its stages. */
static inline enum frame_dtype deployment_wire(const struct deployment *d)
{
    return d->spec.wire_auto ? d->wire_chosen : d->spec.wire;
}

#endif
