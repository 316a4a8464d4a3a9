/* Several cores as one pipeline under virtual time: frames, messages and finished work are
 * delivered in an order that a seed draws, some of them twice or very late, and every sequence must
 * still get exactly its tokens. The "model" is a running hash, so that a token is right only if
 * every stage has seen every position of its sequence once and in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_core.h"
#include "tests/message_fixture.h"
#include "tests/test.h"

enum {
    MAX_STAGES = 5,
    MAX_SEQUENCES = 24,
    MAX_TOKENS = 40,
    MAX_PARCELS = 4096,
    VOCABULARY = 97,
    DEPLOYMENT = 3,
    SESSION = 55
};

/* What a stage hands on: one number a token. */
struct rows {
    uint64_t values[256];
};

struct kv {
    uint64_t sequence, hash;
    uint32_t length;
    bool open;
};

struct executor_order {
    struct agent_action action;
    struct batch_run runs[64];
    uint32_t ids[256];
    uint64_t sequence;
};

struct pipeline_node {
    struct agent_core *core;
    struct agent_actions actions;
    struct agent_core_config config;
    uint64_t slot;
    struct kv kv[MAX_SEQUENCES];
    struct executor_order orders[256];
    size_t first_order, n_orders;
    struct message_sequence_open inbox[MAX_SEQUENCES * 2]; /* in order; closes have prompt.count 0
                                                              and max_tokens UINT64_MAX */
    size_t first_in, n_in;
    uint32_t picked[64];
};

struct parcel { /* a frame under way */
    int to;
    struct frame_header header;
    struct batch_run runs[64];
    struct frame_token tokens[64];
    struct rows *rows;
};

struct wanted {
    uint32_t prompt[64], n_prompt, max_tokens, slices[16], n_slices;
    uint32_t got[MAX_TOKENS];
    uint64_t n_got;
    bool finished, cancelled;
};

struct pipeline {
    uint64_t random, seed;
    struct env_virtual clock;
    struct env env;
    int n_stages;
    struct pipeline_node nodes[MAX_STAGES];
    struct parcel *parcels[MAX_PARCELS];
    size_t n_parcels;
    struct wanted wanted[MAX_SEQUENCES + 1];
    uint32_t n_wanted;
    int rows_out, most_batch;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    return (a ^ b) * UINT64_C(0x9e3779b97f4a7c15) + (a >> 29);
}

static uint32_t draw(struct pipeline *p, uint32_t n)
{
    return (uint32_t)(random_next(&p->random) % n);
}

/* What a sequence's tokens must be: the model on one stage, and on each that follows. */
static uint32_t token_after(const struct pipeline *p, const uint32_t *ids, uint32_t n)
{
    uint64_t hash[MAX_STAGES] = {0}, row = 0;
    for (uint32_t i = 0; i < n; i++) {
        row = ids[i];
        for (int s = 0; s < p->n_stages; s++)
            row = hash[s] = mix(hash[s], row + (uint64_t)s);
    }
    return (uint32_t)(row % VOCABULARY);
}

static struct rows *rows_new(struct pipeline *p)
{
    p->rows_out++;
    return calloc(1, sizeof(struct rows));
}

static void rows_free(struct pipeline *p, struct rows *r)
{
    if (r)
        p->rows_out--;
    free(r);
}

static void release_rows(void *ctx, void *buffer)
{
    rows_free(ctx, buffer);
}

static void perform(struct pipeline *p, int n);

static void feed(struct pipeline *p, int n, const struct agent_event *ev)
{
    agent_core_event(p->nodes[n].core, ev, &p->nodes[n].actions);
    perform(p, n);
}

static void tell(struct pipeline *p, int n, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    feed(p, n, &ev);
    message_ref_release(ev.u.message);
}

