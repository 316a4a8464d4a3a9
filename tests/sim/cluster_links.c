/* Links between simulated agents: frames that are sent, lost, doubled and late. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster_int.h"

static const uint64_t us = 1000;

void sim_link_connect(struct sim_agent *a, const struct agent_action *act)
{
    struct sim_slot *slot = sim_slot_of(a, act->u.connect.slot);
    snprintf(slot->next, sizeof slot->next, "%.*s", (int)act->u.connect.next.size,
             (const char *)act->u.connect.next.data);
    snprintf(slot->first, sizeof slot->first, "%.*s", (int)act->u.connect.first.size,
             (const char *)act->u.connect.first.data);
}

static bool chance_is(struct sim *s, double chance)
{
    return chance > 0 && (double)sim_random(s, 100000) < 100000 * chance;
}

static struct sim_buffer *copy_of(const struct sim_buffer *b)
{
    struct sim_buffer *copy = b ? malloc(sizeof *b + b->n_tokens * sizeof b->x[0]) : NULL;
    assert(!b || copy);
    if (b)
        memcpy(copy, b, sizeof *b + b->n_tokens * sizeof b->x[0]);
    return copy;
}

static void frame_send(struct sim *s, const struct sim_agent *a, const struct agent_action *act,
                       const struct sim_agent *to, struct sim_buffer *buffer, uint64_t late_ns)
{
    struct sim_event *ev =
        sim_event_add(s, EVENT_FRAME, late_ns + sim_delay_ns(s, 50 * us, s->network.slow_ns));
    ev->agent = to->index;
    ev->incarnation = to->incarnation;
    ev->header = act->u.post.header;
    ev->from = a->index + 1;
    bool carries = ev->header.n_runs &&
                   (ev->header.kind == FRAME_TOKEN || ev->header.kind == FRAME_ACTIVATION);
    if (carries && s->network.lose_from == a->index + 1) {
        ev->incarnation = 0; /* nobody's */
        s->network.lose_from = 0;
    }
    size_t n = ev->header.n_runs;
    if (ev->header.kind == FRAME_TOKEN && n) {
        ev->tokens = malloc(n * sizeof *ev->tokens);
        assert(ev->tokens);
        memcpy(ev->tokens, act->u.post.tokens, n * sizeof *ev->tokens);
        ev->header.payload_bytes = n * FRAME_TOKEN_BYTES;
    } else if (n) {
        ev->runs = malloc(n * sizeof *ev->runs);
        assert(ev->runs);
        memcpy(ev->runs, act->u.post.runs, n * sizeof *ev->runs);
        ev->header.payload_bytes =
            n * FRAME_RUN_BYTES + (uint64_t)ev->header.n_tokens * TOY_WIDTH * sizeof(float);
    }
    ev->buffer = buffer;
}

void sim_post(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct sim_slot *slot = sim_slot_of(a, act->u.post.slot);
    bool *gap = &slot->gap[act->u.post.link == AGENT_LINK_FIRST];
    struct sim_agent *to =
        sim_agent_at(s, act->u.post.link == AGENT_LINK_FIRST ? slot->first : slot->next);
    bool carries = act->u.post.header.kind != FRAME_ALIVE;
    enum sim_path path = to ? s->network.path[a->index][to->index] : SIM_PATH_GOOD;
    s->frames_sent++;
    /* A connection gives nothing out of order: behind a gap it breaks. */
    bool behind = *gap && path != SIM_PATH_SILENT;
    *gap = (*gap && !behind) || (carries && path == SIM_PATH_SILENT);
    if (!to || behind || (carries && path == SIM_PATH_BREAKS) || chance_is(s, s->network.refuse)) {
        sim_buffer_release(a, act->u.post.buffer);
        sim_link_down_later(s, a, act->u.post.slot, act->u.post.link);
        return;
    }
    if (path == SIM_PATH_SILENT || chance_is(s, s->network.lose)) {
        sim_buffer_release(a, act->u.post.buffer);
        s->frames_lost++;
        return;
    }
    if (chance_is(s, s->network.twice))
        frame_send(s, a, act, to, copy_of(act->u.post.buffer), 0);
    frame_send(s, a, act, to, act->u.post.buffer,
               chance_is(s, s->network.late) ? s->network.late_ns : 0);
    a->buffers -= act->u.post.buffer != NULL; /* on its way it is nobody's */
}

bool sim_kv_post(struct sim *s, struct sim_agent *a, const struct sim_order *o,
                 struct sim_buffer *buffer)
{
    struct sim_agent *to = sim_agent_at(s, o->to);
    a->buffers -= buffer != NULL; /* on its way it is nobody's */
    s->frames_sent++;
    if (!to || chance_is(s, s->network.refuse) || chance_is(s, s->network.lose)) {
        s->frames_lost++;
        free(buffer);
        return to != NULL;
    }
    for (int n = chance_is(s, s->network.twice) ? 2 : 1; n > 0; n--) {
        struct sim_event *ev =
            sim_event_add(s, EVENT_FRAME,
                          (chance_is(s, s->network.late) ? s->network.late_ns : 0) +
                              sim_delay_ns(s, 50 * us, s->network.slow_ns));
        ev->agent = to->index;
        ev->incarnation = to->incarnation;
        ev->header = o->header;
        ev->header.payload_bytes =
            buffer ? FRAME_KV_BYTES + buffer->n_tokens * sizeof buffer->x[0] : 0;
        ev->from = a->index + 1;
        ev->kv = o->kv;
        ev->buffer = n > 1 ? copy_of(buffer) : buffer;
    }
    return true;
}

void sim_frame_in(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    if (ev->header.kind == FRAME_TENSORS) {
        sim_share_frame(s, a, ev);
        return;
    }
    a->buffers += ev->buffer != NULL;
    struct agent_event in = {.kind = AGENT_EVENT_FRAME};
    in.u.frame.header = &ev->header;
    in.u.frame.runs = ev->runs;
    in.u.frame.tokens = ev->tokens;
    in.u.frame.buffer = ev->buffer;
    in.u.frame.kv = ev->kv;
    ev->buffer = NULL;
    sim_agent_event(s, a, &in);
}
