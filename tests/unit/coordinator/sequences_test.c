/* Sequences of a deployment, message by message. */
#include <math.h>

#include "coordinator/api_keys.h"
#include "coordinator/sequence.h"
#include "coordinator/shares.h"
#include "coordinator/targets.h"
#include "tests/unit/coordinator/stream_fixture.h"

TEST(every_stage_hears_what_it_needs_of_a_sequence)
{
    struct fixture f;
    struct request_stream s;
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

TEST(repeated_tokens_are_ignored_and_the_end_token_is_not_text)
{
    struct fixture f;
    struct request_stream s;
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
    assert_int_equal(coord_view(f.core).sequences_active, 0);
    fixture_close(&f);
}

/* Tokens that were held up on their way come in one piece: the times are those at which they were
 * made, by the agent's own clock, which is ahead. What an agent says of its clock moves no token
 * before its prompt or after now. */
TEST(tokens_that_come_together_have_the_times_at_which_they_were_made)
{
    static const uint64_t ms = 1000000, ahead = 5000 * 1000000ull;
    static const struct {
        uint64_t made_ms[3]; /* after the request was opened; 0: not told */
        double prefill_s, decode_s;
    } cases[] = {
        {{30, 50, 70}, 0.030, 0.040},      {{30, 30, 30}, 0.030, 0},
        {{50, 40, 30}, 0.050, 0},          {{0, 0, 0}, 0.100, 0},
        {{30, 9000000, 70}, 0.030, 0.070}, {{30, UINT64_MAX / 2000000, 70}, 0.030, 0.070},
    };
    static const uint32_t ids[] = {11, 12, 13};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct request_stream s;
        struct deployment *d = serving(&f);
        static const uint32_t first = 7;
        open_stream(&f, &s, 10, 1); /* by which its clock is known */
        tokens_made(&f, 0, 1, d->active->id, 0, &first, 1, "length", f.clock.now_ns + ahead);
        open_stream(&f, &s, 10, 3);
        uint64_t opened = f.clock.now_ns;
        fixture_pass_ms(&f, 100);
        for (uint64_t k = 0; k < 3; k++) {
            uint64_t made = cases[i].made_ms[k];
            tokens_made(&f, 0, 1, d->active->id, k, ids + k, 1, k == 2 ? "length" : "",
                        made ? opened + ahead + made * ms : 0);
        }
        assert_int_equal(s.finished, 1);
        if (fabs(s.usage.prefill_s - cases[i].prefill_s) > 1e-4 ||
            fabs(s.usage.decode_s - cases[i].decode_s) > 1e-4)
            fail_msg("case %zu: prefill %g s, decode %g s", i, s.usage.prefill_s, s.usage.decode_s);
        fixture_close(&f);
    }
}

/* The first that is heard of an agent's clock is what a busy box held up: tokens that were made
 * with 20 ms between them and come all at once took 40 ms. */
TEST(a_clock_that_is_known_better_with_each_token_gives_the_first_its_time)
{
    static const uint64_t ms = 1000000, ahead = 5000 * 1000000ull;
    static const uint32_t ids[] = {11, 12, 13};
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    open_stream(&f, &s, 10, 3);
    uint64_t opened = f.clock.now_ns;
    fixture_pass_ms(&f, 100);
    for (uint64_t k = 0; k < 3; k++)
        tokens_made(&f, 0, 1, d->active->id, k, ids + k, 1, k == 2 ? "length" : "",
                    opened + ahead + (30 + 20 * k) * ms);
    assert_int_equal(s.finished, 1);
    if (fabs(s.usage.prefill_s - 0.060) > 1e-4 || fabs(s.usage.decode_s - 0.040) > 1e-4)
        fail_msg("prefill %g s, decode %g s", s.usage.prefill_s, s.usage.decode_s);
    fixture_close(&f);
}

/* The number that the stages have for it now. */
static uint64_t number_of(const struct deployment *d, const struct request_stream *s)
{
    for (const struct sequence *q = d->active; q; q = q->next)
        if (q->request == s->id)
            return q->id;
    return 0;
}

