/* Owns what leaves the core: actions, and the copies that they point at. */
#include "agent/core_out.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/vector.h"

enum {
    ACTIONS_FOR_RELEASES = 320
}; /* a stage's queue holds 4 frames for each stage of its pipeline, and 16 */

void agent_actions_free(struct agent_actions *a)
{
    free(a->items);
    memset(a, 0, sizeof *a);
}

/* The first actions are allocated with the core, and the last of these are for buffers alone: one
 * that nobody gives back is lost to the pool for ever. */
static bool action_fits(struct agent_actions *a, enum agent_action_kind kind)
{
    size_t room = a->capacity - a->count;
    if (room > (kind == AGENT_DO_RELEASE ? 0 : ACTIONS_FOR_RELEASES))
        return true;
    size_t wanted = a->capacity < CORE_ACTIONS_MADE ? CORE_ACTIONS_MADE : a->capacity + 1;
    return vector_reserve(a->items, a->capacity, wanted);
}

struct agent_action *core_act(struct agent_core *c, enum agent_action_kind kind)
{
    struct agent_actions *a = c->out;
    if (!action_fits(a, kind)) {
        log_error_limited("agent", "action_lost", "reason=no_memory kind=%d", (int)kind);
        return NULL;
    }
    struct agent_action *action = &a->items[a->count++];
    memset(action, 0, sizeof *action);
    action->kind = kind;
    return action;
}

struct message *core_send(struct agent_core *c, enum message_type type)
{
    struct agent_action *a = core_act(c, AGENT_DO_SEND);
    if (!a)
        return NULL;
    a->u.message.type = type;
    return &a->u.message;
}

void core_release(struct agent_core *c, void *buffer)
{
    struct agent_action *a = buffer ? core_act(c, AGENT_DO_RELEASE) : NULL;
    if (a)
        a->u.release.buffer = buffer;
}

const char *core_text(struct agent_core *c, const char *text)
{
    const char *copy = text ? arena_strdup(&c->scratch, text) : NULL;
    return copy ? copy : "";
}

struct pack_span core_span(struct agent_core *c, struct pack_span from)
{
    const uint8_t *copy = from.size ? arena_memdup(&c->scratch, from.data, from.size) : NULL;
    return (struct pack_span){copy, copy ? from.size : 0};
}
