/* What the files of the queue share, each row above the one before: queue_sequences.c (open
 * sequences); queue_first.c (the first stage makes batches); queue_frames.c (the others take
 * frames); queue.c (the face). */
#ifndef HP_AGENT_ENGINE_QUEUE_INT_H
#define HP_AGENT_ENGINE_QUEUE_INT_H

#include "agent/engine/queue.h"

struct frame_entry {
    uint32_t number;
    struct batch_run *runs;
    uint32_t n_runs, n_tokens, run_capacity;
    void *buffer;
    uint64_t arrived_ns;
};

struct queue_flight {
    bool used, slice, left;
    uint32_t number, n_tokens;
    uint64_t left_ns, deadline_ns; /* deadline: UINT64_MAX while it runs here */
    uint64_t limit_ns;             /* of the wait for one that left */
    uint64_t *live;                /* sequences of the batch that are still open */
    uint32_t n_live, capacity;
};

struct queue {
    struct queue_config config;
    struct queue_sequence **sequences; /* by id */
    size_t n_sequences;
    uint64_t highest;
    uint64_t early[QUEUE_EARLY_CLOSES]; /* closed before they were opened */
    size_t early_at;
    struct frame_entry
        *frames; /* the first n_frames wait, in order of arrival; the rest keeps its memory */
    uint32_t n_frames, max_frames;
    struct queue_flight *flights; /* first stage: [n_flights] */
    uint32_t n_flights, next_number;
    uint64_t token_order;
    uint64_t last_sliced; /* the sequence whose prompt had the last slice */
    uint64_t progress_ns; /* when a batch last ran */
    uint64_t heard_ns;    /* first stage: when a batch last came back, and which; 0: never */
    uint32_t heard_number;
    uint32_t most_tokens; /* of a batch that may be handed out now */
    bool slice_was_last;
    bool some_dead; /* a frame may be waiting of which nothing is left */
};

/* ---- queue_sequences.c */

/* Where the id is among the sequences, or where it would go. */
size_t queue_sequence_place(const struct queue *q, uint64_t id);
/* Whether it was closed before it was opened. */
bool queue_closed_early(const struct queue *q, uint64_t id);
/* A run of an open sequence goes into a batch; its rows begin at `row` of the input. */
void queue_run_append(const struct queue *q, struct batch *b, const struct batch_run *run,
                      uint32_t row);

/* Tokens that are reserved for it behind this position. */
uint32_t queue_sequence_room(const struct queue_sequence *s, uint32_t position);

/* ---- queue_first.c */

bool queue_first_next(struct queue *q, struct batch *b);
/* A sequence is closed: batches that have nobody else any more are not waited for as long. */
void queue_flights_forget(struct queue *q, uint64_t id, uint64_t now_ns);
/* The batch leaves for the next stage. */
void queue_flight_leave(struct queue *q, const struct batch *b, uint64_t now_ns, double expected_s);
uint64_t queue_flights_deadline_ns(const struct queue *q);
void queue_flights_renew(struct queue *q, uint64_t now_ns);

/* ---- queue_frames.c */

bool queue_frames_next(struct queue *q, struct batch *b, uint64_t *dropped);
bool queue_frames_dead(struct queue *q, struct batch *b, uint64_t *dropped);

#endif