TEST(after_a_gap_in_the_tokens_the_stages_read_what_was_told_anew)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    static const uint32_t ids[] = {11, 12};
    open_stream(&f, &s, 10, 20);
    uint64_t id = d->active->id;
    tokens(&f, 0, 1, id, 0, ids, 1, "");
    tokens(&f, 0, 1, id, 2, ids, 1, "");
    assert_int_equal(s.n, 1);
    assert_int_equal(s.failed, 0);
    assert_non_null(strstr(d->losses.why.text, "tokens 1 to 1 were lost"));
    assert_int_not_equal(number_of(d, &s), id);
    assert_int_equal(d->active->resumed, 1);
    const struct message_sequence_open *open =
        &fixture_last(&f, 10, MESSAGE_SEQUENCE_OPEN)->u.sequence_open; /* the last stage's */
    assert_int_equal(open->sampled, 1);
    assert_int_equal(open->prompt.count, 11);
    assert_int_equal(open->prompt.items[10], 11);
    tokens(&f, 0, 1, id, 1, ids + 1, 1, ""); /* of the one before */
    assert_int_equal(s.n, 1);
    fixture_jump_ms(&f, 300);
    tokens(&f, 0, 1, number_of(d, &s), 1, ids + 1, 1, "length");
    assert_int_equal(s.n, 2);
    assert_int_equal(s.finished, 1);
    assert_int_equal(d->losses.recovered, 1);
    assert_true(fabs(d->losses.last_pause_s - 0.3) < 1e-9);
    assert_int_equal(coord_view(f.core).sequences_opened, 1);
    fixture_close(&f);
}

TEST(what_a_lost_agent_had_open_waits_with_the_others_for_another_place)
{
    struct fixture f;
    struct request_stream s[12];
    struct deployment *d = serving(&f);
    for (int i = 0; i < 12; i++)
        open_stream(&f, &s[i], 60, 0); /* to the end of the context */
    static const uint32_t first[] = {11};
    uint32_t active = d->n_active;
    assert_true(active > 0 && active < 12);
    tokens(&f, 0, 1, number_of(d, &s[0]), 0, first, 1, "");
    coord_peer_gone(f.core, 10);
    fixture_jump_ms(&f, COORD_LOST_MS);
    fixture_beat(&f, 12, fixture_key(2));
    coord_tick(f.core);
    settle(&f);
    assert_int_equal(d->n_waiting, 12);
    assert_int_equal(d->losses.sequences, active);
    fixture_jump_ms(&f, 61000);
    coord_tick(f.core);
    settle(&f);
    assert_int_equal(d->n_waiting, 1);
    assert_non_null(strstr(s[11].why, "waited 60 s"));
    assert_int_equal(s[0].failed, 0); /* a part of its answer has been told */
    fixture_jump_ms(&f, 540000);
    coord_tick(f.core);
    settle(&f);
    assert_int_equal(d->n_waiting, 0);
    assert_non_null(strstr(s[0].why, "waited 600 s"));
    fixture_close(&f);
}

/* An agent says that a sequence has failed. */
static void stage_fails(struct fixture *f, int agent, uint64_t sequence, const char *code)
{
    struct message m = {.type = MESSAGE_SEQUENCE_FAILED};
    m.u.sequence_failed = (struct message_sequence_failed){1, 1, sequence, code, "it broke"};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
    settle(f);
}

