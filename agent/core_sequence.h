/* A sequence that is open on a stage of this agent, as the core keeps it, and what is left of one
 * that has ended. What the stage has computed of it is the queue's (engine/queue.h), which holds
 * this as its `owner`. */
#ifndef HP_AGENT_CORE_SEQUENCE_H
#define HP_AGENT_CORE_SEQUENCE_H

#include "agent/agent_core.h"

/* One slice of a prompt. */
struct core_slice {
    struct message_prefill_slice told;
    uint64_t ready_ns; /* when its input was there; of a paced agent: when it should have been */
};

/* One sequence as the core knows it; the queue holds it as `owner`. */
struct core_sequence {
    struct message_ref *message; /* what `open` points into */
    struct message_sequence_open open;
    uint64_t ticket;
    uint64_t sampled;        /* tokens told so far */
    uint64_t unheard, heard; /* of these, said since that many heartbeats were acknowledged: nobody
                                may have heard them */
    bool ended;              /* last stage: the last token has been told */
    bool awaits_kv;          /* what it begins with has not all come */
    uint64_t kv_ns;          /* when something of that was last taken */
    uint64_t kv_bytes;
    uint32_t kv_left, kv_pending; /* awaited still, as the executor says; pieces that it has */
    /* How its prompt went through here so far, for MESSAGE_PREFILL, then the steps behind it, for
     * MESSAGE_DECODE; freed once that is said. */
    struct core_slice *slices;
    size_t n_slices, slice_capacity;
    bool prefill_told, decode_told;
    uint64_t prefill_ran_ns; /* its own part of what the stage computed for the prompt so far */
    uint64_t prefill_due_ns; /* of that: when what ran so far is told next; 0: the first time */
    bool awaited_weights;    /* its prompt did, here or at another stage */
    uint64_t returned_ns;    /* first stage: when its last token came back; 0: not known */
    struct drafts *drafts;   /* last stage; NULL: nothing is guessed */
    uint64_t said_ns;        /* when its last token was said; 0: never */
    uint32_t *answer; /* last stage, of a stream: [n_answer] of the `sampled` tokens; fewer: there
                         was no memory for them */
    size_t n_answer, room_answer;
    struct score *scores; /* of these, [n_scores], where they are asked for; or fewer */
    size_t n_scores, room_scores;
    const char *finish; /* with `ended`: behind its last token */
    struct core_sequence *next_dead;
};

/* What is left of a stream whose sequence has ended on its last stage. */
struct core_remains {
    uint64_t deployment, generation, stage, sequence, stream;
    uint64_t ended_ns;
    uint32_t *answer; /* [n_answer] */
    size_t n_answer;
    struct score *scores; /* [n_scores] */
    size_t n_scores;
    uint64_t unheard, heard;
    const char *finish; /* "": it was cut off */
};

#endif
