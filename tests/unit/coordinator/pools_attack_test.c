/* Pools whose agents lie about times and results, stand still or all go, and whose users ask what
 * cannot be: every request is answered once, and what served goes on. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/pools/pool_state.h"
#include "tests/unit/coordinator/pools_fixture.h"

enum { ASKED_MOST = 64 };

/* Requests, and what came of them. */
struct infers_asked {
    float values[2 * POOL_MAX_SAMPLES];
    struct ndarray inputs[ASKED_MOST];
    struct infer_answer answers[ASKED_MOST];
    uint64_t ids[ASKED_MOST];
    int n;
};

static int asked_add_of(struct fixture *f, struct infers_asked *all, int64_t samples,
                        uint64_t timeout_ns)
{
    int i = all->n++;
    struct pool_requests r;
    struct err e = {0};
    all->inputs[i] = input_of(all->values, samples);
    all->answers[i].status = 1;
    coord_pool_requests(f->core, &r);
    struct pool_call call = {.model = "m",
                             .inputs = &all->inputs[i],
                             .timeout_ns = timeout_ns,
                             .ctx = &all->answers[i],
                             .answered = on_answered,
                             .failed = on_failed};
    uint32_t unused;
    return r.infer(r.ctx, &call, &all->ids[i], &unused, &e);
}

static int asked_add(struct fixture *f, struct infers_asked *all, uint64_t timeout_ns)
{
    return asked_add_of(f, all, 1, timeout_ns);
}

static void asked_cancel(struct fixture *f, struct infers_asked *all, int i)
{
    struct pool_requests r;
    coord_pool_requests(f->core, &r);
    r.cancel(r.ctx, all->ids[i]);
    all->answers[i].status = 1;
}

static int asked_with(const struct infers_asked *all, int status)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        n += all->answers[i].status == status;
    return n;
}

/* What comes back, as an agent that lies writes it. */
struct told_result {
    uint64_t arrived_ns, began_ns, ended_ns;
    int tensors;
};

/* `type` is that of the first tensor; 0: that of what was sent. */
static void result_tell_of(struct fixture *f, const struct coord_frame *sent, struct told_result t,
                           uint32_t type)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[2];
    int n;
    struct frame_header h = sent->header;
    assert_int_equal(frame_tensors_decode(&h, sent->payload, legs, tensors, 1, &n, NULL), 0);
    tensors[0].type = type ? type : tensors[0].type;
    tensors[1] = tensors[0];
    for (int i = 0; i < h.n_runs; i++) {
        legs[i].arrived_ns = t.arrived_ns;
        legs[i].began_ns = t.began_ns;
        legs[i].ended_ns = t.ended_ns;
    }
    assert_int_equal(coord_pool_sessions(f->core, &h.session, 1), 1);
    h.first_position = h.n_runs;
    h.payload_bytes = frame_tensors_size(h.n_runs, tensors, t.tensors);
    uint8_t *payload = malloc(h.payload_bytes);
    frame_tensors_encode(legs, h.n_runs, tensors, t.tensors, payload);
    coord_frame_in(f->core, &h, payload);
    free(payload);
    fixture_settle(f);
}

static void result_tell(struct fixture *f, const struct coord_frame *sent, struct told_result t)
{
    result_tell_of(f, sent, t, 0);
}

static void peer_dies(struct fixture *f, int agent, int stays)
{
    for (int i = 0; i < 24; i++) {
        fixture_pass_ms(f, 250);
        if (stays >= 0)
            fixture_beat(f, 10 + (uint64_t)stays, fixture_key(stays));
        pools_go(f);
    }
    (void)agent;
}

static json_t *share_of(struct fixture *f, int share)
{
    json_t *d = described(f),
           *s = json_array_get(json_object_get(json_object_get(d, "current"), "shares"),
                               (size_t)share);
    json_incref(s);
    json_decref(d);
    return s;
}