/* A neighbour says that the link broke before anybody else notices that its agent is gone. */
TEST(who_waits_does_not_follow_those_whose_link_broke)
{
    struct fixture f;
    struct request_stream s[12];
    struct deployment *d = serving(&f);
    for (int i = 0; i < 12; i++)
        open_stream(&f, &s[i], 60, 0);
    uint32_t active = d->n_active;
    assert_true(active > 0 && active < 12);
    while (d->active)
        stage_fails(&f, 1, d->active->id, "link");
    assert_int_equal(d->n_waiting, 12);
    coord_tick(f.core);
    settle(&f);
    assert_int_equal(d->n_active, 0);
    /* Nobody is lost after all: it goes on. */
    for (int i = 0; i < 4; i++) {
        fixture_jump_ms(&f, 1000);
        beat_with(&f, 1, 1, 1, 0, "ready");
        beat_with(&f, 0, 1, 1, 1, "ready");
        coord_tick(f.core);
        settle(&f);
    }
    assert_true(d->n_active > 0);
    stage_fails(&f, 1, d->active->id, "no_memory"); /* another cause holds nobody up */
    assert_true(d->n_active > 0);
    fixture_close(&f);
}

/* A layout on fewer agents may have room for less: answers end sooner, and nobody stands in the
 * way of those behind it. */
TEST(who_waits_fits_a_context_that_has_become_shorter)
{
    struct fixture f;
    struct request_stream s[14];
    struct deployment *d = serving(&f);
    for (int i = 0; i < 12; i++)
        open_stream(&f, &s[i], i == 11 ? 100 : 60, 0);
    open_stream(&f, &s[12], 20, 10);
    assert_true(d->n_waiting >= 2);
    uint64_t before = d->next_sequence;
    d->context = 96;
    while (d->active) {
        static const uint32_t id[] = {2};
        tokens(&f, 0, 1, d->active->id, 0, id, 1, "stop");
        for (const struct sequence *a = d->active; a; a = a->next)
            assert_true(a->id < before || a->n_prompt + a->max_tokens <= 96);
    }
    assert_int_equal(d->n_waiting, 0);
    assert_int_equal(s[11].failed, 1);
    assert_non_null(strstr(s[11].why, "a context of 96 now"));
    assert_int_equal(s[12].finished, 1);
    for (int i = 0; i < 11; i++)
        assert_int_equal(s[i].finished, 1);
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

/* By what the plan says of the slowest stage: --tpot, or a default that somebody's slices go
 * before. */
TEST(slices_beside_answers_take_half_of_the_time_per_token)
{
    static const struct {
        double stage_s, tpot_s; /* of a prompt as long as the plan's */
        uint64_t slice, tokens; /* tokens: of 1024 in the plan */
    } cases[] = {
        {0.1, 0, 0, 512},    {0.1, 0, 128, 0},     {10, 0, 0, 64},  {10, 0.01, 0, 16},
        {0.1, 0.02, 0, 102}, {0.1, 0.02, 64, 102}, {1e-9, 1, 0, 0}, {0, 0.02, 0, 0},
    };
    struct fixture f;
    struct deployment *d = serving(&f);
    struct deployment_plan plan = {.tokens = 1024}, *own = d->plan;
    d->plan = &plan;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < d->n_stages; k++)
            d->stages[k].compute_s = cases[i].stage_s;
        d->spec.tpot_s = cases[i].tpot_s;
        d->spec.slice = cases[i].slice;
        if (targets_beside_tokens(d) != cases[i].tokens)
            fail_msg("case %zu: %llu tokens", i, (unsigned long long)targets_beside_tokens(d));
    }
    d->plan = own;
    fixture_close(&f);
}

static bool is_running(const struct deployment *d, const struct request_stream *s)
{
    for (const struct sequence *q = d->active; q; q = q->next)
        if (q->request == s->id)
            return true;
    return false;
}

TEST(a_client_of_many_requests_does_not_make_others_wait_for_all_of_them)
{
    struct fixture f;
    struct request_stream *many = calloc(200, sizeof *many), one, late;
    struct deployment *d = serving(&f);
    int taken = 0;
    for (int i = 0; i < 200; i++)
        taken += ask_stream(&f, &many[i], "key heavy", 60, 0) == 0;
    uint32_t active = d->n_active;
    assert_int_equal(taken, (int)active + COORD_MAX_WAITING_OF_CLIENT);
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
    coord_requests(f.core, &r);
    assert_int_equal(r.find(r.ctx, NULL, "d", &m, &e), 0);
    assert_in_range(m.retry_after_s, 1, SHARES_RETRY_MAX_S);
    fixture_close(&f);
    free(many);
}

