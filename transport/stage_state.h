/* What an agent says that a stage is at, and keys and values on their way: a word in messages, and
 * here a number for each. */
#ifndef HP_TRANSPORT_STAGE_STATE_H
#define HP_TRANSPORT_STAGE_STATE_H

#include "common/machine.h"

/* Of `stage_state` and of the stages that a heartbeat shows. */
enum stage_state {
    STAGE_FETCHING,
    STAGE_LOADING,
    STAGE_WARMING,
    STAGE_READY,
    STAGE_FAILED,
    STAGE_UNLOADED, /* not held any more */
    STAGE_COPIED,   /* a copy of layers is in the agent's store, */
    STAGE_UNCOPIED, /* or will not be */
    STAGE_STATES
};
/* Their words, and which may follow which at the agent that holds the stage. */
extern const struct machine_state stage_states[STAGE_STATES];
/* STAGE_STATES: no word that is known. */
enum stage_state stage_state_of_word(const char *word);

/* Of `kv_state`. */
enum kv_state {
    KV_STATE_AWAITED,  /* of an import: their sender is welcome */
    KV_STATE_RECEIVED, /* of an import: all have come */
    KV_STATE_SENT,     /* of an export: all have left */
    KV_STATE_FAILED,
    KV_STATES
};
extern const char *const kv_state_words[KV_STATES];
/* KV_STATES: no word that is known. */
enum kv_state kv_state_of_word(const char *word);

#endif