TEST(times_that_cannot_be_are_not_believed)
{
    static const struct told_result lies[] = {{1, 1, UINT64_MAX, 1},
                                              {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX, 1},
                                              {1, INT64_MAX, INT64_MAX, 1},
                                              {1, INT64_MAX / 4 - 1, INT64_MAX / 4, 1},
                                              {7, 9, 3, 1},
                                              {0, 0, 0, 1}};
    struct fixture f;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct infers_asked all = {.n = 0};
        serve(&f, two_fast, 2, 0.1);
        assert_int_equal(asked_add(&f, &all, 0), 0);
        frames_await(&f, 1);
        result_tell(&f, f.frames[0], lies[i]);
        assert_int_equal(all.answers[0].status, 0);
        json_t *s = share_of(&f, f.frames[0]->header.stage);
        assert_true(json_number_value(json_object_get(s, "actual_s")) < 1);
        json_decref(s);
        for (int k = 0; k < 8; k++) /* both shares take more */
            assert_int_equal(asked_add(&f, &all, 0), 0);
        frames_await(&f, 3);
        peer_dies(&f, 0, 1);
        peer_dies(&f, 1, -1);
        fixture_close(&f);
    }
}

TEST(a_result_with_fewer_tensors_is_refused_though_its_first_client_is_gone)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(asked_add(&f, &all, 0), 0);
    frames_await(&f, 1);
    assert_int_equal(f.frames[0]->header.n_tokens, 4);
    asked_cancel(&f, &all, 0);
    result_tell(&f, f.frames[0], (struct told_result){1, 1, 2, 0});
    assert_int_equal(asked_with(&all, HP_EPROTO), 3);
    fixture_close(&f);
}

static void share_fails(struct fixture *f, const struct coord_frame *sent, const char *code)
{
    struct message m = {.type = MESSAGE_SHARE_FAILED};
    m.u.share_failed = (struct message_share_failed){.deployment = sent->header.deployment,
                                                     .generation = sent->header.generation,
                                                     .stage = sent->header.stage,
                                                     .batch = sent->header.batch,
                                                     .code = code,
                                                     .text = "index 1000 of 4"};
    fixture_say(f, 10, fixture_key(0), &m);
    pools_go(f);
}

TEST(who_shares_a_batch_with_a_request_that_cannot_be_computed_does_not_hear_of_it)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(asked_add(&f, &all, 0), 0);
    frames_await(&f, 1);
    assert_int_equal(f.frames[0]->header.n_tokens, 4);
    share_fails(&f, f.frames[0], status_word(HP_EINVAL));
    assert_int_equal(f.n_frames, 5);
    for (size_t i = 1; i < 5; i++) {
        assert_int_equal(f.frames[i]->header.n_tokens, 1);
        if (i == 2)
            share_fails(&f, f.frames[i], status_word(HP_EINVAL));
        else
            frame_answer(&f, f.frames[i]);
    }
    assert_int_equal(asked_with(&all, 0), 3);
    assert_int_equal(asked_with(&all, HP_EINVAL), 1);
    assert_int_equal(f.n_frames, 5);
    /* What is no request's fault is told to all. */
    all.n = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(asked_add(&f, &all, 0), 0);
    frames_await(&f, 6);
    share_fails(&f, f.frames[5], status_word(HP_ENOMEM));
    assert_int_equal(asked_with(&all, HP_ENOMEM), 4);
    fixture_close(&f);
}

/* Fast devices have the first block alone, slow ones the second. */
static void two_stages_apply(struct fixture *f)
{
    static char arguments[12000];
    static const char some[] =
        "{\"share\": [1], \"batch\": [1, 2, 4], \"seconds\": [[0.004, 0.005, 0.006]]}",
                      none[] = "{\"share\": [1], \"batch\": [1, 2, 4], \"seconds\": [[null, null, "
                               "null]]}";
    char *all = strdup(document_of(0.4)), *class = strstr(all, "\"b1\", \"class\": \"b\""),
         *from = strstr(all, "\"latency\""), *to = strstr(all, "\"source_machine\"");
    class[strlen("\"b1\", \"class\": \"")] = 'c';
    snprintf(arguments, sizeof arguments,
             "{\"document\": %.*s\"latency\": {\"fast\": {\"b\": %s, \"c\": %s}, \"slow\": {\"b\": "
             "%s, \"c\": %s}}}}, %s}",
             (int)(from - all), all, some, none, none, some, to);
    free(all);
    fixture_ask(f, "apply", arguments, NULL);
}