static uint32_t running_of(const struct deployment *d, const char *client)
{
    uint32_t n = 0;
    for (const struct sequence *q = d->active; q; q = q->next)
        n += strcmp(q->client, client) == 0;
    return n;
}

TEST(clients_take_turns_by_the_weights_of_their_keys)
{
    struct fixture f;
    struct request_stream *s = calloc(200, sizeof *s);
    struct deployment *d = serving(&f);
    char key[API_KEY_TEXT];
    struct err e = {0};
    json_t *none = json_pack("{s:i}", "weight", 0), *three = json_pack("{s:i}", "weight", 3);
    assert_int_equal(api_keys_create(f.core, "heavy", none, key, &e), HP_EINVAL);
    assert_int_equal(api_keys_create(f.core, "heavy", three, key, &e), 0);
    assert_int_equal(api_keys_create(f.core, "light", NULL, key, &e), 0);
    json_decref(none);
    json_decref(three);
    size_t n = 0;
    while (!d->n_waiting)
        assert_int_equal(ask_stream(&f, &s[n++], "key first", 60, 0), 0);
    uint32_t active = d->n_active;
    for (uint32_t i = 0; i < 2 * active; i++)
        assert_int_equal(ask_stream(&f, &s[n++], i % 2 ? "key heavy" : "key light", 60, 0), 0);
    for (uint32_t i = 0; i < active; i++)
        finish_oldest(&f, d);
    uint32_t heavy = running_of(d, "key heavy"), light = running_of(d, "key light");
    assert_true(heavy + light + 1 >= active);
    assert_in_range(heavy, 3 * light - 2, 3 * light + 3);
    fixture_close(&f);
    free(s);
}

TEST(who_has_the_lower_priority_goes_first_however_long_others_have_waited)
{
    struct fixture f;
    struct request_stream *s = calloc(200, sizeof *s), urgent, usual, patient;
    struct deployment *d = serving(&f);
    for (size_t n = 0; !d->n_waiting; n++)
        assert_int_equal(ask_urgent(&f, &s[n], "address a", 60, 0, 1), 0);
    assert_int_equal(ask_urgent(&f, &patient, "address b", 60, 0, 100), 0);
    assert_int_equal(ask_urgent(&f, &usual, "address a", 60, 0, 0), 0);
    fixture_jump_ms(&f, SHARES_PATIENCE_MS + 1);
    assert_int_equal(ask_urgent(&f, &urgent, "address a", 60, 0, -1), 0);
    /* Nobody who has to wait for others is told that he waits for those whom he goes before. */
    assert_true(shares_wait_s(d, "address a", -2) == 0);
    finish_oldest(&f, d);
    assert_true(is_running(d, &urgent));
    assert_false(is_running(d, &usual));
    finish_oldest(&f, d);
    assert_true(is_running(d, &usual));
    assert_false(is_running(d, &patient));
    while (d->n_waiting > 1)
        finish_oldest(&f, d);
    assert_false(is_running(d, &patient));
    finish_oldest(&f, d);
    assert_true(is_running(d, &patient));
    fixture_close(&f);
    free(s);
}

TEST(a_key_gives_way_and_does_not_go_before_others)
{
    struct fixture f;
    struct request_stream s, t;
    serving(&f);
    assert_int_equal(ask_urgent(&f, &s, "key heavy", 60, 0, -1), HP_EINVAL);
    assert_int_equal(ask_urgent(&f, &t, "key heavy", 60, 0, 1), 0);
    fixture_close(&f);
}

static struct request_limits limits_now(struct fixture *f, const char *client)
{
    struct requests r;
    struct request_limits limits = {0};
    coord_requests(f->core, &r);
    assert_true(r.limits(r.ctx, client, &limits));
    return limits;
}