static void frame_send(struct pipeline *p, int n, const struct agent_action *a)
{
    assert_true(p->n_parcels < MAX_PARCELS);
    struct parcel *f = calloc(1, sizeof *f);
    f->to = a->u.post.link == AGENT_LINK_NEXT ? n + 1 : 0;
    f->header = a->u.post.header;
    f->rows = a->u.post.buffer;
    if (f->header.kind == FRAME_TOKEN) {
        for (int i = 0; i < f->header.n_runs; i++)
            f->tokens[i] = a->u.post.tokens[i];
    } else if (f->header.n_runs) {
        memcpy(f->runs, a->u.post.runs, f->header.n_runs * sizeof *f->runs);
        f->header.payload_bytes =
            f->header.n_runs * FRAME_RUN_BYTES + f->header.n_tokens * sizeof(float); /* width 1 */
    }
    p->parcels[p->n_parcels++] = f;
}

static void order_keep(struct pipeline_node *nd, const struct agent_action *a)
{
    assert_true(nd->n_orders < 256);
    struct executor_order *o = &nd->orders[(nd->first_order + nd->n_orders++) % 256];
    o->action = *a;
    if (a->kind == AGENT_DO_SEQUENCE_OPEN)
        o->sequence = a->u.sequence_open.open->sequence;
    if (a->kind == AGENT_DO_RUN) {
        memcpy(o->runs, a->u.run.batch->runs, a->u.run.batch->n_runs * sizeof *o->runs);
        if (a->u.run.batch->ids)
            memcpy(o->ids, a->u.run.batch->ids, a->u.run.batch->n_tokens * sizeof *o->ids);
    }
}

static void tokens_told(struct pipeline *p, const struct message_tokens *t)
{
    for (size_t i = 0; i < t->said.count; i++) {
        const struct message_said *said = (const struct message_said *)t->said.items + i;
        struct wanted *w = &p->wanted[said->sequence];
        assert_int_equal(said->first, w->n_got);
        assert_false(w->finished);
        w->got[w->n_got++] = said->ids.items[0];
        w->finished = said->finish[0] != '\0';
    }
}

static void perform(struct pipeline *p, int n)
{
    struct pipeline_node *nd = &p->nodes[n];
    for (size_t i = 0; i < nd->actions.count; i++) {
        const struct agent_action *a = &nd->actions.items[i];
        if (a->kind == AGENT_DO_POST)
            frame_send(p, n, a);
        else if (a->kind == AGENT_DO_RELEASE)
            rows_free(p, a->u.release.buffer);
        else if (a->kind == AGENT_DO_SEQUENCE_OPEN || a->kind == AGENT_DO_SEQUENCE_CLOSE ||
                 a->kind == AGENT_DO_RUN)
            order_keep(nd, a);
        else if (a->kind == AGENT_DO_SEND && a->u.message.type == MESSAGE_TOKENS)
            tokens_told(p, &a->u.message.u.tokens);
        else if (a->kind == AGENT_DO_SEND && a->u.message.type == MESSAGE_SEQUENCE_FAILED)
            fail_msg("seed %llu: sequence %llu failed: %s", (unsigned long long)p->seed,
                     (unsigned long long)a->u.message.u.sequence_failed.sequence,
                     a->u.message.u.sequence_failed.text);
    }
}

/* ---- the executor ---- */

static struct kv *kv_of(struct pipeline_node *nd, uint64_t sequence)
{
    for (size_t i = 0; i < MAX_SEQUENCES; i++)
        if (nd->kv[i].open && nd->kv[i].sequence == sequence)
            return &nd->kv[i];
    return NULL;
}

static void run_batch(struct pipeline *p, int n, const struct executor_order *o)
{
    struct pipeline_node *nd = &p->nodes[n];
    struct rows *in = o->action.u.run.batch->input, *out = rows_new(p);
    uint32_t at = 0;
    p->most_batch = (int)o->action.u.run.batch->n_runs > p->most_batch
                        ? (int)o->action.u.run.batch->n_runs
                        : p->most_batch;
    for (uint32_t i = 0; i < o->action.u.run.batch->n_runs; i++) {
        const struct batch_run *r = &o->runs[i];
        struct kv *kv = kv_of(nd, r->sequence);
        assert_non_null(kv);
        assert_int_equal(kv->length, r->first_position);
        for (uint32_t k = 0; k < r->n_tokens; k++, at++)
            out->values[at] = kv->hash =
                mix(kv->hash, (in ? in->values[r->row + k] : o->ids[r->row + k]) + (uint64_t)n);
        kv->length += r->n_tokens;
        nd->picked[i] = (uint32_t)(kv->hash % VOCABULARY);
    }
    bool last = n == p->n_stages - 1;
    rows_free(p, in);
    if (last)
        rows_free(p, out);
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = o->action.u.run.slot;
    ev.u.batch_done.ticket = o->action.u.run.ticket;
    ev.u.batch_done.output = last ? NULL : out;
    ev.u.batch_done.picked = nd->picked;
    feed(p, n, &ev);
}