/* An agent that was killed: the one before it hears so, long before it is declared lost. */
TEST(what_does_not_reach_the_next_agent_goes_to_another_that_has_the_same_blocks)
{
    static const char *const kinds[] = {"fast", "slow", "slow"};
    struct fixture f;
    struct infers_asked all = {.n = 0};
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, kinds[i], 1e9);
    size_t before = f.n_sent;
    two_stages_apply(&f);
    assert_state(&f, "preparing");
    shares_ready(&f, before);
    beats(&f, 3, 200);
    assert_state(&f, "serving");
    assert_int_equal(asked_add(&f, &all, 0), 0);
    for (size_t tries = 1; tries <= 2; tries++) { /* the other one is left then, and tried again */
        frames_await(&f, tries);
        assert_int_equal(f.frames[tries - 1]->header.n_runs, 2);
        share_fails(&f, f.frames[tries - 1], status_word(HP_ELINK));
    }
    frames_await(&f, 3);
    struct frame_leg legs[3][FRAME_MAX_LEGS];
    struct frame_tensor t;
    int n;
    for (int i = 0; i < 3; i++)
        assert_int_equal(frame_tensors_decode(&f.frames[i]->header, f.frames[i]->payload, legs[i],
                                              &t, 1, &n, NULL),
                         0);
    assert_int_not_equal(legs[0][1].share, legs[1][1].share);
    assert_int_equal(legs[1][1].share, legs[2][1].share);
    frame_answer(&f, f.frames[2]);
    assert_int_equal(all.answers[0].status, 0);
    fixture_close(&f);
}

TEST(a_result_of_another_type_than_the_models_is_refused)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.1);
    assert_int_equal(asked_add(&f, &all, 0), 0);
    frames_await(&f, 1);
    result_tell_of(&f, f.frames[0], (struct told_result){1, 1, 2, 1}, ND_I32);
    assert_int_equal(all.answers[0].status, HP_EPROTO);
    fixture_close(&f);
}

TEST(a_request_has_its_own_deadline_and_goes_before_those_that_have_longer)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 10);
    assert_int_equal(asked_add(&f, &all, 1000), 0); /* a microsecond */
    pools_go(&f);
    assert_int_equal(all.answers[0].status, HP_ETIMEOUT);
    assert_non_null(strstr(all.answers[0].why.text, "the deadline is 0.0 ms"));
    for (int i = 0; i < 5; i++)
        assert_int_equal(asked_add(&f, &all, 0), 0);
    assert_int_equal(asked_add(&f, &all, 50000000), 0);
    frames_await(&f, 1); /* of four, the urgent one among them */
    frame_answer(&f, f.frames[0]);
    assert_int_equal(all.answers[6].status, 0);
    assert_int_equal(all.answers[5].status, 1);
    fixture_close(&f);
}

TEST(a_deadline_counts_from_when_the_request_came)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    struct pool_requests r;
    struct err e;
    uint32_t unused;
    serve(&f, two_fast, 1, 0.1);
    all.inputs[0] = input_of(all.values, 1);
    coord_pool_requests(f.core, &r);
    for (int late = 0; late < 2; late++) {
        struct pool_call call = {.model = "m",
                                 .inputs = all.inputs,
                                 .waited_ns = late ? 99000000 : 20000000,
                                 .ctx = &all.answers[0],
                                 .answered = on_answered,
                                 .failed = on_failed};
        all.answers[0].status = 1;
        assert_int_equal(r.infer(r.ctx, &call, &all.ids[0], &unused, &e), 0);
        pools_go(&f);
        if (late)
            break;
        frames_await(&f, 1);
        f.clock.now_ns += 70000000;
        frame_answer(&f, f.frames[0]);
        assert_int_equal(all.answers[0].status, 0);
        assert_int_equal(counted(&f, "on_time"), 1);
        const struct infer_times *t = &all.answers[0].times;
        assert_true(t->deadline_ns - t->arrived_ns == 100000000 &&
                    t->answered_ns - t->arrived_ns >= 90000000);
    }
    assert_int_equal(all.answers[0].status, HP_ETIMEOUT);
    fixture_close(&f);
}

