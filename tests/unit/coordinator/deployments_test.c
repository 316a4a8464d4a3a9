/* A deployment and its sequences, message by message. */
#include "coordinator/deployments.h"
#include "coordinator/sequences.h"
#include "coordinator/shares.h"
#include "tests/unit/coordinator/core_fixture.h"

static const struct core_layer layers[6] = {
    {"embed", "embed", 1000, 500, 0, 64, 0}, {"l1", "attn", 1000, 500, 64, 64, 1e5},
    {"l2", "mlp", 1000, 500, 0, 64, 1e5},    {"l3", "attn", 1000, 500, 64, 64, 1e5},
    {"l4", "mlp", 1000, 500, 0, 64, 1e5},    {"head", "head", 1000, 500, 0, 4, 1e5},
};
static const uint32_t end_ids[] = {2};
static const struct core_model facts = {.architecture = "test",
                                        .layers = layers,
                                        .n_layers = 6,
                                        .vocabulary = 100,
                                        .width = 16,
                                        .context = 256,
                                        .end_ids = end_ids,
                                        .n_end_ids = 1};

static void ask_deploy(struct fixture *f, const char *options)
{
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .heads = {&first, 1}};
    struct buffer blob = {0};
    manifest_encode(&m, &blob);
    f->facts = &facts;
    char arguments[300];
    snprintf(arguments, sizeof arguments, "{\"name\": \"d\", \"options\": %s}", options);
    fixture_ask(f, "deploy", arguments, &blob);
    buffer_free(&blob);
}