TEST(a_key_pays_for_its_prompt_at_once_and_for_its_answer_as_it_comes)
{
    struct fixture f;
    struct request_stream s, t;
    struct deployment *d = serving(&f);
    struct requests r;
    struct request_model m;
    struct err e = {0};
    static const uint32_t ids[] = {11, 12, 13};
    coord_requests(f.core, &r);
    fixture_ask(&f, "key.create", "{\"name\": \"k\", \"tokens_total\": 40, \"models\": [\"d\"]}",
                NULL);
    fixture_ask(&f, "key.create", "{\"name\": \"other\", \"models\": [\"e\"]}", NULL);
    assert_int_equal(ask_stream(&f, &s, "key other", 10, 5), HP_EDENIED);
    assert_int_equal(r.find(r.ctx, "key other", "d", &m, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "\"d\""));
    assert_int_equal(r.models(r.ctx, "key other", &m, 1), 0);
    assert_int_equal(r.models(r.ctx, "key k", &m, 1), 1);
    assert_int_equal(ask_stream(&f, &s, "key k", 40, 5), HP_EQUOTA); /* none for an answer */
    assert_int_equal(ask_stream(&f, &s, "key k", 10, 500), 0);
    assert_int_equal(d->active->max_tokens, 30); /* what the budget leaves */
    assert_int_equal(limits_now(&f, "key k").tokens.remaining, 30);
    tokens(&f, 0, 1, d->active->id, 0, ids, 3, "");
    assert_int_equal(limits_now(&f, "key k").tokens.remaining, 27);
    r.cancel(r.ctx, s.id, false, NULL);
    settle(&f);
    assert_int_equal(limits_now(&f, "key k").tokens.remaining, 27);
    assert_int_equal(ask_stream(&f, &t, "key k", 26, 5), 0);
    assert_int_equal(ask_stream(&f, &s, "key k", 1, 1), HP_EQUOTA);
    fixture_close(&f);
}

TEST(a_keys_priority_is_added_to_that_of_its_requests)
{
    struct fixture f;
    struct request_stream s, t;
    struct deployment *d = serving(&f);
    fixture_ask(&f, "key.create", "{\"name\": \"last\", \"priority\": 90}", NULL);
    fixture_ask(&f, "key.create", "{\"name\": \"first\", \"priority\": -5}", NULL);
    assert_int_equal(ask_urgent(&f, &s, "key last", 10, 5, 20), 0);
    assert_int_equal(d->active->priority, REQUEST_PRIORITY_MOST);
    assert_int_equal(ask_urgent(&f, &t, "key first", 10, 5, 0), 0);
    assert_int_equal(d->active->priority + d->active->next->priority, REQUEST_PRIORITY_MOST - 5);
    fixture_close(&f);
}

TEST(who_would_wait_too_long_is_refused_and_told_when_to_come_again)
{
    struct fixture f;
    struct request_stream *s = calloc(200, sizeof *s);
    struct deployment *d = serving(&f);
    struct requests r;
    struct request_model m;
    struct err e = {0};
    size_t n = 0;
    while (!d->n_waiting)
        assert_int_equal(ask_stream(&f, &s[n++], "key one", 60, 0), 0);
    d->ran_s = 10.0 * d->n_active; /* every 10 s one is let in */
    for (int i = 1; i < 7; i++)
        assert_int_equal(ask_stream(&f, &s[n++], "key one", 60, 0), 0);
    assert_int_equal(ask_stream(&f, &s[n++], "key one", 60, 0), HP_EBUSY);
    coord_requests(f.core, &r);
    assert_int_equal(r.find(r.ctx, NULL, "d", &m, &e), 0);
    assert_int_equal(m.retry_after_s, 10);
    assert_int_equal(ask_stream(&f, &s[n++], "key two", 60, 0), 0); /* is next */
    assert_int_equal(r.find(r.ctx, NULL, "d", &m, &e), 0);
    assert_int_equal(m.retry_after_s, 20); /* eight wait, and six may */
    fixture_close(&f);
    free(s);
}

/* Reading a prompt of ten tokens should take two seconds, so that a wait is 45 s and ten times
 * that. */