/* Agents that stood still for seconds answer: what they took is no measure of what messages take
 * from now on, or nothing would be admitted any more. */
TEST(agents_that_stood_still_for_a_while_are_used_again)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.012);
    for (int i = 0; i < 40; i++) {
        size_t had = f.n_frames;
        all.n = 0;
        assert_int_equal(asked_add(&f, &all, 0), 0);
        for (int k = 0; k < 10 && f.n_frames == had && all.answers[0].status == 1; k++) {
            pools_go(&f);
            f.clock.now_ns += 100000;
        }
        if (f.n_frames > had) {
            f.clock.now_ns += i < 20 ? 2000000000 : 8000000;
            frame_answer(&f, f.frames[had]);
        }
        beats(&f, 1, 500);
    }
    assert_int_equal(all.answers[0].status, 0);
    fixture_close(&f);
}

TEST(what_nobody_waits_for_takes_no_time_of_devices)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.05);
    for (int i = 0; i < 60; i++) /* more than there is time for */
        assert_int_equal(asked_add(&f, &all, 0), 0);
    for (int i = 0; i < 60; i++)
        asked_cancel(&f, &all, i);
    assert_int_equal(asked_add(&f, &all, 0), 0);
    frames_await(&f, 1);
    assert_int_equal(f.frames[0]->header.n_tokens, 1);
    frame_answer(&f, f.frames[0]);
    assert_int_equal(all.answers[60].status, 0);
    fixture_close(&f);
}

TEST(pools_that_are_removed_answer_all_that_they_had_admitted)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 1e6);
    for (int i = 0; i < ASKED_MOST; i++) /* half a minute's work */
        assert_int_equal(asked_add_of(&f, &all, POOL_MAX_SAMPLES, 0), 0);
    pools_go(&f);
    fixture_ask(&f, "pools.remove", "{}", NULL);
    for (int i = 0; i < 1400; i++) { /* its agent never answers */
        fixture_pass_ms(&f, 500);
        fixture_beat(&f, 10, fixture_key(0));
        pools_go(&f);
    }
    assert_int_equal(asked_with(&all, 1), 0);
    assert_state(&f, "none");
    fixture_close(&f);
}

TEST(a_workload_that_cannot_be_planned_leaves_the_one_that_serves)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.1);
    apply_too_fast(&f, 1);
    assert_state(&f, "serving");
    assert_int_equal(asked_add(&f, &all, 0), 0);
    beats(&f, 1, 5000);
    assert_state(&f, "serving");
    fixture_restart(&f);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("fast", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    size_t before = f.n_sent;
    beats(&f, 1, 1500);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_state(&f, "serving");
    fixture_close(&f);
}

TEST(a_profile_of_other_kinds_than_are_there_names_both)
{
    struct fixture f;
    static const char said[] =
        "m: its profile is of fast, slow, and the devices that are there are other";
    fixture_open(&f);
    fixture_agent(&f, 0, "other", 1e9);
    size_t before = f.n_sent;
    apply(&f, 0.1);
    beats(&f, 1, 100);
    bool told = false;
    for (size_t i = before; i < f.n_sent; i++)
        told = told ||
               (f.sent[i].peer == ADMIN && strcmp(f.sent[i].m.u.answer.code, "infeasible") == 0 &&
                strcmp(f.sent[i].m.u.answer.text, said) == 0);
    assert_true(told);
    fixture_close(&f);
}

TEST(counts_go_on_over_another_workload)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    serve(&f, two_fast, 1, 0.1);
    size_t before = f.n_sent;
    apply(&f, 0.2);
    assert_int_equal(asked_add(&f, &all, 0), 0); /* to the plan that still serves */
    frames_await(&f, 1);
    frame_answer(&f, f.frames[0]);
    assert_int_equal(asked_add(&f, &all, 0), 0); /* and is under way when it does not any more */
    frames_await(&f, 2);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_int_equal(counted(&f, "on_time"), 1);
    assert_int_equal(counted(&f, "arrived"), 2);
    beats(&f, 1, 20000); /* no result comes of it */
    assert_int_equal(counted(&f, "on_time") + counted(&f, "late") + counted(&f, "failed"), 2);
    assert_state(&f, "serving");
    fixture_close(&f);
}

