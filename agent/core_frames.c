/* Owns the frames that come: whether one is for a stage of this agent, and what it brings. */
#include "agent/core_frames.h"

#include "agent/core_alive.h"
#include "agent/core_imports.h"
#include "agent/core_out.h"
#include "agent/core_posts.h"
#include "agent/core_prefill.h"
#include "agent/core_sequences.h"
#include "common/log.h"

/* A frame that cannot be taken ends its sequences, whether they are open here already or not, and
 * its batch goes on without them. */
static void frame_refuse(struct agent_core *c, struct core_stage *s, const struct agent_event *ev,
                         int code, const char *text)
{
    const struct frame_header *h = ev->u.frame.header;
    uint64_t highest = queue_view(s->queue).highest;
    log_warn_limited("agent", "frame_refused", "deployment=%llu batch=%u code=%s text=\"%s\"",
                     (unsigned long long)h->deployment, h->batch, status_word(code), text);
    for (uint32_t i = 0; i < h->n_runs; i++) {
        uint64_t id = ev->u.frame.runs[i].sequence;
        if (id > highest || queue_sequence_find(s->queue, id))
            core_sequence_fail(c, s, id, code, text);
    }
    core_release(c, ev->u.frame.buffer);
    if (!core_stage_is_first(s))
        core_batch_pass_empty(c, s, &(struct batch){.number = h->batch});
}

static bool activation_check(const struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    uint64_t expected = core_rows_bytes(s, s->row_in, h->n_runs, h->n_tokens);
    return !core_stage_is_first(s) && h->payload_bytes == expected &&
           (h->n_runs ? h->dtype == s->wire && h->n_tokens && ev->u.frame.buffer : !h->n_tokens);
}

static void activation_in(struct agent_core *c, struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    if (!activation_check(s, ev)) {
        c->dropped_malformed++;
        frame_refuse(c, s, ev, HP_EPROTO, "a batch came that is none for this stage");
        return;
    }
    for (uint32_t i = 0; i < h->n_runs; i++) {
        struct queue_sequence *q = queue_sequence_find(s->queue, ev->u.frame.runs[i].sequence);
        if (q)
            core_prefill_arrived(q->owner, &ev->u.frame.runs[i], c->ready_ns, env_now_ns(c->env));
    }
    int rc = queue_frame_add(s->queue, h->batch, ev->u.frame.runs, h->n_runs, h->n_tokens,
                             ev->u.frame.buffer, env_now_ns(c->env));
    c->dropped_full += rc == HP_EBUSY;
    c->dropped_malformed += rc == HP_EINVAL;
    if (rc < 0)
        frame_refuse(c, s, ev, rc,
                     rc == HP_EBUSY    ? "the stage has more batches waiting than it can keep"
                     : rc == HP_EINVAL ? "a batch came with more tokens than the stage was made for"
                                       : "no memory for a batch that came");
}

static void tokens_in(struct agent_core *c, struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    core_release(c, ev->u.frame.buffer);
    if (!core_stage_is_first(s)) {
        c->dropped_malformed++;
        return;
    }
    queue_returned(s->queue, h->batch, env_now_ns(c->env));
    for (uint32_t i = 0; i < h->n_runs; i++) {
        const struct frame_token *t = &ev->u.frame.tokens[i];
        bool known = t->token < s->vocabulary;
        if (!known && queue_sequence_find(s->queue, t->sequence))
            core_sequence_fail(c, s, t->sequence, HP_EPROTO,
                               "the last stage gave a token beyond the vocabulary");
        struct queue_sequence *q = queue_sequence_find(s->queue, t->sequence);
        if (known && q)
            ((struct core_sequence *)q->owner)->returned_ns = env_now_ns(c->env);
        if (!known || !queue_token(s->queue, h->batch, t))
            c->dropped_runs++;
    }
}

void core_frame(struct agent_core *c, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    if (h->kind == FRAME_KV) {
        core_kv_frame(c, ev);
        return;
    }
    struct core_stage *s = core_stage_of(c, h->deployment, h->generation, h->stage);
    uint64_t newest = core_deployment_generation(c, h->deployment);
    bool kind = h->kind == FRAME_ACTIVATION || h->kind == FRAME_TOKEN || h->kind == FRAME_ALIVE;
    bool stale = !s && newest && newest != h->generation;
    bool foreign = !kind || (!s && !stale) || (s && s->is_share) ||
                   (s && h->session != core_stage_input_session(s));
    if (!foreign && !stale)
        core_hop_heard(c, s);
    if (foreign || stale || !s->queue || h->kind == FRAME_ALIVE) {
        c->dropped_foreign += foreign;
        c->dropped_stale += !foreign && h->kind != FRAME_ALIVE;
        core_release(c, ev->u.frame.buffer);
        return;
    }
    if (h->kind == FRAME_ACTIVATION)
        activation_in(c, s, ev);
    else
        tokens_in(c, s, ev);
}