static void stage_says(struct fixture *f, int agent, uint64_t generation, uint64_t stage,
                       const char *state, const uint32_t *wanted, size_t n)
{
    struct message m = {.type = MESSAGE_STAGE_STATE};
    m.u.stage_state = (struct message_stage_state){
        .deployment = deployment_find(f->core, "d") ? deployment_find(f->core, "d")->id : 1,
        .generation = generation,
        .stage = stage,
        .state = state,
        .wanted = {wanted, n},
        .code = strcmp(state, "failed") == 0 ? "no_space" : "",
        .text = strcmp(state, "failed") == 0 ? "the disk is full" : "",
        .hint = strcmp(state, "failed") == 0 ? "free some space" : ""};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

/* A heartbeat that shows a stage. */
static void beat_with(struct fixture *f, int agent, uint64_t deployment, uint64_t generation,
                      uint64_t stage, const char *state)
{
    struct message_held_stage held = {
        .deployment = deployment, .generation = generation, .stage = stage, .state = state};
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.held = (struct pack_list){&held, 1};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

static const char *state_of(struct fixture *f)
{
    const struct deployment *d = deployment_find(f->core, "d");
    return d ? deployment_states[d->state].word : "gone";
}

/* Three agents, serving over a1, a0. */
static struct deployment *serving(struct fixture *f)
{
    fixture_open(f);
    for (int i = 0; i < 3; i++)
        fixture_agent(f, i, "k", 1e9);
    ask_deploy(f, "{\"agents\": \"a1,a0\", \"max_context\": 128}");
    stage_says(f, 1, 1, 0, "ready", NULL, 0);
    stage_says(f, 0, 1, 1, "ready", NULL, 0);
    assert_string_equal(state_of(f), "serving");
    return deployment_find(f->core, "d");
}

static void hop_says(struct fixture *f, int agent, uint64_t generation, uint64_t stage, bool heard)
{
    struct message m = {.type = MESSAGE_HOP_STATE};
    m.u.hop_state = (struct message_hop_state){
        .deployment = deployment_find(f->core, "d") ? deployment_find(f->core, "d")->id : 1,
        .generation = generation,
        .stage = stage,
        .heard = heard,
        .silent_s = heard ? 0 : 2.5};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

/* Both stages are ready, but their agents have not heard each other. */
static void ready_and_deaf(struct fixture *f)
{
    fixture_open(f);
    f->deaf = true;
    for (int i = 0; i < 3; i++)
        fixture_agent(f, i, "k", 1e9);
    ask_deploy(f, "{\"agents\": \"a1,a0\", \"max_context\": 128}");
    stage_says(f, 1, 1, 0, "ready", NULL, 0);
    stage_says(f, 0, 1, 1, "ready", NULL, 0);
    assert_string_equal(state_of(f), "ready");
}

static void nothing_serves_before_every_hop_was_heard(void **state)
{
    (void)state;
    struct fixture f;
    ready_and_deaf(&f);
    hop_says(&f, 0, 1, 1, true);
    hop_says(&f, 2, 1, 0, true); /* it has no stage */
    hop_says(&f, 1, 0, 0, true); /* another generation */
    hop_says(&f, 1, 1, 7, true); /* no such stage */
    assert_string_equal(state_of(&f), "ready");
    hop_says(&f, 1, 1, 0, true);
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

static void agents_that_cannot_reach_each_other_are_named(void **state)
{
    (void)state;
    struct fixture f;
    ready_and_deaf(&f);
    hop_says(&f, 0, 1, 1, true);
    size_t before = f.n_sent;
    for (int i = 0; i < HOPS_TRY_MS / 500; i++) {
        for (int a = 0; a < 3; a++)
            a < 2 ? beat_with(&f, a, 1, 1, (uint64_t)(1 - a), "ready")
                  : fixture_beat(&f, 12, fixture_key(2));
        fixture_pass_ms(&f, 500);
    }
    assert_string_equal(state_of(&f),
                        "gone"); /* a first deployment that does not come to serve is removed */
    const char *text = NULL;
    for (size_t i = before; i < f.n_sent; i++)
        if (f.sent[i].peer == ADMIN && f.sent[i].type == MESSAGE_ANSWER &&
            f.sent[i].m.u.answer.code[0])
            text = f.sent[i].m.u.answer.text;
    assert_non_null(text);
    assert_non_null(strstr(text, "\"a0\" cannot reach \"a1\""));
    assert_null(strstr(text, "\"a1\" cannot reach"));
    fixture_close(&f);
}

static void a_hop_that_falls_silent_breaks_what_serves_over_it(void **state)
{
    (void)state;
    struct fixture f;
    struct deployment *d = serving(&f);
    hop_says(&f, 0, 1, 1, false);
    assert_string_not_equal(state_of(&f), "serving");
    assert_non_null(strstr(d->why.text, "\"a1\" cannot reach \"a0\""));
    fixture_close(&f);
}

static void hops_that_are_heard_again_end_the_wait_for_the_next_try(void **state)
{
    (void)state;
    struct fixture f;
    serving(&f);
    f.deaf = true;
    hop_says(&f, 0, 1, 1, false); /* a cable is pulled */
    stage_says(&f, 1, 2, 0, "ready", NULL, 0);
    stage_says(&f, 0, 2, 1, "ready", NULL, 0);
    assert_string_equal(state_of(&f), "ready");
    for (int i = 0; i < HOPS_TRY_MS / 500 && strcmp(state_of(&f), "ready") == 0; i++) {
        for (int a = 0; a < 3; a++)
            a < 2 ? beat_with(&f, a, 1, 2, (uint64_t)(1 - a), "ready")
                  : fixture_beat(&f, 12, fixture_key(2));
        fixture_pass_ms(&f, 500);
    }
    assert_string_equal(state_of(&f), "broken");
    hop_says(&f, 0, 2, 1, true); /* and put in again */
    assert_string_equal(state_of(&f), "broken");
    hop_says(&f, 1, 2, 0, true);
    assert_string_equal(state_of(&f), "preparing");
    fixture_close(&f);
}

static void a_model_whose_files_are_not_open_yet_is_there_but_does_not_serve(void **state)
{
    (void)state;
    struct fixture f;
    struct err e = {0};
    struct request_model m, all[REQUEST_MAX_MODELS];
    serving(&f);
    f.facts = NULL; /* nobody opens it */
    fixture_restart(&f);
    struct requests r;
    core_requests(f.core, &r);
    assert_int_equal(r.find(r.ctx, "d", &m, &e), 0);
    assert_false(m.serving);
    assert_int_equal(r.models(r.ctx, all, REQUEST_MAX_MODELS), 1);
    assert_int_equal(r.find(r.ctx, "e", &m, &e), HP_ENOENT);
    fixture_close(&f);
}

static int count_of(const struct fixture *f, uint64_t peer, enum message_type type)
{
    int n = 0;
    for (size_t i = 0; i < f->n_sent; i++)
        n += f->sent[i].peer == peer && f->sent[i].type == type;
    return n;
}

/* ---- deployments
 * -------------------------------------------------------------------------------------------------
 */

static void progress_is_told_until_it_serves(void **state)
{
    (void)state;
    static const char *const phases[] = {"\"phase\":\"plan\"", "\"phase\":\"prepare\"",
                                         "\"phase\":\"serving\""};
    struct fixture f;
    serving(&f);
    int at = 0;
    for (size_t i = 0; i < f.n_sent && at < 3; i++)
        if (f.sent[i].peer == ADMIN && strstr(f.sent[i].m.u.answer.result, phases[at])) {
            assert_int_equal(f.sent[i].m.u.answer.more, at < 2);
            at++;
        }
    assert_int_equal(at, 3);
    fixture_close(&f);
}

static void neighbours_learn_each_others_addresses(void **state)
{
    (void)state;
    struct fixture f;
    serving(&f);
    const struct message_stage_connect *first =
        &fixture_last(&f, 11, MESSAGE_STAGE_CONNECT)->u.stage_connect;
    const struct message_stage_connect *last =
        &fixture_last(&f, 10, MESSAGE_STAGE_CONNECT)->u.stage_connect;
    assert_int_equal(first->next_address.size, 2);
    assert_memory_equal(first->next_address.data, "a0", 2);
    assert_int_equal(first->first_address.size, 0);
    assert_int_equal(last->next_address.size, 0);
    assert_memory_equal(last->first_address.data, "a1", 2);
    assert_null(fixture_last(&f, 12, MESSAGE_STAGE_CONNECT));
    fixture_close(&f);
}

static void every_hop_has_a_session_of_its_own_which_outlives_a_restart(void **state)
{
    (void)state;
    struct fixture f;
    serving(&f); /* on a1, then a0 */
    uint8_t keys[2][KEY_BYTES];
    const struct message_stage_prepare *p[2] = {
        &fixture_last(&f, 11, MESSAGE_STAGE_PREPARE)->u.stage_prepare,
        &fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare};
    uint64_t sessions[] = {p[0]->input_session, p[1]->input_session};
    assert_true(sessions[0] && sessions[1] && sessions[0] != sessions[1] &&
                sessions[0] != p[0]->session && sessions[1] != p[1]->session);
    for (int i = 0; i < 2; i++)
        assert_int_equal(key_decode(fixture_key(i), keys[i], NULL), 0);
    assert_int_equal(p[0]->input_from.size, KEY_BYTES);
    assert_memory_equal(p[0]->input_from.data, keys[0],
                        KEY_BYTES); /* the tokens come from the last, which is a0 */
    assert_memory_equal(p[1]->input_from.data, keys[1], KEY_BYTES);
    for (int run = 0; run < 2; run++) {
        const struct message_stage_connect *first =
            &fixture_last(&f, 11, MESSAGE_STAGE_CONNECT)->u.stage_connect;
        const struct message_stage_connect *last =
            &fixture_last(&f, 10, MESSAGE_STAGE_CONNECT)->u.stage_connect;
        assert_true(first->next_session == sessions[1] && first->first_session == 0);
        assert_true(last->next_session == 0 && last->first_session == sessions[0]);
        fixture_restart(&f);
        assert_true(deployment_find(f.core, "d")->stages[0].input_session == sessions[0]);
        assert_true(deployment_find(f.core, "d")->stages[1].input_session == sessions[1]);
    }
    fixture_close(&f);
}

static void a_stage_that_fails_ends_a_first_deployment_in_its_agents_words(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    stage_says(&f, 0, 1, 0, "failed", NULL, 0);
    const struct message_answer *a = &fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer;
    assert_string_equal(a->code, "no_space");
    assert_string_equal(a->hint, "free some space");
    assert_non_null(strstr(a->text, "the disk is full"));
    assert_non_null(strstr(a->text, "a0"));
    assert_non_null(fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD));
    assert_string_equal(state_of(&f), "gone");
    fixture_close(&f);
}

static void a_failure_is_one_whatever_its_agent_calls_it(void **state)
{
    (void)state;
    static const char *const codes[] = {"ok", "pending"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        fixture_open(&f);
        fixture_agent(&f, 0, "k", 1e9);
        ask_deploy(&f, "{}");
        struct message m = {.type = MESSAGE_STAGE_STATE};
        m.u.stage_state = (struct message_stage_state){.deployment = 1,
                                                       .generation = 1,
                                                       .state = "failed",
                                                       .code = codes[i],
                                                       .text = "all is well"};
        fixture_say(&f, 10, fixture_key(0), &m);
        assert_string_equal(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.code, "protocol");
        assert_string_equal(state_of(&f), "gone");
        fixture_close(&f);
    }
}

static void what_older_generations_and_strangers_say_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 1e9);
    ask_deploy(&f, "{\"agents\": \"a1,a0\"}");
    stage_says(&f, 1, 1, 0, "ready", NULL, 0);
    stage_says(&f, 0, 0, 1, "ready", NULL, 0); /* generation */
    stage_says(&f, 0, 2, 1, "ready", NULL, 0);
    stage_says(&f, 2, 1, 1, "ready", NULL, 0);  /* agent */
    stage_says(&f, 0, 1, 0, "failed", NULL, 0); /* stage */
    assert_string_equal(state_of(&f), "preparing");
    stage_says(&f, 0, 1, 1, "ready", NULL, 0);
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

static int uploads_asked(const struct fixture *f)
{
    int n = 0;
    for (size_t i = 0; i < f->n_sent; i++)
        n += f->sent[i].peer == ADMIN &&
             strstr(f->sent[i].m.u.answer.result, "\"phase\":\"upload\"") != NULL;
    return n;
}

static void missing_chunks_are_asked_for_once_and_again_after_silence(void **state)
{
    (void)state;
    struct fixture f;
    static const uint32_t wanted[] = {7, 3};
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    stage_says(&f, 0, 1, 0, "fetching", wanted, 2);
    assert_int_equal(uploads_asked(&f), 1);
    const char *asked = NULL;
    for (size_t i = 0; i < f.n_sent; i++)
        if (f.sent[i].peer == ADMIN && strstr(f.sent[i].m.u.answer.result, "upload"))
            asked = f.sent[i].m.u.answer.result;
    assert_non_null(strstr(asked, "\"chunks\":[3,7]"));
    assert_non_null(strstr(asked, "\"address\":\"6130\""));
    assert_false(fixture_last(&f, 10, MESSAGE_CHUNK_GRANT)->u.chunk_grant.revoke);
    stage_says(&f, 0, 1, 0, "fetching", wanted, 1);
    assert_int_equal(uploads_asked(&f), 1);
    for (int i = 0; i < 20; i++) {
        fixture_pass_ms(&f, 1000);
        beat_with(&f, 0, 1, 1, 0, "fetching");
    }
    assert_int_equal(uploads_asked(&f), 2);
    stage_says(&f, 0, 1, 0, "ready", NULL, 0);
    assert_true(fixture_last(&f, 10, MESSAGE_CHUNK_GRANT)->u.chunk_grant.revoke);
    fixture_close(&f);
}

static void an_order_that_does_not_show_is_given_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    ask_deploy(&f, "{}");
    assert_int_equal(count_of(&f, 10, MESSAGE_STAGE_PREPARE), 1);
    fixture_pass_ms(&f, 1000);
    fixture_beat(&f, 10, fixture_key(0));
    assert_int_equal(count_of(&f, 10, MESSAGE_STAGE_PREPARE), 1);
    fixture_pass_ms(&f, 1200);
    fixture_beat(&f, 10, fixture_key(0));
    assert_int_equal(count_of(&f, 10, MESSAGE_STAGE_PREPARE), 2);
    beat_with(&f, 0, 1, 1, 0, "ready"); /* and its answer may be lost too */
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

static void a_stage_that_is_gone_makes_the_next_generation(void **state)
{
    (void)state;
    struct fixture f;
    struct deployment *d = serving(&f);
    for (int i = 0; i < 5; i++) {
        fixture_pass_ms(&f, 500);
        beat_with(&f, 1, d->id, 1, 0, "ready");
        beat_with(&f, 0, d->id, 1, 1, i < 4 ? "ready" : "failed");
        fixture_beat(&f, 12, fixture_key(2));
    }
    assert_int_equal(d->generation, 2);
    assert_string_equal(state_of(&f), "preparing");
    const struct message_stage_prepare *p =
        &fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare;
    assert_int_equal(p->generation, 2);
    assert_int_equal(p->stage, 1);
    fixture_close(&f);
}

static void stages_that_nobody_needs_are_unloaded(void **state)
{
    (void)state;
    struct fixture f;
    serving(&f);
    beat_with(&f, 2, 77, 3, 0, "ready");
    const struct message_stage_unload *u =
        &fixture_last(&f, 12, MESSAGE_STAGE_UNLOAD)->u.stage_unload;
    assert_int_equal(u->deployment, 77);
    assert_int_equal(u->generation, 3);
    fixture_close(&f);
}

static void deploying_again_is_told_that_it_serves_or_why_not(void **state)
{
    (void)state;
    struct fixture f;
    serving(&f);
    ask_deploy(&f, "{\"agents\": \"a1,a0\", \"max_context\": 128}");
    assert_non_null(
        strstr(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.result, "\"phase\":\"serving\""));
    ask_deploy(&f, "{\"agents\": \"a2\"}");
    assert_string_equal(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.code, "exists");
    assert_string_equal(state_of(&f), "serving");
    fixture_close(&f);
}

/* ---- sequences
 * -------------------------------------------------------------------------------------------------------
 */

struct stream {
    uint64_t id;
    uint32_t ids[64];
    size_t n;
    int finished, failed;
    enum request_finish finish;
    struct request_usage usage;
    char why[256];
};

static void on_tokens(void *ctx, uint64_t id, const uint32_t *ids, size_t n)
{
    struct stream *s = ctx;
    assert_int_equal(id, s->id);
    memcpy(s->ids + s->n, ids, n * sizeof *ids);
    s->n += n;
}
static void on_finished(void *ctx, uint64_t id, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct stream *s = ctx;
    assert_int_equal(id, s->id);
    s->finished++;
    s->finish = finish;
    s->usage = *usage;
}
static void on_failed(void *ctx, uint64_t id, const struct err *why,
                      const struct request_usage *usage)
{
    struct stream *s = ctx;
    assert_int_equal(id, s->id);
    s->failed++;
    s->usage = *usage;
    snprintf(s->why, sizeof s->why, "%s", why->text);
}

/* Does what fixture_settle leaves out. */
static void settle(struct fixture *f)
{
    size_t n;
    const struct core_action *a;
    while (a = core_take(f->core, &n), n > 0)
        for (size_t i = 0; i < n; i++) {
            if (a[i].kind == CORE_STORE)
                core_stored(f->core, a[i].number, NULL);
            core_action_call_back(f->core, &a[i]);
            if (a[i].kind == CORE_SEND) {
                struct err e = {0};
                struct sent *s = core_array_add(&f->sent, &f->n_sent, sizeof *s);
                s->peer = a[i].peer;
                buffer_append(&s->bytes, a[i].bytes, a[i].size);
                assert_int_equal(message_decode(s->bytes.data, s->bytes.size, &s->arena, &s->m, &e),
                                 0);
                s->type = s->m.type;
            }
        }
}

static int ask_stream(struct fixture *f, struct stream *s, const char *client, size_t n,
                      uint64_t max_tokens)
{
    struct requests r;
    struct err e = {0};
    uint32_t prompt[128];
    for (size_t i = 0; i < n; i++)
        prompt[i] = (uint32_t)i % 90 + 5;
    *s = (struct stream){0};
    core_requests(f->core, &r);
    struct request rq = {.model = "d",
                         .prompt = prompt,
                         .n_prompt = n,
                         .max_tokens = max_tokens,
                         .client = client,
                         .callbacks = {s, on_tokens, on_finished, on_failed}};
    int rc = r.open(r.ctx, &rq, &s->id, &e);
    settle(f);
    return rc;
}

static void open_stream(struct fixture *f, struct stream *s, size_t n, uint64_t max_tokens)
{
    assert_int_equal(ask_stream(f, s, NULL, n, max_tokens), 0);
}

static void tokens(struct fixture *f, int agent, uint64_t generation, uint64_t sequence,
                   uint64_t first, const uint32_t *ids, size_t n, const char *finish)
{
    struct message m = {.type = MESSAGE_TOKENS};
    m.u.tokens = (struct message_tokens){.deployment = 1,
                                         .generation = generation,
                                         .sequence = sequence,
                                         .first = first,
                                         .ids = {ids, n},
                                         .finish = finish};
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    core_message(f->core, 10 + (uint64_t)agent, fixture_key(agent), bytes.data, bytes.size);
    buffer_free(&bytes);
    settle(f);
}

static void every_stage_hears_what_it_needs_of_a_sequence(void **state)
{
    (void)state;
    struct fixture f;
    struct stream s;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 1e9);
    ask_deploy(&f, "{\"agents\": \"a2,a1,a0\", \"slice\": 40}");
    for (int i = 0; i < 3; i++)
        stage_says(&f, 2 - i, 1, (uint64_t)i, "ready", NULL, 0);
    open_stream(&f, &s, 100, 20);
    for (int i = 0; i < 3; i++) {
        const struct message_sequence_open *o =
            &fixture_last(&f, 10 + (uint64_t)i, MESSAGE_SEQUENCE_OPEN)->u.sequence_open;
        assert_int_equal(o->kv_tokens, 120);
        assert_int_equal(o->sequence >> 32, 1); /* the boot number */
        assert_int_equal(o->prompt.count, i == 1 ? 0 : 100);
        assert_int_equal(o->slices.count, i == 2 ? 3 : 0);
        assert_int_equal(o->end_ids.count, 1);
    }
    assert_int_equal(fixture_last(&f, 12, MESSAGE_SEQUENCE_OPEN)->u.sequence_open.slices.items[2],
                     20);
    fixture_close(&f);
}

static void repeated_tokens_are_ignored_and_the_end_token_is_not_text(void **state)
{
    (void)state;
    struct fixture f;
    struct stream s;
    struct deployment *d = serving(&f);
    open_stream(&f, &s, 10, 20);
    uint64_t id = d->active->id;
    static const uint32_t ids[] = {11, 12, 13, 2};
    tokens(&f, 0, 1, id, 0, ids, 2, "");
    tokens(&f, 0, 1, id, 0, ids, 2, "");
    tokens(&f, 0, 1, id, 1, ids + 1, 2, "");
    tokens(&f, 1, 0, id, 3, ids, 1, ""); /* an older generation */
    tokens(&f, 2, 1, id, 3, ids, 1, ""); /* an agent that has no stage */
    tokens(&f, 1, 1, id, 3, ids, 1, ""); /* a stage that is not the last */
    tokens(&f, 1, 1, id, 3, ids, 0, "length");
    tokens(&f, 0, 1, id + 9, 3, ids, 1, ""); /* a sequence that there is not */
    assert_int_equal(s.n, 3);
    f.clock.now_ns += 1000000000;
    tokens(&f, 0, 1, id, 3, ids + 3, 1, "stop");
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.ids, ids, 3 * sizeof *ids);
    assert_int_equal(s.finished, 1);
    assert_int_equal(s.finish, REQUEST_STOP);
    assert_int_equal(s.usage.output_tokens, 4);
    assert_int_equal(s.usage.prompt_tokens, 10);
    assert_true(s.usage.decode_s > 0.99 && s.usage.decode_s < 1.01);
    for (uint64_t peer = 10; peer < 12; peer++)
        assert_int_equal(fixture_last(&f, peer, MESSAGE_SEQUENCE_CLOSE)->u.sequence_close.sequence,
                         id);
    tokens(&f, 0, 1, id, 3, ids + 3, 1, "stop");
    assert_int_equal(s.finished, 1);
    assert_int_equal(core_view(f.core).sequences_active, 0);
    fixture_close(&f);
}