TEST(where_no_agent_is_left_requests_are_refused_at_once)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    struct pool_requests r;
    struct err why = {0};
    const struct infer_model *models[POOL_MAX_MODELS];
    serve(&f, two_fast, 2, 0.1);
    coord_pool_requests(f.core, &r);
    assert_int_equal(r.models(r.ctx, NULL, models), 1);
    assert_int_equal(r.ready(r.ctx, models[0], &why), 0);
    peer_dies(&f, 0, -1);
    assert_state(&f, "waiting");
    assert_int_equal(r.models(r.ctx, NULL, models), 1);
    assert_int_equal(r.ready(r.ctx, models[0], &why), HP_EBUSY);
    assert_string_equal(why.text, "no plan serves \"m\" with the agents that there are");
    assert_int_equal(asked_add(&f, &all, 0), HP_EBUSY);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("fast", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    size_t before = f.n_sent;
    beats(&f, 1, 2000);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_state(&f, "serving");
    assert_int_equal(r.ready(r.ctx, models[0], &why), 0);
    fixture_close(&f);
}

/* The document with a piece of it written otherwise. */
static const struct message_answer *changed_apply(struct fixture *f, const char *from,
                                                  const char *to)
{
    static char arguments[12000];
    const char *all = document_of(0.1), *at = strstr(all, from);
    assert_non_null(at);
    snprintf(arguments, sizeof arguments, "{\"document\": %.*s%s%s}", (int)(at - all), all, to,
             at + strlen(from));
    return fixture_ask(f, "apply", arguments, NULL);
}

/* The document with another name for its model. */
static void renamed_apply(struct fixture *f, char name)
{
    static char arguments[12000];
    snprintf(arguments, sizeof arguments, "{\"document\": %s}", document_of(0.1));
    for (char *at; (at = strstr(arguments, "\"m\"")) != NULL;)
        at[1] = name;
    fixture_ask(f, "apply", arguments, NULL);
}

static int asked_by(struct fixture *f, struct infers_asked *all, const char *name,
                    const struct infer_model *facts)
{
    int i = all->n++;
    struct pool_requests r;
    struct err e = {0};
    uint32_t unused;
    all->inputs[i] = input_of(all->values, 1);
    all->answers[i].status = 1;
    coord_pool_requests(f->core, &r);
    struct pool_call call = {.model = name,
                             .facts = facts,
                             .inputs = &all->inputs[i],
                             .ctx = &all->answers[i],
                             .answered = on_answered,
                             .failed = on_failed};
    return r.infer(r.ctx, &call, &all->ids[i], &unused, &e);
}

/* Who reads requests by what was applied, and hands them to what serves, reads beyond them. */
TEST(requests_are_read_by_what_serves_and_not_by_what_was_applied_since)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    struct pool_requests r;
    const struct infer_model *models[POOL_MAX_MODELS];
    static const struct infer_tensor wide = {"x", ND_F32, 2, {-1, 3}};
    const struct infer_model old = {"m", &wide, &wide, 1, 1, 1000, true};
    serve(&f, two_fast, 1, 0.1);
    size_t before = f.n_sent;
    changed_apply(&f, "\"dims\": [-1, 2]", "\"dims\": [-1, 3]");
    assert_state(&f, "moving");
    coord_pool_requests(f.core, &r);
    assert_int_equal(r.models(r.ctx, NULL, models), 1);
    assert_int_equal(models[0]->inputs[0].dims[1], 2);
    assert_int_equal(asked_by(&f, &all, "m", models[0]), 0);
    assert_int_equal(asked_by(&f, &all, "m", &old), HP_EBUSY);
    frames_await(&f, 1);
    frame_answer(&f, f.frames[0]);
    assert_int_equal(all.answers[0].status, 0);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_int_equal(r.models(r.ctx, NULL, models), 1);
    assert_int_equal(models[0]->inputs[0].dims[1], 3);
    fixture_close(&f);
}

