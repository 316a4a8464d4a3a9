/* Owns what other threads leave for the loop: events, and what they point at. */
#include <stdlib.h>

#include "agent/shell_int.h"

void queued_event_free(struct queued_event *m)
{
    free(m->error);
    free(m->memory);
    free(m->path);
}

/* Outputs are bounded by the stages' reserves, runs and opened sequences (those that were refused)
 * by the orders that they answer. */
static const uint32_t queued_places[QUEUED_CLASSES] = {
    [QUEUED_LINK] = 256, [QUEUED_OUTPUT] = 4096, [QUEUED_RAN] = 64,     [QUEUED_OPENED] = 16384,
    [QUEUED_KV] = 2048,  [QUEUED_LOADED] = 1024, [QUEUED_SHARE] = 1024, [QUEUED_OTHER] = 1024};

static enum queued_class queued_class_of(enum agent_event_kind kind)
{
    switch (kind) {
    case AGENT_EVENT_LINK_DOWN: return QUEUED_LINK;
    case AGENT_EVENT_OUTPUT_BACK: return QUEUED_OUTPUT;
    case AGENT_EVENT_BATCH_DONE: return QUEUED_RAN;
    case AGENT_EVENT_SEQUENCE_OPENED: return QUEUED_OPENED;
    case AGENT_EVENT_KV_IMPORTED:
    case AGENT_EVENT_KV_LEFT: return QUEUED_KV;
    case AGENT_EVENT_LOADED:
    case AGENT_EVENT_FILLING:
    case AGENT_EVENT_FETCHED: return QUEUED_LOADED;
    case AGENT_EVENT_SHARE_FAILED: return QUEUED_SHARE;
    default: return QUEUED_OTHER;
    }
}

void shell_events_init(struct agent *a)
{
    event_queue_init_classes(&a->events, sizeof(struct queued_event), queued_places,
                             QUEUED_CLASSES);
}

void shell_events_fini(struct agent *a)
{
    struct queued_event m;
    while (event_queue_take(&a->events, &m))
        queued_event_free(&m);
}

void shell_event_put(struct agent *a, const struct queued_event *m)
{
    struct queued_event copy = *m;
    enum queued_class of_class = queued_class_of(m->event.kind);
    bool put = event_queue_put_as(&a->events, of_class, m);
    if (!put) {
        log_warn_limited("agent", "event_lost", "reason=full kind=%d", (int)m->event.kind);
        queued_event_free(&copy);
        if (of_class != QUEUED_OTHER && of_class != QUEUED_LOADED && of_class != QUEUED_SHARE)
            atomic_store(&a->lost, true);
    }
    uv_async_send(&a->wake);
}
