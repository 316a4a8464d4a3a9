/* What the core wants done: one action for each thing to send, store, open, run or call back. */
#ifndef HP_COORDINATOR_ACTION_H
#define HP_COORDINATOR_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coordinator/requests.h"
#include "coordinator/work.h"

enum coord_action_kind {
    COORD_STORE, /* core.h says when */
    COORD_SEND,  /* bytes to a peer of the control channel; a peer that is gone does not matter */
    COORD_MODEL_OPEN,  /* make the model's heads from `bytes` (the manifest), open it, and call
                          coord_model_opened */
    COORD_MODEL_CLOSE, /* nothing refers to the model any more: close it and remove what
                          COORD_MODEL_OPEN made */
    COORD_WORK,        /* run `work` on another thread and call coord_worked (work.h) */
    COORD_TOKENS,      /* the callbacks of a request */
    COORD_ROW,
    COORD_SCORES,
    COORD_FINISHED,
    COORD_FAILED,
};

struct coord_action {
    enum coord_action_kind kind;
    const uint8_t *bytes; /* SEND, STORE, MODEL_OPEN */
    size_t size;
    uint64_t peer;           /* SEND */
    const char *record_kind; /* STORE; bytes NULL: remove */
    uint64_t number;         /* STORE: of its batch */
    uint64_t ask;            /* SEND: the question to which it is the last, good answer; 0: none */
    bool passes;             /* SEND: it depends on nothing stored */
    const char *key;         /* STORE; MODEL_*: the id in hex */
    struct coord_work *work; /* WORK */
    uint64_t request;        /* TOKENS, ROW, SCORES, FINISHED, FAILED */
    struct request_callbacks callbacks; /* `finished` NULL: none */
    const uint32_t *ids;                /* TOKENS: size of them; ROW: of floats, as `bytes` */
    bool of_prompt;                     /* SCORES: `bytes` are of the prompt */
    enum request_finish finish;
    struct request_usage usage;
    const struct err *why;
};

#endif