TEST(a_model_that_the_next_workload_leaves_out_serves_until_that_one_does)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    struct pool_requests r;
    struct err why = {0};
    const struct infer_model *models[POOL_MAX_MODELS];
    serve(&f, two_fast, 1, 0.1);
    size_t before = f.n_sent;
    renamed_apply(&f, 'n');
    assert_state(&f, "moving");
    coord_pool_requests(f.core, &r);
    assert_int_equal(r.models(r.ctx, NULL, models), 2);
    assert_string_equal(models[0]->name, "m");
    assert_int_equal(r.ready(r.ctx, models[0], &why), 0);
    assert_int_equal(r.ready(r.ctx, models[1], &why), HP_EBUSY);
    assert_string_equal(why.text, "\"n\" is being prepared");
    assert_int_equal(asked_by(&f, &all, "m", models[0]), 0);
    assert_int_equal(asked_by(&f, &all, "n", models[1]), HP_EBUSY);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_int_equal(r.models(r.ctx, NULL, models), 1);
    assert_string_equal(models[0]->name, "n");
    assert_int_equal(asked_by(&f, &all, "m", NULL), HP_ENOENT);
    assert_int_equal(asked_by(&f, &all, "n", models[0]), 0);
    fixture_close(&f);
}

/* The answer to `plan diff` of the document with a piece of it written otherwise; "": as it is. */
static json_t *changed_diff(struct fixture *f, const char *from, const char *to)
{
    static char arguments[12000];
    const char *all = document_of(0.1), *at = strstr(all, from);
    assert_non_null(at);
    snprintf(arguments, sizeof arguments, "{\"dry_run\": true, \"document\": %.*s%s%s}",
             (int)(at - all), all, to, at + strlen(from));
    const struct message_answer *answer = fixture_ask(f, "apply", arguments, NULL);
    if (!answer)
        answer = &fixture_last(f, ADMIN, MESSAGE_ANSWER)->u.answer;
    assert_string_equal(answer->code, "ok");
    json_t *diff = json_loads(answer->result, 0, NULL);
    assert_non_null(diff);
    return diff;
}

static void assert_reasons(json_t *diff, const char *const *wanted)
{
    const json_t *why = json_object_get(diff, "why");
    size_t n = 0;
    for (; wanted[n]; n++)
        assert_string_equal(json_string_value(json_array_get(why, n)), wanted[n]);
    assert_int_equal(json_array_size(why), n);
    json_decref(diff);
}

TEST(a_diff_of_plans_says_what_is_said_otherwise_and_which_agents_came_and_went)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    assert_reasons(changed_diff(&f, "", ""), (const char *[]){"nothing serves yet", NULL});
    fixture_close(&f);
    serve(&f, two_fast, 2, 0.1);
    assert_reasons(changed_diff(&f, "", ""), (const char *[]){NULL});
    assert_reasons(changed_diff(&f, "\"weight\": 1", "\"weight\": 2.5"),
                   (const char *[]){"m: weight is 2.5, and was 1", NULL});
    assert_reasons(changed_diff(&f, "\"slo_margin\": 0.2", "\"slo_margin\": 0.5"),
                   (const char *[]){"slo_margin is 0.5, and was 0.2", NULL});
    assert_reasons(changed_diff(&f, "\"max_stages\": 2", "\"max_stages\": 2, \"shares\": {}"),
                   (const char *[]){"shares is {}, and was not said", NULL});
    assert_reasons(changed_diff(&f, "0.006", "0.0059"),
                   (const char *[]){"m: its profile has other times or blocks", NULL});
    peer_dies(&f, 1, 0);
    fixture_agent(&f, 2, "fast", 1e9);
    assert_reasons(changed_diff(&f, "", ""),
                   (const char *[]){"1 shares of what serves were on agents that are lost",
                                    "agent a2 is used, which it was not", NULL});
    fixture_close(&f);
}

