#include "coordinator/holding.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/vector.h"
#include "coordinator/effects.h"
#include "coordinator/store/store_queue.h"

struct held_message {
    uint64_t number; /* of the batch that it waits for */
    uint64_t peer, ask;
    uint8_t *bytes;
    size_t size;
};

/* The batch that messages to a peer wait for; 0: none waits. */
static uint64_t peer_waits_for(const struct coord *c, uint64_t peer)
{
    for (size_t i = c->n_held; i-- > 0;)
        if (c->held[i].peer == peer)
            return c->held[i].number;
    return 0;
}

static bool message_hold(struct coord *c, const struct coord_action *a, const uint8_t *bytes,
                         uint64_t number)
{
    struct held_message *h = vector_add(c->held, c->n_held, c->room_held);
    uint8_t *copy = h ? malloc(a->size + 1) : NULL;
    if (!copy) { /* too early is better than never */
        c->n_held -= h != NULL;
        return false;
    }
    memcpy(copy, bytes, a->size);
    *h = (struct held_message){number, a->peer, a->ask, copy, a->size};
    return true;
}

void holding_take(struct coord *c, struct effects_batch *b)
{
    uint64_t number = 0, depends = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct coord_action *a = &b->actions[i];
        if (a->kind != COORD_STORE)
            continue;
        number = number ? number : ++c->batches_asked;
        a->number = number;
        depends = store_kind_is_cache(a->record_kind) ? depends : number;
    }
    if (c->read_only.code || (!depends && c->n_held == 0))
        return;
    size_t kept = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct coord_action *a = &b->actions[i];
        uint64_t waits = a->kind != COORD_SEND || a->passes ? 0
                         : depends                          ? depends
                                                            : peer_waits_for(c, a->peer);
        if (waits && message_hold(c, a, b->bytes.data + b->at[i], waits))
            continue;
        b->at[kept] = b->at[i];
        b->actions[kept++] = *a;
    }
    b->count = kept;
}

static void messages_release(struct coord *c, uint64_t up_to, bool stored)
{
    size_t n = c->n_held, kept = 0;
    struct held_message *held = c->held;
    for (size_t i = 0; i < n; i++) {
        if (held[i].number > up_to) {
            held[kept++] = held[i];
            continue;
        }
        if (!stored && held[i].ask) {
            effects_answer_not_stored(c, held[i].peer, held[i].ask);
        } else {
            struct coord_action *a = effects_add(c, COORD_SEND, held[i].bytes, held[i].size);
            if (a) {
                a->peer = held[i].peer;
                a->passes = true;
            }
        }
        free(held[i].bytes);
    }
    c->n_held = kept;
}

bool holding_stored(struct coord *c, uint64_t number, const struct err *why)
{
    if (why && why->code) {
        if (!c->read_only.code)
            log_error("coordinator", "read_only", "why=\"%s\"", why->text);
        err_set(&c->read_only, why->code, "read only: %s",
                why->code == HP_ENOSPACE ? "no space left on the coordinator's disk" : why->text);
        messages_release(c, UINT64_MAX, false);
        return false;
    }
    if (c->read_only.code)
        log_info("coordinator", "writable_again", "batch=%llu", (unsigned long long)number);
    c->read_only.code = 0;
    messages_release(c, number, true);
    return true;
}

int holding_may_change(const struct coord *c, struct err *e)
{
    if (!c->read_only.code)
        return 0;
    err_set(e, c->read_only.code, "%s", c->read_only.text);
    return err_hint(e, "what is deployed serves on; make room in the coordinator's folder, and "
                       "changes are taken again within a second");
}

void holding_free(struct coord *c)
{
    for (size_t i = 0; i < c->n_held; i++)
        free(c->held[i].bytes);
    free(c->held);
}
