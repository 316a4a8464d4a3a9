/* What the core wants done: one action for each thing to send, store, open, run or call back. */
#ifndef HP_COORDINATOR_ACTION_H
#define HP_COORDINATOR_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "coordinator/requests.h"
#include "coordinator/work.h"
#include "transport/frame.h"

enum coord_action_kind {
    COORD_STORE, /* core.h says when */
    COORD_SEND,  /* bytes to a peer of the control channel; a peer that is gone does not matter */
    COORD_MODEL_OPEN,  /* make the model's heads from `bytes` (the manifest), open it, and call
                          coord_model_opened with its `key` */
    COORD_MODEL_CLOSE, /* nothing refers to the model any more: close it and remove what
                          COORD_MODEL_OPEN made */
    COORD_FRAME,       /* `frame` to an agent over the data channel; whoever takes it frees it */
    COORD_WORK,        /* run `work` on another thread and call coord_worked (work.h) */
    COORD_TOKENS,      /* the callbacks of a request */
    COORD_ROW,
    COORD_SCORES,
    COORD_FINISHED,
    COORD_FAILED,
};

/* A frame that goes out; coord_frame_free ends it. */
struct coord_frame {
    struct frame_header header;
    uint8_t *address; /* of an agent's data endpoint */
    size_t address_size;
    uint8_t *payload; /* [header.payload_bytes] */
};
static inline void coord_frame_free(struct coord_frame *f)
{
    if (f) {
        free(f->address);
        free(f->payload);
    }
    free(f);
}

struct coord_action {
    enum coord_action_kind kind;
    const uint8_t *bytes; /* SEND, STORE, MODEL_OPEN */
    size_t size;
    uint64_t peer;           /* SEND */
    const char *record_kind; /* STORE; bytes NULL: remove */
    uint64_t number;         /* STORE: of its batch */
    uint64_t ask;            /* SEND: the question to which it is the last, good answer; 0: none */
    bool passes;             /* SEND: it depends on nothing stored */
    const char *key;         /* STORE; MODEL_*: what the model is called (model_slots.h) */
    uint32_t expert_groups;  /* MODEL_OPEN */
    struct coord_work *work; /* WORK */
    struct coord_frame *frame;          /* FRAME */
    uint64_t request;                   /* TOKENS, ROW, SCORES, FINISHED, FAILED */
    struct request_callbacks callbacks; /* `finished` NULL: none */
    const uint32_t *ids;                /* TOKENS: size of them; ROW: of floats, as `bytes` */
    bool of_prompt;                     /* SCORES: `bytes` are of the prompt */
    enum request_finish finish;
    struct request_usage usage;
    const struct err *why;
};

#endif