static struct deployment *serving_slowly(struct fixture *f)
{
    struct deployment *d = serving(f);
    d->plan->tokens = 10;
    d->stages[0].compute_s = 2;
    d->stages[1].compute_s = 0;
    return d;
}

TEST(a_request_without_a_sign_of_life_ends_by_the_plan)
{
    struct fixture f;
    struct request_stream s;
    static const uint32_t ids[] = {11};
    struct deployment *d = serving_slowly(&f);
    for (int scale = 1; scale <= 3; scale += 2) {
        f.core->config.time_scale = scale;
        open_stream(&f, &s, 10, 20);
        for (int again = 0; again < 2; again++) { /* it is tried twice */
            nothing_for_ms(&f, (uint64_t)scale * 64900);
            assert_int_equal(s.failed, 0);
            nothing_for_ms(&f, (uint64_t)scale * 200);
            assert_int_equal(s.failed, again);
        }
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
    assert_int_equal(s.failed, 0);
    nothing_for_ms(&f, 70000);
    assert_int_equal(s.failed, 1);
    assert_non_null(strstr(s.why, "stage 2 of 2"));
    assert_non_null(strstr(s.why, "on agent \"a0\") has been at one batch"));
    assert_int_equal(coord_view(f.core).sequences_active, 0);
    fixture_close(&f);
}

TEST(a_request_behind_others_waits_as_long_as_they_are_read)
{
    struct fixture f;
    struct request_stream first, second;
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
    assert_int_equal(d->losses.sequences, 1);
    nothing_for_ms(&f, 70000);
    assert_int_equal(second.failed, 1);
    fixture_close(&f);
}

TEST(a_request_that_others_pass_for_ever_ends_too)
{
    struct fixture f;
    struct request_stream lost, other;
    static const uint32_t ids[] = {11};
    struct deployment *d = serving_slowly(&f);
    open_stream(&f, &lost, 10, 20);
    int passed = 0;
    for (; passed < 100 && !lost.failed; passed++) {
        open_stream(&f, &other, 10, 20);
        nothing_for_ms(&f, 20000);
        if (!lost.failed)
            tokens(&f, 0, 1, number_of(d, &other), 0, ids, 1, "length");
    }
    assert_true(passed > 20 && passed < 100);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_hears_what_it_needs_of_a_sequence),
        cmocka_unit_test(slices_beside_answers_take_half_of_the_time_per_token),
        cmocka_unit_test(repeated_tokens_are_ignored_and_the_end_token_is_not_text),
        cmocka_unit_test(tokens_that_come_together_have_the_times_at_which_they_were_made),
        cmocka_unit_test(a_clock_that_is_known_better_with_each_token_gives_the_first_its_time),
        cmocka_unit_test(after_a_gap_in_the_tokens_the_stages_read_what_was_told_anew),
        cmocka_unit_test(what_a_lost_agent_had_open_waits_with_the_others_for_another_place),
        cmocka_unit_test(who_waits_does_not_follow_those_whose_link_broke),
        cmocka_unit_test(who_waits_fits_a_context_that_has_become_shorter),
        cmocka_unit_test(a_client_of_many_requests_does_not_make_others_wait_for_all_of_them),
        cmocka_unit_test(clients_take_turns_by_the_weights_of_their_keys),
        cmocka_unit_test(who_has_the_lower_priority_goes_first_however_long_others_have_waited),
        cmocka_unit_test(a_key_gives_way_and_does_not_go_before_others),
        cmocka_unit_test(a_key_pays_for_its_prompt_at_once_and_for_its_answer_as_it_comes),
        cmocka_unit_test(a_keys_priority_is_added_to_that_of_its_requests),
        cmocka_unit_test(who_would_wait_too_long_is_refused_and_told_when_to_come_again),
        cmocka_unit_test(a_request_without_a_sign_of_life_ends_by_the_plan),
        cmocka_unit_test(a_request_behind_others_waits_as_long_as_they_are_read),
        cmocka_unit_test(a_request_that_others_pass_for_ever_ends_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
