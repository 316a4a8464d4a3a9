#include "transport/stage_state.h"

#include <string.h>

const struct machine_state stage_states[STAGE_STATES] = {
    [STAGE_FETCHING] = {"fetching", MACHINE_TO(STAGE_LOADING) | MACHINE_TO(STAGE_FAILED)},
    [STAGE_LOADING] = {"loading", MACHINE_TO(STAGE_WARMING) | MACHINE_TO(STAGE_READY) |
                                      MACHINE_TO(STAGE_FAILED)},
    [STAGE_WARMING] = {"warming", MACHINE_TO(STAGE_READY) | MACHINE_TO(STAGE_FAILED)},
    [STAGE_READY] = {"ready", MACHINE_TO(STAGE_FAILED)},
    [STAGE_FAILED] = {"failed", 0}, /* the next stage_prepare makes a new one */
    [STAGE_UNLOADED] = {"unloaded", 0},
    [STAGE_COPIED] = {"copied", 0},
    [STAGE_UNCOPIED] = {"uncopied", 0},
};

const char *const kv_state_words[KV_STATES] = {[KV_STATE_AWAITED] = "awaited",
                                               [KV_STATE_RECEIVED] = "received",
                                               [KV_STATE_SENT] = "sent",
                                               [KV_STATE_FAILED] = "failed"};

enum stage_state stage_state_of_word(const char *word)
{
    unsigned i = 0;
    while (i < STAGE_STATES && strcmp(word, stage_states[i].word) != 0)
        i++;
    return (enum stage_state)i;
}

enum kv_state kv_state_of_word(const char *word)
{
    unsigned i = 0;
    while (i < KV_STATES && strcmp(word, kv_state_words[i]) != 0)
        i++;
    return (enum kv_state)i;
}