static void a_gap_in_the_tokens_ends_the_stream(void **state)
{
    (void)state;
    struct fixture f;
    struct stream s;
    struct deployment *d = serving(&f);
    static const uint32_t ids[] = {11, 12};
    open_stream(&f, &s, 10, 20);
    uint64_t id = d->active->id;
    tokens(&f, 0, 1, id, 0, ids, 1, "");
    tokens(&f, 0, 1, id, 2, ids, 1, "");
    assert_int_equal(s.n, 1);
    assert_int_equal(s.failed, 1);
    assert_non_null(strstr(s.why, "tokens 1 to 1 were lost"));
    assert_int_equal(core_view(f.core).sequences_active, 0);
    fixture_close(&f);
}

static void a_lost_agent_ends_what_is_open_and_keeps_what_waits(void **state)
{
    (void)state;
    struct fixture f;
    struct stream s[12];
    struct deployment *d = serving(&f);
    for (int i = 0; i < 12; i++)
        open_stream(&f, &s[i], 60, 0); /* to the end of the context */
    uint32_t active = d->n_active;
    assert_true(active > 0 && active < 12);
    core_peer_gone(f.core, 10);
    fixture_jump_ms(&f, CORE_LOST_MS);
    fixture_beat(&f, 12, fixture_key(2));
    core_tick(f.core);
    settle(&f);
    uint32_t failed = 0;
    for (int i = 0; i < 12; i++)
        failed += (uint32_t)s[i].failed;
    assert_int_equal(failed, active);
    assert_int_equal(d->n_waiting, 12 - active);
    fixture_jump_ms(&f, 61000);
    core_tick(f.core);
    settle(&f);
    assert_int_equal(d->n_waiting, 0);
    assert_non_null(strstr(s[11].why, "waited 60 s"));
    fixture_close(&f);
}

