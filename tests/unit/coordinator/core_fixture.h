/* A core alone: the test plays agents and hpctl, message by message, under virtual time. */
#ifndef HP_TESTS_UNIT_COORDINATOR_CORE_FIXTURE_H
#define HP_TESTS_UNIT_COORDINATOR_CORE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/manifest.h"
#include "common/vector.h"
#include "coordinator/core.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/store/store.h"
#include "tests/test.h"

enum { ADMIN = 1 };

struct sent {
    uint64_t peer;
    enum message_type type;
    struct buffer bytes;
    struct arena arena;
    struct message m;
};

struct fixture {
    struct env_virtual clock;
    struct env env;
    struct store *store;
    struct coord *core;
    struct sent *sent;
    size_t n_sent, room_sent;
    const struct model_facts *facts;                              /* given to COORD_MODEL_OPEN */
    const struct model_facts *(*divided)(uint32_t expert_groups); /* of that in groups; NULL: that
                                                                     is not asked for */
    char token[JOIN_TOKEN_SECRET_TEXT];
    size_t n_looked;   /* of the messages sent, for stages that were connected */
    bool deaf;         /* agents do not hear each other: a stage that is connected says nothing */
    struct err disk;   /* code 0: it takes everything */
    bool disk_is_slow; /* coord_stored is the test's */
    uint64_t unix_s;   /* of the next start; 0: 1000 */
    uint64_t asked_number; /* the last batch */
    bool holds_work;       /* work waits for fixture_work */
    struct coord_work **held_work;
    size_t n_held_work, room_held_work;
    struct coord_frame **frames; /* that went out over the data channel, the fixture's */
    size_t n_frames, room_frames;
};

static const char fixture_admin_key[] = "admin-key-of-forty-characters-0123456789";

static void fixture_say(struct fixture *f, uint64_t peer, const char *key, const struct message *m);
static const char *fixture_key(int agent);

/* Agents whose stage was connected hear the stage before it. */
static void fixture_hear(struct fixture *f)
{
    while (f->n_looked < f->n_sent) {
        const struct sent *s = &f->sent[f->n_looked++];
        const struct message_stage_connect *c = &s->m.u.stage_connect;
        struct message m = {.type = MESSAGE_HOP_STATE};
        m.u.hop_state = (struct message_hop_state){.deployment = c->deployment,
                                                   .generation = c->generation,
                                                   .stage = c->stage,
                                                   .heard = true};
        if (s->type == MESSAGE_STAGE_CONNECT && c->n_stages > 1 && !f->deaf && s->peer >= 10)
            fixture_say(f, s->peer, fixture_key((int)s->peer - 10), &m);
    }
}

static void fixture_settle(struct fixture *f)
{
    size_t n;
    const struct coord_action *a;
    struct err e = {0};
    while (a = coord_take(f->core, &n), n > 0) {
        uint64_t number = 0;
        for (size_t i = 0; i < n; i++) {
            if (a[i].kind == COORD_STORE) {
                struct store_change c = {a[i].record_kind, a[i].key, a[i].bytes, a[i].size};
                number = f->asked_number = a[i].number;
                if (!f->disk.code)
                    assert_int_equal(store_apply(f->store, &c, 1, &e), 0);
            } else if (a[i].kind == COORD_SEND) {
                struct sent *s = vector_add(f->sent, f->n_sent, f->room_sent);
                s->peer = a[i].peer;
                buffer_append(&s->bytes, a[i].bytes, a[i].size);
                assert_int_equal(message_decode(s->bytes.data, s->bytes.size, &s->arena, &s->m, &e),
                                 0);
                s->type = s->m.type;
            } else if (a[i].kind == COORD_MODEL_OPEN && f->facts) {
                bool whole = a[i].expert_groups <= 1;
                assert_true(whole || f->divided);
                coord_model_opened(f->core, a[i].key,
                                   whole ? f->facts : f->divided(a[i].expert_groups), NULL);
            } else if (a[i].kind == COORD_FRAME) {
                struct coord_frame **frame = vector_add(f->frames, f->n_frames, f->room_frames);
                *frame = a[i].frame;
            } else if (a[i].kind == COORD_WORK && f->holds_work) {
                struct coord_work **held =
                    vector_add(f->held_work, f->n_held_work, f->room_held_work);
                *held = a[i].work;
            } else if (a[i].kind == COORD_WORK) {
                a[i].work->run(a[i].work);
                coord_worked(f->core, a[i].work);
            }
        }
        if (number && !f->disk_is_slow)
            coord_stored(f->core, number, &f->disk);
    }
    fixture_hear(f);
}