static void executor_step(struct pipeline *p, int n)
{
    struct pipeline_node *nd = &p->nodes[n];
    struct executor_order o = nd->orders[nd->first_order % 256];
    nd->first_order++;
    nd->n_orders--;
    if (o.action.kind == AGENT_DO_RUN) {
        run_batch(p, n, &o);
    } else if (o.action.kind == AGENT_DO_SEQUENCE_CLOSE) {
        struct kv *kv = kv_of(nd, o.action.u.sequence_close.sequence);
        if (kv)
            kv->open = false;
    } else {
        size_t i = 0;
        while (nd->kv[i].open)
            i++;
        nd->kv[i] = (struct kv){o.sequence, 0, 0, true};
        struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
        ev.u.sequence_opened.slot = o.action.u.sequence_open.slot;
        ev.u.sequence_opened.ticket = o.action.u.sequence_open.ticket;
        ev.u.sequence_opened.sequence = o.sequence;
        feed(p, n, &ev);
    }
}

/* ---- the coordinator ---- */

static void pipeline_make(struct pipeline *p, uint64_t seed, int n_stages)
{
    *p = (struct pipeline){.random = seed, .seed = seed, .n_stages = n_stages};
    p->env = env_virtual_init(&p->clock, seed);
    for (int i = 0; i < n_stages; i++) {
        struct pipeline_node *nd = &p->nodes[i];
        nd->config = (struct agent_core_config){.name = "",
                                                .secret = "",
                                                .program = "",
                                                .machine = "",
                                                .hostname = "",
                                                .node_json = ""};
        assert_int_equal(agent_core_create(&p->env, &nd->config, &nd->core, NULL), 0);
        struct message m = {.type = MESSAGE_STAGE_PREPARE};
        static const uint8_t id[32] = {1};
        m.u.stage_prepare = (struct message_stage_prepare){.deployment = DEPLOYMENT,
                                                           .generation = 1,
                                                           .stage = (uint64_t)i,
                                                           .n_stages = (uint64_t)n_stages,
                                                           .session = SESSION,
                                                           .deployment_name = "",
                                                           .model = {id, 32},
                                                           .end_layer = 1,
                                                           .compute = "f32",
                                                           .kv_tokens = 9999,
                                                           .max_sequences = MAX_SEQUENCES,
                                                           .max_batch_tokens = 64,
                                                           .source_machine = "",
                                                           .source_path = ""};
        tell(p, i, &m);
        for (int step = 0; step < 2; step++) {
            struct agent_event ev = {.kind = step ? AGENT_EVENT_LOADED : AGENT_EVENT_FETCHED};
            ev.u.progress = (struct agent_progress){.slot = 1,
                                                    .ticket = (uint64_t)step + 1,
                                                    .row_in.width = 1,
                                                    .row_out.width = 1,
                                                    .vocabulary = VOCABULARY};
            feed(p, i, &ev);
        }
    }
    for (int i = 0; i < n_stages; i++) {
        struct message m = {.type = MESSAGE_STAGE_CONNECT};
        m.u.stage_connect =
            (struct message_stage_connect){.deployment = DEPLOYMENT,
                                           .generation = 1,
                                           .stage = (uint64_t)i,
                                           .n_stages = (uint64_t)n_stages,
                                           .next_address = {(const uint8_t *)"n", 1},
                                           .first_address = {(const uint8_t *)"f", 1}};
        tell(p, i, &m);
    }
}