/* Ends the sequence that was opened first. */
static void finish_oldest(struct fixture *f, struct deployment *d)
{
    struct sequence *oldest = d->active;
    for (struct sequence *s = d->active; s; s = s->next)
        oldest = s->id < oldest->id ? s : oldest;
    static const uint32_t id[] = {2};
    tokens(f, 0, d->generation, oldest->id, oldest->n_output, id, 1, "stop");
}

static bool is_running(const struct deployment *d, const struct stream *s)
{
    for (const struct sequence *q = d->active; q; q = q->next)
        if (q->request == s->id)
            return true;
    return false;
}

static void a_client_of_many_requests_does_not_make_others_wait_for_all_of_them(void **state)
{
    (void)state;
    struct fixture f;
    struct stream *many = calloc(200, sizeof *many), one, late;
    struct deployment *d = serving(&f);
    int taken = 0;
    for (int i = 0; i < 200; i++)
        taken += ask_stream(&f, &many[i], "key heavy", 60, 0) == 0;
    uint32_t active = d->n_active;
    assert_int_equal(taken, (int)active + CORE_MAX_WAITING_OF_CLIENT);
    assert_int_equal(ask_stream(&f, &one, "key light", 60, 0), 0); /* there is room in the queue */
    assert_false(is_running(d, &one));
    finish_oldest(&f, d);
    assert_true(is_running(d, &one)); /* and it is next */
    /* Whoever waited long goes first, whoever else comes. */
    fixture_jump_ms(&f, SHARES_PATIENCE_MS + 1);
    assert_int_equal(ask_stream(&f, &late, "key late", 60, 0), 0);
    finish_oldest(&f, d);
    assert_false(is_running(d, &late));
    struct requests r;
    struct request_model m;
    struct err e = {0};
    core_requests(f.core, &r);
    assert_int_equal(r.find(r.ctx, "d", &m, &e), 0);
    assert_in_range(m.retry_after_s, 1, SHARES_RETRY_MAX_S);
    fixture_close(&f);
    free(many);
}