TEST(sizes_that_are_none_and_second_networks_are_refused_by_place)
{
    static const char *const sizes[] = {
        "1e300", "9223372036854775807", "0", "-1", "-2", "0.5", "null", "\"2\"", "[]"};
    struct fixture f;
    char dims[64];
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(dims, sizeof dims, "\"dims\": [-1, %s]", sizes[i]);
        const struct message_answer *a = changed_apply(&f, "\"dims\": [-1, 2]", dims);
        assert_string_equal(a->code, "malformed");
        assert_non_null(strstr(a->text, "networks[0].inputs[0].dims[1]"));
    }
    static char networks[6000];
    const char *first = strstr(document_of(0.1), "\"networks\": [") + strlen("\"networks\": [");
    snprintf(networks, sizeof networks, "\"networks\": [%.*s, ", (int)(strrchr(first, ']') - first),
             first);
    const struct message_answer *a = changed_apply(&f, "\"networks\": [", networks);
    assert_string_equal(a->code, "malformed");
    assert_non_null(strstr(a->text, "second network of model \"m\""));
    fixture_close(&f);
}

/* In the path of an address, a label of metrics and `hpctl load` such a model could not be named.
 */
TEST(names_that_no_client_could_ask_for_are_refused)
{
    char long_name[71];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const char *const names[] = {"", "a/b", "a b", "-a", "a\\u0001", "a%20", "\u00fc", long_name};
    struct fixture f;
    char name[120];
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "\"models\": [{\"name\": \"%s\"", names[i]);
        const struct message_answer *a = changed_apply(&f, "\"models\": [{\"name\": \"m\"", name);
        assert_string_equal(a->code, "malformed");
        assert_non_null(strstr(a->text, "models[0]"));
        assert_non_null(strstr(a->text, "cannot name a model"));
    }
    fixture_close(&f);
}

TEST(a_share_has_no_more_batches_at_once_than_it_takes)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    size_t answered = 0;
    serve(&f, two_fast, 1, 1e6);
    for (int i = 0; i < 4; i++) /* 256 batches of four */
        assert_int_equal(asked_add_of(&f, &all, POOL_MAX_SAMPLES, 0), 0);
    pools_go(&f);
    assert_int_equal(f.n_frames, POOL_MOST_FLYING);
    asked_cancel(&f, &all, 3);
    for (; answered < f.n_frames; answered++) {
        result_tell(&f, f.frames[answered],
                    (struct told_result){f.clock.now_ns, f.clock.now_ns, f.clock.now_ns, 1});
        assert_true(f.n_frames <= answered + 1 + POOL_MOST_FLYING);
        f.clock.now_ns += 6000000;
        pools_go(&f);
    }
    assert_int_equal(answered, 3 * POOL_MAX_SAMPLES / 4);
    assert_int_equal(asked_with(&all, 0), 3);
    fixture_close(&f);
}

/* A network that takes batches of two alone, whose profile knows others as well. */
TEST(requests_to_a_network_of_one_batch_share_none)
{
    struct fixture f;
    struct infers_asked all = {.n = 0};
    static char arguments[12000];
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    snprintf(arguments, sizeof arguments, "{\"document\": %s}", document_of(0.1));
    for (char *at; (at = strstr(arguments, "\"dims\": [-1, 2]")) != NULL;)
        memcpy(at, "\"dims\": [ 2, 2]", strlen("\"dims\": [ 2, 2]"));
    size_t before = f.n_sent;
    fixture_ask(&f, "apply", arguments, NULL);
    assert_state(&f, "preparing");
    const struct message *prepare = fixture_last(&f, 10, MESSAGE_STAGE_PREPARE);
    const struct message_share *share = prepare->u.stage_prepare.share.items;
    assert_int_equal(share->batch, 2);
    assert_true(share->seconds.count == 1);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++)
            all.values[4 * i + k] = (float)(10 * i + k);
        assert_int_equal(asked_add_of(&f, &all, 2, 0), 0);
        all.inputs[i].data = &all.values[4 * i];
    }
    frames_await(&f, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f.frames[i]->header.n_tokens, 2);
        frame_answer(&f, f.frames[i]);
        assert_int_equal(all.answers[i].status, 0);
        assert_int_equal(all.answers[i].samples, 2);
        for (int k = 0; k < 4; k++)
            assert_true(all.answers[i].values[k] == 2 * all.values[4 * i + k]);
    }
    fixture_close(&f);
}