static void pipeline_free(struct pipeline *p)
{
    for (int i = 0; i < p->n_stages; i++) {
        struct pipeline_node *nd = &p->nodes[i];
        for (; nd->n_orders; nd->n_orders--, nd->first_order++)
            if (nd->orders[nd->first_order % 256].action.kind == AGENT_DO_RUN)
                rows_free(p, nd->orders[nd->first_order % 256].action.u.run.batch->input);
        agent_core_destroy(&nd->core, release_rows, p);
        agent_actions_free(&nd->actions);
    }
    for (size_t i = 0; i < p->n_parcels; i++) {
        rows_free(p, p->parcels[i]->rows);
        free(p->parcels[i]);
    }
    assert_int_equal(p->rows_out, 0);
}

static void ask(struct pipeline *p, uint32_t n_prompt, uint32_t max_tokens)
{
    uint32_t id = ++p->n_wanted;
    struct wanted *w = &p->wanted[id];
    w->n_prompt = n_prompt;
    w->max_tokens = max_tokens;
    for (uint32_t i = 0; i < n_prompt; i++)
        w->prompt[i] = draw(p, VOCABULARY);
    for (uint32_t left = n_prompt; left; w->n_slices++) {
        uint32_t n = w->n_slices == 15 ? left : 1 + draw(p, left < 9 ? left : 9);
        w->slices[w->n_slices] = n;
        left -= n;
    }
    for (int i = 0; i < p->n_stages; i++) {
        struct message_sequence_open *o = &p->nodes[i].inbox[p->nodes[i].n_in++];
        *o = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                            .generation = 1,
                                            .sequence = id,
                                            .stage = (uint64_t)i,
                                            .prompt = {w->prompt, n_prompt},
                                            .max_tokens = max_tokens,
                                            .kv_tokens = n_prompt + max_tokens};
        if (i == 0)
            o->slices = (struct pack_u32s){w->slices, w->n_slices};
    }
}

static void cancel(struct pipeline *p, uint64_t id)
{
    p->wanted[id].cancelled = true;
    for (int i = 0; i < p->n_stages; i++)
        p->nodes[i].inbox[p->nodes[i].n_in++] =
            (struct message_sequence_open){.sequence = id, .max_tokens = UINT64_MAX};
}

static void inbox_step(struct pipeline *p, int n)
{
    struct pipeline_node *nd = &p->nodes[n];
    const struct message_sequence_open *o = &nd->inbox[nd->first_in++];
    struct message m = {.type = o->max_tokens == UINT64_MAX ? MESSAGE_SEQUENCE_CLOSE
                                                            : MESSAGE_SEQUENCE_OPEN};
    if (m.type == MESSAGE_SEQUENCE_CLOSE)
        m.u.sequence_close =
            (struct message_sequence_close){DEPLOYMENT, 1, o->sequence, (uint64_t)n, 0};
    else
        m.u.sequence_open = *o;
    tell(p, n, &m);
    if (draw(p, 5) == 0)
        tell(p, n, &m); /* said twice */
}

/* ---- whatever happens next ---- */

static void parcel_step(struct pipeline *p, size_t i)
{
    struct parcel *f = p->parcels[i];
    p->parcels[i] = p->parcels[--p->n_parcels];
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &f->header;
    ev.u.frame.runs = f->runs;
    ev.u.frame.tokens = f->tokens;
    if (draw(p, 8) == 0 && (f->header.kind == FRAME_TOKEN || f->rows)) { /* arrives twice */
        struct rows *copy = f->rows ? rows_new(p) : NULL;
        if (copy)
            *copy = *f->rows;
        ev.u.frame.buffer = copy;
        feed(p, f->to, &ev);
    }
    ev.u.frame.buffer = f->rows;
    feed(p, f->to, &ev);
    free(f);
}