/* Time in which every agent is well and says nothing of its sequences. */
static void nothing_for_ms(struct fixture *f, uint64_t ms)
{
    fixture_jump_ms(f, ms);
    for (size_t i = 0; i < f->core->n_members; i++)
        f->core->members[i]->heard_ns = f->core->now_ns;
    core_tick(f->core);
    settle(f);
}

/* Reading a prompt of ten tokens should take two seconds, so that a wait is 45 s and ten times
 * that. */
static struct deployment *serving_slowly(struct fixture *f)
{
    struct deployment *d = serving(f);
    d->plan_tokens = 10;
    d->stages[0].compute_s = 2;
    d->stages[1].compute_s = 0;
    return d;
}

static void a_request_without_a_sign_of_life_ends_by_the_plan(void **state)
{
    (void)state;
    struct fixture f;
    struct stream s;
    static const uint32_t ids[] = {11};
    struct deployment *d = serving_slowly(&f);
    for (int scale = 1; scale <= 3; scale += 2) {
        f.core->config.time_scale = scale;
        open_stream(&f, &s, 10, 20);
        nothing_for_ms(&f, (uint64_t)scale * 64900);
        assert_int_equal(s.failed, 0);
        nothing_for_ms(&f, (uint64_t)scale * 200);
        assert_int_equal(s.failed, 1);
        assert_non_null(
            strstr(s.why, scale == 1 ? "no sign of this request for 65 s" : "for 195 s"));
    }
    f.core->config.time_scale = 0;
    open_stream(&f, &s, 10, 20);
    nothing_for_ms(&f, 45000);
    tokens(&f, 0, 1, d->active->id, 0, ids, 1, ""); /* read: 45 s between tokens from now on */
    nothing_for_ms(&f, 44900);
    assert_int_equal(s.failed, 0);
    d->stages[1].running = true; /* as its heartbeats tell, and nothing else since */
    d->stages[1].batches_ns = 1;
    nothing_for_ms(&f, 5000);
    assert_int_equal(s.failed, 1);
    assert_non_null(strstr(s.why, "stage 2 of 2"));
    assert_non_null(strstr(s.why, "on agent \"a0\") has been at one batch"));
    assert_int_equal(core_view(f.core).sequences_active, 0);
    fixture_close(&f);
}

