/* A stage that this agent holds, as the core keeps it: what was ordered, how far it is, where its
 * frames go, what it has done. A share of a plan of pools is one, too, without queue, hops and
 * sequences. */
#ifndef HP_AGENT_CORE_STAGE_H
#define HP_AGENT_CORE_STAGE_H

#include "agent/agent_core.h"
#include "agent/engine/drafts.h"
#include "transport/stage_state.h"

/* What a stage hears of the one before it, and when it is to give a sign itself (core_alive.c). */
struct core_hop {
    uint64_t heard_ns, send_ns;
    bool heard; /* and not silent since */
};

struct core_stage {
    uint64_t slot, ticket; /* ticket of the fetch or load that goes on */
    int state;             /* enum stage_state, up to STAGE_FAILED; set by core_stage_move alone */
    struct message_ref *message; /* what `prepare` points into */
    struct message_stage_prepare prepare;
    uint64_t loaded_kv_tokens, loaded_sequences,
        loaded_batch_tokens;          /* what the slot was loaded with */
    bool loaded;                      /* the executor has a stage in this slot */
    struct frame_row row_in, row_out; /* of a token in frames that come, and that go on */
    uint32_t vocabulary, row_width;   /* the second: of what the head gives */
    struct kv_shape kv;
    enum frame_dtype wire;      /* as what rows cross */
    struct queue *queue;        /* of this generation; NULL until ready */
    uint64_t kept[KV_KEPT_MAX]; /* [n_kept]: sequences that have ended, for others to begin with */
    size_t n_kept;
    /* Weights that come while it serves: of its own, of all stages of its deployment as the
     * coordinator has heard, and when either last became less (core_arrivals.c). */
    uint64_t missing_bytes, missing_in_all_bytes, arrived_ns;
    bool connected, link_broken;
    uint64_t link_told_ns; /* when the log last heard that it broke */
    uint8_t *next_address, *first_address;
    char *next_device, *first_device; /* what paced neighbours stand for; NULL: nothing */
    size_t next_size, first_size;
    uint64_t next_session, first_session; /* tokens of the frames that go there */
    struct core_hop hop;
    /* progress of what the state does */
    uint64_t done_bytes, total_bytes, moved_bytes;
    uint32_t *wanted;
    size_t n_wanted, room_wanted;
    struct err error; /* FAILED: why; FETCHING: why chunks are wanted that should have been here */
    uint64_t batches_done;
    uint64_t tokens_done;
    double turn_s; /* of its device, over its weight, since it was made; never behind those that
                      were busy */
    double busy_s, planned_s;
    uint32_t outputs, outputs_out;  /* buffers for large outputs, and how many of them are out;
                                       outputs 0: there is no end of them */
    uint64_t outputs_since_ns;      /* since when nothing of what is out came back */
    struct draft_costs draft_costs; /* last stage */
    bool is_share;                  /* of a plan of pools: it has no queue, hops nor sequences */
    uint64_t share_queued;          /* batches that wait for it */
    bool share_running;
    struct message_ref *connect; /* share_connect, held; NULL: none came */
    struct core_stage *next_dead;
};

/* The token of the frames that come to this stage. */
static inline uint64_t core_stage_input_session(const struct core_stage *s)
{
    return s->prepare.input_session ? s->prepare.input_session : s->prepare.session;
}

/* Whether prompts enter its deployment here. A stage that only keeps copies runs nothing, and is
 * neither first nor last. */
static inline bool core_stage_is_first(const struct core_stage *s)
{
    return s->prepare.stage == 0 && !s->prepare.keeps;
}

/* Whether tokens are sampled here. */
static inline bool core_stage_is_last(const struct core_stage *s)
{
    return s->prepare.stage + 1 == s->prepare.n_stages && !s->prepare.keeps;
}

/* Of its deployment's share of the device's time; what is no number above 0 counts as 1. */
static inline double core_stage_weight(const struct core_stage *s)
{
    return s->prepare.weight > 0 && s->prepare.weight < 1e9 ? s->prepare.weight : 1;
}

/* Bytes of a frame with so many runs, and tokens with a row each. */
static inline uint64_t core_rows_bytes(const struct core_stage *s, struct frame_row row,
                                       uint32_t runs, uint32_t tokens)
{
    return (uint64_t)runs * FRAME_RUN_BYTES + frame_rows_bytes(s->wire, row, tokens);
}

#endif