static int fixture_restore(void *ctx, const char *key, const void *bytes, size_t size,
                           struct err *e)
{
    const char **kind = ((void **)ctx)[1];
    return coord_restore(((void **)ctx)[0], *kind, key, bytes, size, e);
}

/* The threads do what they hold. */
static inline void fixture_work(struct fixture *f)
{
    struct coord_work **held = f->held_work;
    size_t n = f->n_held_work;
    f->held_work = NULL;
    f->n_held_work = f->room_held_work = 0;
    for (size_t i = 0; i < n; i++) {
        held[i]->run(held[i]);
        coord_worked(f->core, held[i]);
    }
    free(held);
    fixture_settle(f);
}

/* The coordinator's own data endpoint. */
static int fixture_data_open(void *ctx, struct pack_span agent, struct pack_span *own,
                             struct err *e)
{
    (void)ctx;
    (void)agent;
    (void)e;
    *own = (struct pack_span){(const uint8_t *)"here", 4};
    return 0;
}

/* The coordinator (again): from what its store holds. */
static void fixture_start(struct fixture *f)
{
    struct err e = {0};
    struct coord_config config = {.env = &f->env,
                                  .cluster = "test",
                                  .version = "test",
                                  .public_key = "server-key-of-forty-characters-012345678",
                                  .admin_key = fixture_admin_key,
                                  .unix_s = f->unix_s ? f->unix_s : 1000,
                                  .profile_ms = UINT64_MAX,
                                  .data_open = fixture_data_open};
    assert_int_equal(coord_create(&config, &f->core, &e), 0);
    for (int i = 0; coord_kinds[i]; i++) {
        void *ctx[2] = {f->core, (void *)(uintptr_t)&coord_kinds[i]};
        assert_int_equal(store_each(f->store, coord_kinds[i], fixture_restore, ctx, &e), 0);
    }
    coord_start(f->core, f->disk.code == 0);
    fixture_settle(f);
}

static void fixture_open(struct fixture *f)
{
    struct err e = {0};
    *f = (struct fixture){0};
    f->env = env_virtual_init(&f->clock, 7);
    f->clock.now_ns = 1000000000;
    log_set_level(LOG_ERROR);
    assert_int_equal(store_open_memory(&f->store, &e), 0);
    fixture_start(f);
}

static void fixture_close(struct fixture *f)
{
    for (size_t i = 0; i < f->n_sent; i++) {
        buffer_free(&f->sent[i].bytes);
        arena_free(&f->sent[i].arena);
    }
    free(f->sent);
    free(f->held_work);
    for (size_t i = 0; i < f->n_frames; i++)
        coord_frame_free(f->frames[i]);
    free(f->frames);
    coord_destroy(&f->core);
    store_close(&f->store);
}

static inline void fixture_restart(struct fixture *f)
{
    coord_destroy(&f->core);
    fixture_start(f);
}

/* The last message of a type to a peer; NULL when there was none. */
static inline const struct message *fixture_last(const struct fixture *f, uint64_t peer,
                                                 enum message_type type)
{
    for (size_t i = f->n_sent; i-- > 0;)
        if (f->sent[i].peer == peer && f->sent[i].type == type)
            return &f->sent[i].m;
    return NULL;
}

static void fixture_say(struct fixture *f, uint64_t peer, const char *key, const struct message *m)
{
    struct buffer bytes = {0};
    message_encode(m, &bytes);
    coord_message(f->core, peer, key, bytes.data, bytes.size);
    buffer_free(&bytes);
    fixture_settle(f);
}