static void a_request_behind_others_waits_as_long_as_they_are_read(void **state)
{
    (void)state;
    struct fixture f;
    struct stream first, second;
    static const uint32_t ids[] = {11};
    struct deployment *d = serving_slowly(&f);
    open_stream(&f, &first, 10, 20);
    uint64_t id = d->active->id;
    open_stream(&f, &second, 10, 20);
    nothing_for_ms(&f, 80000); /* two prompts: 85 s */
    assert_int_equal(first.failed + second.failed, 0);
    tokens(&f, 0, 1, id, 0, ids, 1, "length"); /* the stages were busy with this one */
    assert_int_equal(first.finished, 1);
    nothing_for_ms(&f, 60000);
    assert_int_equal(second.failed, 0);
    nothing_for_ms(&f, 8000);
    assert_int_equal(second.failed, 1);
    fixture_close(&f);
}

static void a_request_that_others_pass_for_ever_ends_too(void **state)
{
    (void)state;
    struct fixture f;
    struct stream lost, other;
    static const uint32_t ids[] = {11};
    struct deployment *d = serving_slowly(&f);
    open_stream(&f, &lost, 10, 20);
    int passed = 0;
    for (; passed < 100 && !lost.failed; passed++) {
        open_stream(&f, &other, 10, 20);
        nothing_for_ms(&f, 20000);
        if (!lost.failed)
            tokens(&f, 0, 1, d->active->id, 0, ids, 1, "length");
    }
    assert_true(passed > 10 && passed < 50);
    fixture_close(&f);
}