static bool step(struct pipeline *p)
{
    p->clock.now_ns += 1000 + draw(p, 1000);
    uint32_t from = draw(p, (uint32_t)(2 * p->n_stages) + 2);
    for (uint32_t k = 0; k < (uint32_t)(2 * p->n_stages) + 2; k++) {
        uint32_t what = (from + k) % ((uint32_t)(2 * p->n_stages) + 2);
        int n = (int)(what % (uint32_t)p->n_stages);
        if (what < (uint32_t)p->n_stages && p->nodes[n].n_orders) {
            executor_step(p, n);
            return true;
        }
        if (what >= (uint32_t)p->n_stages && what < 2 * (uint32_t)p->n_stages &&
            p->nodes[n].first_in < p->nodes[n].n_in) {
            inbox_step(p, n);
            return true;
        }
        if (what >= 2 * (uint32_t)p->n_stages && p->n_parcels) {
            parcel_step(p, draw(p, (uint32_t)p->n_parcels));
            return true;
        }
    }
    return false;
}

static void check(const struct pipeline *p)
{
    for (uint32_t id = 1; id <= p->n_wanted; id++) {
        const struct wanted *w = &p->wanted[id];
        uint32_t ids[64 + MAX_TOKENS], n = w->n_prompt;
        memcpy(ids, w->prompt, n * sizeof *ids);
        if (!w->cancelled && (w->n_got != w->max_tokens || !w->finished))
            fail_msg("seed %llu: sequence %u got %llu of %u tokens", (unsigned long long)p->seed,
                     id, (unsigned long long)w->n_got, w->max_tokens);
        for (uint64_t k = 0; k < w->n_got; k++, n++) {
            ids[n] = token_after(p, ids, n);
            if (ids[n] != w->got[k])
                fail_msg("seed %llu: sequence %u token %llu is %u, expected %u",
                         (unsigned long long)p->seed, id, (unsigned long long)k, w->got[k], ids[n]);
        }
    }
}

TEST(every_sequence_gets_its_tokens_whatever_the_order_of_events)
{
    static struct pipeline p; /* large */
    for (uint64_t seed = 1; seed <= 60; seed++) {
        pipeline_make(&p, seed, 1 + (int)(seed % MAX_STAGES));
        for (int i = 0; i < 12; i++)
            ask(&p, 1 + draw(&p, 60), 1 + draw(&p, MAX_TOKENS - 1));
        while (step(&p))
            ;
        check(&p);
        for (int i = 0; i < p.n_stages; i++) {
            struct agent_core_view v = agent_core_view(p.nodes[i].core);
            assert_int_equal(v.n_held_frames, 0);
            assert_int_equal(v.n_sequences, 12); /* nobody has closed them */
        }
        pipeline_free(&p);
    }
}

TEST(cancelled_sequences_leave_and_the_others_go_on)
{
    static struct pipeline p;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        pipeline_make(&p, 1000 + seed, 1 + (int)(seed % MAX_STAGES));
        for (int i = 0; i < 12; i++)
            ask(&p, 1 + draw(&p, 60), 1 + draw(&p, MAX_TOKENS - 1));
        for (int i = 0; i < 6; i++) {
            for (uint32_t k = draw(&p, 200); k > 0; k--)
                step(&p);
            cancel(&p, 2 * (uint64_t)i + 1);
        }
        while (step(&p))
            ;
        check(&p);
        for (int i = 0; i < p.n_stages; i++) {
            assert_int_equal(agent_core_view(p.nodes[i].core).n_sequences, 6);
            assert_int_equal(agent_core_view(p.nodes[i].core).n_held_frames, 0);
        }
        pipeline_free(&p);
    }
}

TEST(decode_steps_share_batches)
{
    static struct pipeline p;
    pipeline_make(&p, 5, 2);
    for (int i = 0; i < 16; i++)
        ask(&p, 4, 30);
    while (step(&p))
        ;
    check(&p);
    assert_in_range(p.most_batch, 4, 8); /* at most ceil(16 / 2) */
    pipeline_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_gets_its_tokens_whatever_the_order_of_events),
        cmocka_unit_test(cancelled_sequences_leave_and_the_others_go_on),
        cmocka_unit_test(decode_steps_share_batches),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