/* Its input leaves the batch free, its output does not. */
TEST(a_network_that_takes_one_sample_at_once_says_so_of_its_inputs)
{
    struct fixture f;
    struct pool_requests r;
    const struct infer_model *models[POOL_MAX_MODELS];
    static char arguments[12000];
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    snprintf(arguments, sizeof arguments, "{\"document\": %s}", document_of(0.1));
    char *outputs = strstr(strstr(arguments, "\"outputs\""), "\"dims\": [-1, 2]");
    memcpy(outputs, "\"dims\": [ 7, 2]", strlen("\"dims\": [ 7, 2]"));
    fixture_ask(&f, "apply", arguments, NULL);
    assert_state(&f, "preparing");
    coord_pool_requests(f.core, &r);
    assert_int_equal(r.models(r.ctx, NULL, models), 1);
    assert_int_equal(models[0]->inputs[0].dims[0], 1);
    assert_int_equal(models[0]->outputs[0].dims[0], 7);
    fixture_close(&f);
}

TEST(a_batch_that_was_not_measured_is_refused_with_what_helps)
{
    struct fixture f;
    static char arguments[12000];
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    snprintf(arguments, sizeof arguments, "{\"document\": %s}", document_of(0.1));
    for (char *at; (at = strstr(arguments, "\"dims\": [-1, 2]")) != NULL;)
        memcpy(at, "\"dims\": [ 3, 2]", strlen("\"dims\": [ 3, 2]"));
    const struct message_answer *a = fixture_ask(&f, "apply", arguments, NULL);
    assert_string_equal(a->code, "malformed");
    assert_non_null(strstr(a->text, "takes batches of 3 alone"));
    assert_non_null(strstr(a->hint, "--batches 3"));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_that_cannot_be_are_not_believed),
        cmocka_unit_test(a_result_with_fewer_tensors_is_refused_though_its_first_client_is_gone),
        cmocka_unit_test(
            who_shares_a_batch_with_a_request_that_cannot_be_computed_does_not_hear_of_it),
        cmocka_unit_test(
            what_does_not_reach_the_next_agent_goes_to_another_that_has_the_same_blocks),
        cmocka_unit_test(a_result_of_another_type_than_the_models_is_refused),
        cmocka_unit_test(a_request_has_its_own_deadline_and_goes_before_those_that_have_longer),
        cmocka_unit_test(a_deadline_counts_from_when_the_request_came),
        cmocka_unit_test(agents_that_stood_still_for_a_while_are_used_again),
        cmocka_unit_test(what_nobody_waits_for_takes_no_time_of_devices),
        cmocka_unit_test(pools_that_are_removed_answer_all_that_they_had_admitted),
        cmocka_unit_test(a_workload_that_cannot_be_planned_leaves_the_one_that_serves),
        cmocka_unit_test(a_profile_of_other_kinds_than_are_there_names_both),
        cmocka_unit_test(counts_go_on_over_another_workload),
        cmocka_unit_test(where_no_agent_is_left_requests_are_refused_at_once),
        cmocka_unit_test(requests_are_read_by_what_serves_and_not_by_what_was_applied_since),
        cmocka_unit_test(a_model_that_the_next_workload_leaves_out_serves_until_that_one_does),
        cmocka_unit_test(
            a_diff_of_plans_says_what_is_said_otherwise_and_which_agents_came_and_went),
        cmocka_unit_test(sizes_that_are_none_and_second_networks_are_refused_by_place),
        cmocka_unit_test(names_that_no_client_could_ask_for_are_refused),
        cmocka_unit_test(a_share_has_no_more_batches_at_once_than_it_takes),
        cmocka_unit_test(requests_to_a_network_of_one_batch_share_none),
        cmocka_unit_test(a_network_that_takes_one_sample_at_once_says_so_of_its_inputs),
        cmocka_unit_test(a_batch_that_was_not_measured_is_refused_with_what_helps),
    };
    return cmocka_run_group_tests_name("pools_attack", tests, NULL, NULL);
}