struct seen {
    double opened, finished, serving;
};
static void see(void *out, const char *name, const char *type, const char *help, const char *labels,
                double value)
{
    struct seen *s = out;
    assert_true(*help && (strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0));
    if (strcmp(name, "hp_sequences_opened_total") == 0)
        s->opened = value;
    if (strcmp(name, "hp_sequences_finished_total") == 0)
        s->finished = value;
    if (strcmp(name, "hp_deployment_serving") == 0 && strcmp(labels, "deployment=\"d\"") == 0)
        s->serving = value;
}
static void figures_tell_what_happened(void **state)
{
    (void)state;
    struct fixture f;
    struct stream s;
    struct requests r;
    struct seen seen = {0};
    struct deployment *d = serving(&f);
    static const uint32_t ids[] = {11};
    open_stream(&f, &s, 10, 1);
    tokens(&f, 0, 1, d->active->id, 0, ids, 1, "length");
    core_requests(f.core, &r);
    r.metrics(r.ctx, see, &seen);
    assert_true(seen.opened > 0.5 && seen.finished > 0.5 && seen.serving > 0.5);
    assert_int_equal(s.finish, REQUEST_LENGTH);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_serves_before_every_hop_was_heard),
        cmocka_unit_test(agents_that_cannot_reach_each_other_are_named),
        cmocka_unit_test(a_hop_that_falls_silent_breaks_what_serves_over_it),
        cmocka_unit_test(hops_that_are_heard_again_end_the_wait_for_the_next_try),
        cmocka_unit_test(a_model_whose_files_are_not_open_yet_is_there_but_does_not_serve),
        cmocka_unit_test(progress_is_told_until_it_serves),
        cmocka_unit_test(neighbours_learn_each_others_addresses),
        cmocka_unit_test(every_hop_has_a_session_of_its_own_which_outlives_a_restart),
        cmocka_unit_test(a_stage_that_fails_ends_a_first_deployment_in_its_agents_words),
        cmocka_unit_test(a_failure_is_one_whatever_its_agent_calls_it),
        cmocka_unit_test(what_older_generations_and_strangers_say_changes_nothing),
        cmocka_unit_test(missing_chunks_are_asked_for_once_and_again_after_silence),
        cmocka_unit_test(an_order_that_does_not_show_is_given_again),
        cmocka_unit_test(a_stage_that_is_gone_makes_the_next_generation),
        cmocka_unit_test(stages_that_nobody_needs_are_unloaded),
        cmocka_unit_test(deploying_again_is_told_that_it_serves_or_why_not),
        cmocka_unit_test(every_stage_hears_what_it_needs_of_a_sequence),
        cmocka_unit_test(repeated_tokens_are_ignored_and_the_end_token_is_not_text),
        cmocka_unit_test(a_gap_in_the_tokens_ends_the_stream),
        cmocka_unit_test(a_lost_agent_ends_what_is_open_and_keeps_what_waits),
        cmocka_unit_test(a_client_of_many_requests_does_not_make_others_wait_for_all_of_them),
        cmocka_unit_test(figures_tell_what_happened),
        cmocka_unit_test(a_request_without_a_sign_of_life_ends_by_the_plan),
        cmocka_unit_test(a_request_behind_others_waits_as_long_as_they_are_read),
        cmocka_unit_test(a_request_that_others_pass_for_ever_ends_too),
    };
    return cmocka_run_group_tests_name("deployments", tests, NULL, NULL);
}
