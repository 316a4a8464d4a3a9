/* Requests as a gateway opens them, and what comes back. */
#ifndef HP_TESTS_UNIT_COORDINATOR_STREAM_FIXTURE_H
#define HP_TESTS_UNIT_COORDINATOR_STREAM_FIXTURE_H

#include "coordinator/sequence.h"
#include "tests/unit/coordinator/deployment_fixture.h"

struct request_stream {
    uint64_t id;
    uint32_t ids[64];
    size_t n;
    int finished, failed;
    enum request_finish finish;
    struct request_usage usage;
    char why[256];
};

static inline void on_tokens(void *ctx, uint64_t id, const uint32_t *ids, size_t n)
{
    struct request_stream *s = ctx;
    assert_int_equal(id, s->id);
    memcpy(s->ids + s->n, ids, n * sizeof *ids);
    s->n += n;
}

static inline void on_finished(void *ctx, uint64_t id, enum request_finish finish,
                               const struct request_usage *usage)
{
    struct request_stream *s = ctx;
    assert_int_equal(id, s->id);
    s->finished++;
    s->finish = finish;
    s->usage = *usage;
}

static inline void on_failed(void *ctx, uint64_t id, const struct err *why,
                             const struct request_usage *usage)
{
    struct request_stream *s = ctx;
    assert_int_equal(id, s->id);
    s->failed++;
    s->usage = *usage;
    snprintf(s->why, sizeof s->why, "%s", why->text);
}

/* Does what fixture_settle leaves out. */
static inline void settle(struct fixture *f)
{
    size_t n;
    const struct coord_action *a;
    while (a = coord_take(f->core, &n), n > 0)
        for (size_t i = 0; i < n; i++) {
            if (a[i].kind == COORD_STORE)
                coord_stored(f->core, a[i].number, NULL);
            coord_action_call_back(&a[i]);
            if (a[i].kind == COORD_SEND) {
                struct err e = {0};
                struct sent *s = vector_add(f->sent, f->n_sent, f->room_sent);
                s->peer = a[i].peer;
                buffer_append(&s->bytes, a[i].bytes, a[i].size);
                assert_int_equal(message_decode(s->bytes.data, s->bytes.size, &s->arena, &s->m, &e),
                                 0);
                s->type = s->m.type;
            }
        }
}

static inline int ask_urgent(struct fixture *f, struct request_stream *s, const char *client,
                             size_t n, uint64_t max_tokens, int32_t priority)
{
    struct requests r;
    struct err e = {0};
    uint32_t prompt[128];
    for (size_t i = 0; i < n; i++)
        prompt[i] = (uint32_t)i % 90 + 5;
    *s = (struct request_stream){0};
    coord_requests(f->core, &r);
    struct request_spec rq = {.model = "d",
                              .prompt = prompt,
                              .n_prompt = n,
                              .max_tokens = max_tokens,
                              .priority = priority,
                              .client = client,
                              .callbacks = {s, on_tokens, on_finished, on_failed, NULL, NULL}};
    int rc = r.open(r.ctx, &rq, &s->id, &e);
    settle(f);
    return rc;
}

static inline int ask_stream(struct fixture *f, struct request_stream *s, const char *client,
                             size_t n, uint64_t max_tokens)
{
    return ask_urgent(f, s, client, n, max_tokens, 0);
}

static inline void open_stream(struct fixture *f, struct request_stream *s, size_t n,
                               uint64_t max_tokens)
{
    assert_int_equal(ask_stream(f, s, NULL, n, max_tokens), 0);
}

/* `made_ns` by the agent's clock. */
static inline void tokens_made(struct fixture *f, int agent, uint64_t generation, uint64_t sequence,
                               uint64_t first, const uint32_t *ids, size_t n, const char *finish,
                               uint64_t made_ns)
{
    struct message m = {.type = MESSAGE_TOKENS};
    struct message_said said = {sequence, first, {ids, n}, finish, 0, {0}};
    m.u.tokens = (struct message_tokens){
        .deployment = 1, .generation = generation, .made_ns = made_ns, .said = {&said, 1}};
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    coord_message(f->core, 10 + (uint64_t)agent, fixture_key(agent), bytes.data, bytes.size);
    buffer_free(&bytes);
    settle(f);
}

/* Nobody says when. */
static inline void tokens(struct fixture *f, int agent, uint64_t generation, uint64_t sequence,
                          uint64_t first, const uint32_t *ids, size_t n, const char *finish)
{
    tokens_made(f, agent, generation, sequence, first, ids, n, finish, 0);
}

/* Time in which every agent is well and says nothing of its sequences. */
static inline void nothing_for_ms(struct fixture *f, uint64_t ms)
{
    fixture_jump_ms(f, ms);
    for (size_t i = 0; i < f->core->n_members; i++)
        f->core->members[i]->heard_ns = f->core->now_ns;
    coord_tick(f->core);
    settle(f);
}

#endif