/* The same, each `from` byte in it made `to` on the way: what our own encoder does not send. */
static inline void fixture_say_changed(struct fixture *f, uint64_t peer, const char *key,
                                       const struct message *m, char from, char to)
{
    struct buffer bytes = {0};
    message_encode(m, &bytes);
    for (size_t i = 0; i < bytes.size; i++)
        bytes.data[i] = bytes.data[i] == (uint8_t)from ? (uint8_t)to : bytes.data[i];
    coord_message(f->core, peer, key, bytes.data, bytes.size);
    buffer_free(&bytes);
    fixture_settle(f);
}

static inline void fixture_pass_ms(struct fixture *f, uint64_t ms)
{
    for (uint64_t step; ms; ms -= step) {
        step = ms < COORD_TICK_MS ? ms : COORD_TICK_MS;
        f->clock.now_ns += step * 1000000;
        coord_tick(f->core);
        fixture_settle(f);
    }
}

/* So long that nobody wants to see every tick. */
static inline void fixture_jump_ms(struct fixture *f, uint64_t ms)
{
    f->clock.now_ns += ms * 1000000;
    f->core->woke_ns += ms * 1000000;
    f->core->now_ns += ms * 1000000;
}

/* Asks as hpctl; the answer. */
static inline const struct message_answer *
fixture_ask(struct fixture *f, const char *verb, const char *arguments, const struct buffer *blob)
{
    struct message m = {.type = MESSAGE_ASK, .id = 5};
    m.u.ask.verb = verb;
    m.u.ask.arguments = arguments;
    if (blob)
        m.u.ask.blob = (struct pack_span){blob->data, blob->size};
    size_t before = f->n_sent;
    fixture_say(f, ADMIN, fixture_admin_key, &m);
    for (size_t i = f->n_sent; i-- > before;)
        if (f->sent[i].peer == ADMIN)
            return &f->sent[i].m.u.answer;
    return NULL;
}

static void fixture_invite(struct fixture *f, int ttl_s)
{
    char arguments[40];
    snprintf(arguments, sizeof arguments, "{\"ttl_s\": %d}", ttl_s);
    const struct message_answer *a = fixture_ask(f, "token.create", arguments, NULL);
    json_t *result = json_loads(a->result, 0, NULL);
    struct join_token t;
    struct err e = {0};
    assert_int_equal(join_token_parse(json_string_value(json_object_get(result, "token")), &t, &e),
                     0);
    memcpy(f->token, t.secret, sizeof f->token);
    json_decref(result);
}

static const char *fixture_key(int agent)
{
    static char key[2][KEY_TEXT];
    snprintf(key[agent & 1], KEY_TEXT, "agent-%02d-key-of-forty-characters-01234567", agent);
    return key[agent & 1];
}

static const char *fixture_node(const char *kind, double memory)
{
    static char node[400];
    snprintf(node, sizeof node,
             "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"%s\", "
             "\"memory_bytes\": %.0f}], \"nics\": [{\"name\": \"lo\", "
             "\"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 1e-4}]}",
             kind, memory);
    return node;
}

static void fixture_join(struct fixture *f, uint64_t peer, const char *key, const char *name,
                         const char *token, const char *node)
{
    struct message m = {.type = MESSAGE_JOIN, .id = 3};
    m.u.join = (struct message_join){.name = name,
                                     .token = token,
                                     .program = "test",
                                     .machine = name,
                                     .hostname = name,
                                     .node = node,
                                     .data_address = {(const uint8_t *)name, strlen(name)}};
    fixture_say(f, peer, key, &m);
}

static void fixture_beat(struct fixture *f, uint64_t peer, const char *key)
{
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.number = 1;
    fixture_say(f, peer, key, &m);
}

/* Agent number i, ready: named "a<i>" on peer 10 + i. */
static inline void fixture_agent(struct fixture *f, int i, const char *kind, double memory)
{
    char name[8];
    snprintf(name, sizeof name, "a%d", i);
    fixture_invite(f, 60);
    fixture_join(f, 10 + (uint64_t)i, fixture_key(i), name, f->token, fixture_node(kind, memory));
    fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
}

#endif
