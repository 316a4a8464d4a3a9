/* Pools of devices: a workload is applied, planned, made ready, served, and moves when agents come
 * and go. The test plays the agents. */
#include "coordinator/api_keys.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_state.h"
#include "coordinator/requests.h"
#include "tests/unit/coordinator/pools_fixture.h"

TEST(a_workload_is_planned_prepared_and_served)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    float values[2] = {1.5f, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 2, 0.1);
    assert_non_null(fixture_last(&f, 10, MESSAGE_SHARE_CONNECT));
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
    assert_int_equal(f.n_frames, 0);
    frames_await(&f, 1); /* it may wait for others to share a batch */
    frame_answer(&f, f.frames[0]);
    assert_int_equal(a.status, 0);
    assert_true(a.values[0] == 3 && a.values[1] == 4);
    assert_int_equal(counted(&f, "on_time"), 1);
    /* What was planned and what came of it, by this clock. */
    const struct infer_stage_times *s = &a.times.stages[0];
    assert_true(a.times.n_stages >= 1 && a.times.samples == 1);
    assert_true(a.times.deadline_ns - a.times.arrived_ns == 100000000);
    assert_true(a.times.sent_ns > a.times.arrived_ns && a.times.answered_ns >= a.times.sent_ns);
    assert_true(s->planned_start_ns >= a.times.sent_ns && s->planned_end_ns > s->planned_start_ns);
    assert_int_equal(s->ended_ns - s->began_ns, 1);
    fixture_close(&f);
}

static void moment_is(int64_t got_ns, int64_t wanted_ns)
{
    int64_t off_ns = got_ns - wanted_ns;
    if (off_ns < -1 || off_ns > 1)
        fail_msg("off by %lld ns", (long long)off_ns);
}

TEST(moments_are_said_by_the_clock_of_the_agent_and_heard_by_ours)
{
    static const int64_t ahead_ns[] = {3000000000, -200000000};
    pools_batch_takes_ns = 4000000;
    for (size_t i = 0; i < sizeof ahead_ns / sizeof *ahead_ns; i++) {
        struct fixture f;
        struct infer_answer a;
        struct err e;
        struct frame_leg legs[FRAME_MAX_LEGS];
        struct frame_tensor t;
        float values[2] = {1.5f, 2};
        struct ndarray input = input_of(values, 1);
        int n;
        serve(&f, two_fast, 2, 0.1);
        for (int k = 0; k < 2; k++) {
            f.core->members[k]->clock_heard_ns = f.clock.now_ns;
            f.core->members[k]->clock_offset_ns = -ahead_ns[i];
        }
        pools_agents_ahead_ns = ahead_ns[i];
        assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
        frames_await(&f, 1);
        const struct dispatch_leg planned = f.core->pools->current->batches->path.legs[0];
        assert_int_equal(
            frame_tensors_decode(&f.frames[0]->header, f.frames[0]->payload, legs, &t, 1, &n, &e),
            0);
        moment_is((int64_t)legs[0].start_ns - ahead_ns[i], planned.start_ns);
        frame_answer(&f, f.frames[0]);
        assert_int_equal(a.status, 0);
        int64_t now_ns = (int64_t)f.clock.now_ns;
        moment_is(a.times.stages[0].began_ns, now_ns - (int64_t)pools_batch_takes_ns);
        moment_is(a.times.stages[0].ended_ns, now_ns);
        fixture_close(&f);
    }
    pools_agents_ahead_ns = 0;
    pools_batch_takes_ns = 1;
}

struct pool_figures {
    double serving, planned, on_time, samples, batches_of_shares;
    int rows;
};

static void figure_see(void *out, const char *name, const char *type, const char *help,
                       const char *labels, double value)
{
    struct pool_figures *s = out;
    if (strncmp(name, "hp_pool_", 8) != 0)
        return;
    assert_true(*help && (strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0));
    s->rows++;
    bool of_model = strcmp(labels, "model=\"m\"") == 0;
    s->serving += strcmp(name, "hp_pool_serving") == 0 && of_model ? value : 0;
    s->planned += strcmp(name, "hp_pool_planned_per_second") == 0 && of_model ? value : 0;
    s->on_time += strcmp(name, "hp_pool_on_time_total") == 0 && of_model ? value : 0;
    s->samples += strcmp(name, "hp_pool_samples_total") == 0 && of_model ? value : 0;
    if (strcmp(name, "hp_pool_share_batches_total") == 0) {
        assert_non_null(strstr(labels, "model=\"m\",share=\""));
        assert_non_null(strstr(labels, ",agent=\"a"));
        s->batches_of_shares += value;
    }
}

static struct pool_figures figures_of(struct fixture *f)
{
    struct requests r;
    struct pool_figures s = {0};
    coord_requests(f->core, &r);
    r.metrics(r.ctx, figure_see, &s);
    return s;
}

TEST(what_pools_count_is_told_as_metrics)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    float values[4] = {1, 2, 3, 4};
    struct ndarray input = input_of(values, 2);
    fixture_open(&f);
    assert_int_equal(figures_of(&f).rows, 0);
    fixture_close(&f);
    serve(&f, two_fast, 2, 0.1);
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
    frames_await(&f, 1);
    frame_answer(&f, f.frames[0]);
    assert_int_equal(a.status, 0);
    struct pool_figures s = figures_of(&f);
    assert_true(s.serving == 1 && s.planned > 0 && s.on_time == 1 && s.samples == 2);
    assert_true(s.batches_of_shares >= 1);
    fixture_ask(&f, "pools.remove", "{}", NULL);
    assert_int_equal(figures_of(&f).rows, 0);
    fixture_close(&f);
}

TEST(requests_share_batches_and_each_gets_its_own)
{
    struct fixture f;
    struct infer_answer a[4];
    struct err e;
    float values[4][4] = {{1, 2}, {3, 4}, {5, 6, 7, 8}, {9, 10}};
    int64_t samples[4] = {1, 1, 2, 1};
    struct ndarray inputs[4];
    serve(&f, two_fast, 1, 0.1);
    for (int i = 0; i < 4; i++) {
        inputs[i] = input_of(values[i], samples[i]);
        assert_int_equal(ask_infer(&f, &inputs[i], &a[i], &e), 0);
    }
    for (int i = 0; i < 300; i++) {
        f.clock.now_ns += 1000000;
        pools_go(&f);
    }
    assert_true(f.n_frames >= 1 && f.n_frames < 5);
    for (size_t i = 0; i < f.n_frames; i++)
        frame_answer(&f, f.frames[i]);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a[i].status, 0);
        assert_int_equal(a[i].samples, samples[i]);
        for (int64_t k = 0; k < 2 * samples[i]; k++)
            assert_true(a[i].values[k] == 2 * values[i][k]);
    }
    fixture_close(&f);
}

/* A request is answered by a batch of its own, so much later than planned. */
static void batch_answered(struct fixture *f, int64_t late_ns)
{
    struct infer_answer a;
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    size_t before = f->n_frames;
    for (int k = 0; k < 2; k++)
        fixture_beat(f, 10 + (uint64_t)k, fixture_key(k));
    assert_int_equal(ask_infer(f, &input, &a, &e), 0);
    frames_await(f, before + 1);
    f->clock.now_ns = (uint64_t)(f->core->pools->current->batches->path.finish_ns + late_ns);
    frame_answer(f, f->frames[before]);
    assert_int_equal(a.status, 0);
}

/* One in twenty is 3 ms later than planned: all that wait up to their deadline are let in for that.
 */
TEST(time_beside_computing_is_what_all_but_one_in_a_hundred_take)
{
    struct fixture f;
    serve(&f, two_fast, 2, 0.1);
    const struct pool_plan *p = f.core->pools->current;
    for (int i = 0; i < 600; i++)
        batch_answered(&f, i % 20 ? 200000 : 3000000);
    assert_in_range(p->overheads[0].ns, 2900000, 3200000);
    fixture_close(&f);
}

/* Hundreds of results come late behind a pause; after it each is 0.2 ms later than computing ends.
 */
TEST(what_a_pause_added_to_the_time_beside_computing_is_soon_gone)
{
    struct fixture f;
    serve(&f, two_fast, 2, 0.1);
    const struct pool_plan *p = f.core->pools->current;
    for (int i = 0; i < 300; i++)
        batch_answered(&f, 60000000);
    assert_in_range(p->overheads[0].ns, 25000000, 35000000);
    for (int i = 0; i < 450; i++)
        batch_answered(&f, 200000);
    assert_in_range(p->overheads[0].ns, 100000, 300000);
    fixture_close(&f);
}

TEST(what_cannot_be_on_time_is_dropped_with_what_would_be_possible)
{
    struct fixture f;
    struct infer_answer a[60];
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.02);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask_infer(&f, &input, &a[i], &e), 0);
    for (int i = 0; i < 100; i++) {
        pools_go(&f);
        f.clock.now_ns += 1000000;
    }
    int dropped = 0;
    for (int i = 0; i < 60; i++)
        if (a[i].status == HP_ETIMEOUT) {
            dropped++;
            assert_non_null(strstr(a[i].why.text, "the deadline is 20.0 ms"));
        }
    assert_true(dropped > 30 && dropped < 60);
    beats(&f, 1, 7000); /* no result of the others comes */
    assert_int_equal(counted(&f, "arrived"), 60);
    assert_int_equal(counted(&f, "dropped"), dropped);
    assert_int_equal(counted(&f, "failed"), 60 - dropped);
    fixture_close(&f);
}

TEST(what_was_on_a_lost_agent_is_sent_again_where_its_deadline_allows)
{
    struct fixture f;
    struct infer_answer a[4];
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 2, 20);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask_infer(&f, &input, &a[i], &e), 0);
    for (int i = 0; i < 20 && f.n_frames == 0; i++) {
        beats(&f, 2, 500);
        pools_go(&f);
    }
    assert_int_equal(f.n_frames, 1);
    int gone = f.frames[0]->address[1] - '0', stays = 1 - gone;
    for (int i = 0; i < 12; i++) {
        fixture_pass_ms(&f, 300);
        fixture_beat(&f, 10 + (uint64_t)stays, fixture_key(stays));
        pools_go(&f);
    }
    for (int i = 0; i < 40 && f.n_frames < 2; i++) {
        fixture_pass_ms(&f, 400);
        fixture_beat(&f, 10 + (uint64_t)stays, fixture_key(stays));
        shares_ready(&f, f.n_sent > 40 ? f.n_sent - 40 : 0);
        pools_go(&f);
    }
    assert_true(f.n_frames >= 2);
    assert_int_equal(f.frames[1]->address[1] - '0', stays);
    frame_answer(&f, f.frames[1]);
    assert_int_equal(a[0].status, 0);
    json_t *d = described(&f);
    assert_true(json_integer_value(json_object_get(d, "sent_again")) >= 4);
    assert_true(json_integer_value(json_object_get(d, "lost_shares")) >= 1);
    json_decref(d);
    fixture_close(&f);
}

/* An agent that was killed is known to be lost seconds later: its link has broken at once. */
TEST(what_left_over_a_link_that_broke_is_sent_again_while_it_has_time)
{
    struct fixture f;
    struct infer_answer a, late;
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 2, 0.1);
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
    frames_await(&f, 1);
    const struct coord_frame *sent = f.frames[0];
    coord_link_broken(f.core, (const uint8_t *)"nobody", 6);
    pools_go(&f);
    assert_int_equal(f.n_frames, 1);
    coord_link_broken(f.core, sent->address, sent->address_size);
    pools_go(&f);
    frames_await(&f, 2);
    frame_answer(&f, sent); /* it had come after all */
    assert_int_equal(a.status, 1);
    frame_answer(&f, f.frames[1]);
    assert_int_equal(a.status, 0);
    assert_int_equal(counted(&f, "on_time"), 1);
    /* What cannot be on time any more may still come. */
    assert_int_equal(ask_infer(&f, &input, &late, &e), 0);
    frames_await(&f, 3);
    f.clock.now_ns += 200000000;
    coord_link_broken(f.core, f.frames[2]->address, f.frames[2]->address_size);
    pools_go(&f);
    assert_int_equal(late.status, 1);
    frame_answer(&f, f.frames[2]);
    assert_int_equal(late.status, 0);
    fixture_close(&f);
}

TEST(another_agent_that_comes_is_used_by_the_next_plan_without_a_gap)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.1);
    fixture_agent(&f, 1, "fast", 1e9);
    size_t before = f.n_sent;
    beats(&f, 2, 2000);
    assert_state(&f, "moving");
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
    frames_await(&f, 1); /* the plan that serves takes it */
    frame_answer(&f, f.frames[0]);
    assert_int_equal(a.status, 0);
    shares_ready(&f, before);
    beats(&f, 2, 200);
    assert_state(&f, "serving");
    json_t *d = described(&f);
    assert_int_equal(json_integer_value(json_object_get(d, "moved")), 1);
    assert_int_equal(json_array_size(json_object_get(json_object_get(d, "current"), "shares")), 2);
    json_decref(d);
    fixture_close(&f);
}

/* ---- lengths ---- */

/* Of a profile, on each kind: times of these batches alone. */
static void batches_set(json_t *profile, const char *batches)
{
    json_t *tables;
    const char *kind;
    json_object_foreach(json_object_get(profile, "latency"), kind, tables)
    {
        json_t *table = json_object_get(tables, "b"), *row = json_array();
        json_object_set_new(table, "batch", json_loads(batches, 0, NULL));
        for (size_t i = 0; i < json_array_size(json_object_get(table, "batch")); i++)
            json_array_append_new(row, json_real(0.003 + 0.001 * (double)i));
        json_object_set_new(table, "seconds", json_pack("[o]", row));
    }
}

/* The model's second dimension is a length: 4 or 2 are planned, and `shorter` was measured, in
 * batches of 1, 2 and 4 or in these. */
static const struct message_answer *apply_lengths(struct fixture *f, const char *shorter,
                                                  const char *batches)
{
    json_t *d = json_loads(document_of(0.1), 0, NULL),
           *network = json_array_get(json_object_get(d, "networks"), 0),
           *profile = json_object_get(json_object_get(d, "profiles"), "m");
    static const char *const sides[] = {"inputs", "outputs"};
    for (int i = 0; i < 2; i++) {
        json_t *tensor = json_array_get(json_object_get(network, sides[i]), 0);
        json_object_set_new(tensor, "dims", json_pack("[i, i]", -1, -1));
        json_object_set_new(tensor, "length_axis", json_integer(1));
    }
    json_object_set_new(network, "lengths", json_loads("[4, 2]", 0, NULL));
    json_object_set_new(network, "length_symbols", json_loads("[\"s\"]", 0, NULL));
    json_t *half = json_deep_copy(profile);
    if (batches)
        batches_set(half, batches);
    json_object_set_new(profile, "lengths", json_pack("{s:o}", shorter, half));
    char *text = json_dumps(d, 0), *arguments = malloc(strlen(text) + 40);
    sprintf(arguments, "{\"document\": %s}", text);
    const struct message_answer *a = fixture_ask(f, "apply", arguments, NULL);
    free(arguments);
    free(text);
    json_decref(d);
    return a;
}

static void assert_padded(const struct coord_frame *frame, int64_t length, uint64_t size)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor t;
    struct err e;
    int n;
    assert_int_equal(frame->header.sequence, size);
    assert_int_equal(frame_tensors_decode(&frame->header, frame->payload, legs, &t, 1, &n, &e), 0);
    assert_int_equal(t.dims[1], length);
}

TEST(a_plan_has_batches_that_all_lengths_were_measured_in)
{
    static const struct {
        const char *shorter;
        uint64_t batch; /* of the plan; 0: there is none */
    } cases[] = {{"[1, 2, 4]", 4}, {"[1, 2]", 2}, {"[2, 8]", 2}, {"[4]", 4}, {"[3, 8]", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        fixture_open(&f);
        fixture_agent(&f, 0, "fast", 1e9);
        size_t before = f.n_sent;
        const struct message_answer *a = apply_lengths(&f, "2", cases[i].shorter);
        if (!cases[i].batch) {
            assert_string_equal(a->code, "malformed");
            assert_non_null(strstr(a->text, "profiles.m.lengths.2"));
            assert_non_null(strstr(a->text, "block 0"));
            assert_non_null(strstr(a->hint, "--lengths"));
        }
        uint64_t batch = 0;
        for (size_t k = before; k < f.n_sent; k++)
            if (f.sent[k].type == MESSAGE_STAGE_PREPARE)
                batch =
                    ((const struct message_share *)f.sent[k].m.u.stage_prepare.share.items)->batch;
        assert_int_equal(batch, cases[i].batch);
        fixture_close(&f);
    }
}

TEST(a_request_is_padded_to_the_next_length_and_its_answer_cut_back)
{
    static const struct {
        int64_t length, padded;
        uint64_t size;
    } cases[] = {{1, 2, 1}, {2, 2, 1}, {3, 4, 0}, {4, 4, 0}};
    struct fixture f;
    struct err e;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    size_t before = f.n_sent;
    assert_string_equal(apply_lengths(&f, "3", NULL)->code, "malformed");
    apply_lengths(&f, "2", NULL);
    const struct message_stage_prepare *p = NULL;
    for (size_t i = before; i < f.n_sent; i++)
        if (f.sent[i].type == MESSAGE_STAGE_PREPARE)
            p = &f.sent[i].m.u.stage_prepare;
    assert_non_null(p);
    const struct message_share *share = p->share.items;
    const struct message_dim *dims = share->dims.items;
    assert_int_equal(share->sizes, 2);
    assert_int_equal(share->dims.count, 2);
    assert_string_equal(dims[1].symbol, "s");
    assert_int_equal(dims[0].size, 4);
    assert_int_equal(dims[1].size, 2);
    assert_int_equal(share->seconds.count, 2 * share->batch);
    assert_int_equal(share->sample_bytes, 8); /* of its last block, as the profile has them */
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_state(&f, "serving");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_answer a;
        float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        struct ndarray input = {ND_F32, 2,    {2, cases[i].length}, 2 * cases[i].length,
                                values, false};
        size_t from = f.n_frames;
        assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
        for (int k = 0; k < 200 && f.n_frames == from; k++) {
            f.clock.now_ns += 1000000;
            pools_go(&f);
        }
        assert_padded(f.frames[from], cases[i].padded, cases[i].size);
        for (size_t k = from; k < f.n_frames; k++)
            frame_answer(&f, f.frames[k]);
        assert_int_equal(a.status, 0);
        for (int64_t k = 0; k < 2 * cases[i].length; k++)
            assert_true(a.values[k] == 2 * values[k]);
    }
    struct infer_answer unused;
    float values[5] = {0};
    struct ndarray input = {ND_F32, 2, {1, 5}, 5, values, false};
    assert_int_equal(ask_infer(&f, &input, &unused, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "up to 4"));
    fixture_close(&f);
}

/* ---- language models ---- */

/* Tokens of at most 4, a row of 8 numbers; `n_inputs` of its tensors. */
static const struct message_answer *apply_text(struct fixture *f, int n_inputs)
{
    static const char tensor[] = "{s:s, s:i, s:[i, i], s:i}";
    json_t *d = json_loads(document_of(0.1), 0, NULL),
           *network = json_array_get(json_object_get(d, "networks"), 0), *inputs = json_array(),
           *profile = json_object_get(json_object_get(d, "profiles"), "m");
    for (int i = 0; i < n_inputs; i++)
        json_array_append_new(inputs, json_pack(tensor, "name", i ? "attention_mask" : "input_ids",
                                                "type", ND_I64, "dims", -1, -1, "length_axis", 1));
    json_object_set_new(network, "inputs", inputs);
    json_object_set_new(
        network, "outputs",
        json_pack("[{s:s, s:i, s:[i, i]}]", "name", "embedding", "type", ND_F32, "dims", -1, 8));
    json_object_set_new(network, "lengths", json_pack("[i]", 4));
    json_object_set_new(network, "length_symbols", json_pack("[s]", "tokens"));
    json_object_set_new(network, "text", json_true());
    json_object_set_new(profile, "length", json_integer(4));
    char *text = json_dumps(d, 0), *arguments = malloc(strlen(text) + 40);
    sprintf(arguments, "{\"document\": %s}", text);
    const struct message_answer *a = fixture_ask(f, "apply", arguments, NULL);
    free(arguments);
    free(text);
    json_decref(d);
    return a;
}

TEST(a_language_model_is_found_by_its_name_while_it_is_applied)
{
    static const struct layer_facts layer = {.name = "embed", .class_name = "embed"};
    static char handle; /* what the shell opened, which nobody looks into here */
    const struct model_facts facts = {.architecture = "bert",
                                      .layers = &layer,
                                      .n_layers = 1,
                                      .handle = (struct model *)(void *)&handle};
    struct fixture f;
    struct pool_requests r;
    struct pool_text found = {0};
    struct err e;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    coord_pool_requests(f.core, &r);
    assert_int_equal(r.text(r.ctx, NULL, "m", &found, &e), HP_ENOENT);
    assert_string_equal(apply_text(&f, 1)->code, "malformed");
    size_t before = f.n_sent;
    apply_text(&f, 2);
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_state(&f, "serving");
    assert_int_equal(r.text(r.ctx, NULL, "m", &found, &e), HP_EBUSY); /* it is being opened */
    coord_model_opened(f.core, f.core->models[0]->id, &facts, NULL);
    assert_int_equal(r.text(r.ctx, NULL, "m", &found, &e), 0);
    assert_ptr_equal(found.model, facts.handle);
    assert_int_equal(found.longest, 4);
    assert_true(found.rows);
    assert_int_equal(r.text(r.ctx, NULL, "n", &found, &e), HP_ENOENT);
    fixture_ask(&f, "key.create", "{\"name\": \"other\", \"models\": [\"n\"]}", NULL);
    assert_int_equal(r.text(r.ctx, "key other", "m", &found, &e), HP_EDENIED);
    fixture_ask(&f, "pools.remove", "{}", NULL);
    beats(&f, 1, 60000);
    assert_int_equal(r.text(r.ctx, NULL, "m", &found, &e), HP_ENOENT);
    fixture_close(&f);
}

/* Who gives up the next request as soon as it hears of its own. */
struct sibling {
    struct fixture *f;
    uint64_t id, other;
    int failed;
};

static void on_sibling_failed(void *ctx, const struct err *why)
{
    struct sibling *s = ctx;
    struct pool_requests r;
    (void)why;
    s->failed++;
    coord_pool_requests(s->f->core, &r);
    if (s->other)
        r.cancel(r.ctx, s->other);
}

TEST(whoever_hears_that_a_request_failed_may_cancel_the_next)
{
    struct fixture f;
    struct sibling s[3] = {{.f = &f}, {.f = &f}, {.f = &f}};
    struct pool_requests r;
    struct err e;
    uint32_t again_s;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.1);
    coord_pool_requests(f.core, &r);
    for (int i = 0; i < 3; i++) {
        struct pool_call call = {
            .model = "m", .inputs = &input, .ctx = &s[i], .failed = on_sibling_failed};
        assert_int_equal(r.infer(r.ctx, &call, &s[i].id, &again_s, &e), 0);
    }
    s[0].other = s[1].id;
    fixture_ask(&f, "pools.remove", "{}", NULL);
    beats(&f, 1, 60000);
    assert_int_equal(s[0].failed, 1);
    assert_int_equal(s[1].failed, 0);
    assert_int_equal(s[2].failed, 1);
    fixture_close(&f);
}

/* ---- keys ---- */

static int models_of(struct fixture *f, const char *client)
{
    struct pool_requests r;
    const struct infer_model *models[POOL_MAX_MODELS];
    coord_pool_requests(f->core, &r);
    return r.models(r.ctx, client, models);
}

static uint64_t tokens_of(struct fixture *f, const char *key)
{
    return api_keys_named(f->core, key)->meter.prompt_tokens;
}

TEST(keys_hold_their_clients_to_models_and_to_samples)
{
    struct fixture f;
    struct infer_answer a;
    struct err e;
    uint32_t again_s = 0;
    float values[6] = {1, 2, 3, 4, 5, 6};
    struct ndarray one = input_of(values, 1), three = input_of(values, 3);
    serve(&f, two_fast, 1, 0.1);
    fixture_ask(&f, "key.create",
                "{\"name\": \"mine\", \"models\": [\"m\"], "
                "\"tokens_total\": 5}",
                NULL);
    fixture_ask(&f, "key.create", "{\"name\": \"other\", \"models\": [\"n\"]}", NULL);
    assert_int_equal(models_of(&f, "key mine"), 1);
    assert_int_equal(models_of(&f, "address 1"), 1);
    assert_int_equal(models_of(&f, NULL), 1);
    assert_int_equal(models_of(&f, "key other"), 0);
    assert_int_equal(models_of(&f, "key taken back"), 0);
    assert_int_equal(ask_as(&f, "key other", &one, &a, &again_s, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "\"other\""));
    assert_int_equal(ask_as(&f, "key mine", &three, &a, &again_s, &e), 0);
    assert_int_equal(tokens_of(&f, "mine"), 3);
    struct infer_answer refused;
    assert_int_equal(ask_as(&f, "key mine", &three, &refused, &again_s, &e), HP_EQUOTA);
    assert_int_equal(again_s, KEY_DAY_S);
    for (int i = 0; i < 200 && f.n_frames == 0; i++) {
        f.clock.now_ns += 1000000;
        pools_go(&f);
    }
    frame_answer(&f, f.frames[0]);
    assert_int_equal(a.status, 0);
    assert_int_equal(tokens_of(&f, "mine"), 3);
    fixture_close(&f);
}

TEST(what_was_dropped_before_it_was_computed_costs_its_key_nothing)
{
    struct fixture f;
    struct infer_answer a[60];
    struct err e;
    uint32_t again_s;
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    serve(&f, two_fast, 1, 0.02);
    fixture_ask(&f, "key.create", "{\"name\": \"mine\"}", NULL);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask_as(&f, "key mine", &input, &a[i], &again_s, &e), 0);
    assert_int_equal(tokens_of(&f, "mine"), 60);
    for (int i = 0; i < 100; i++) {
        pools_go(&f);
        f.clock.now_ns += 1000000;
    }
    uint64_t dropped = 0;
    for (int i = 0; i < 60; i++)
        dropped += a[i].status == HP_ETIMEOUT;
    assert_true(dropped > 30 && dropped < 60);
    assert_int_equal(tokens_of(&f, "mine"), 60 - dropped);
    fixture_close(&f);
}

TEST(what_was_applied_outlives_the_coordinator)
{
    struct fixture f;
    serve(&f, two_fast, 1, 0.1);
    fixture_restart(&f);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("fast", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    size_t before = f.n_sent;
    beats(&f, 1, 1500);
    assert_state(&f, "preparing");
    shares_ready(&f, before);
    beats(&f, 1, 200);
    assert_state(&f, "serving");
    fixture_ask(&f, "pools.remove", "{}", NULL);
    beats(&f, 1, 500);
    assert_state(&f, "none");
    assert_non_null(fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD));
    fixture_close(&f);
}

TEST(a_workload_that_is_wrong_is_refused_by_place)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1e9);
    const struct message_answer *a =
        fixture_ask(&f, "apply", "{\"document\": {\"workload\": {}}}", NULL);
    assert_string_equal(a->code, "malformed");
    a = fixture_ask(&f, "apply", "{\"document\": 3}", NULL);
    assert_string_equal(a->code, "malformed");
    apply_too_fast(&f, 1);
    a = fixture_ask(&f, "pools.remove", "{}", NULL);
    assert_string_equal(a->code, "ok");
    a = fixture_ask(&f, "pools.remove", "{}", NULL);
    assert_string_equal(a->code, "not_found");
    fixture_close(&f);
}

/* So many requests, one after the other, that take so long. */
static void requests_pass(struct fixture *f, int n, uint64_t takes_ns)
{
    float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    struct infer_answer a;
    struct err e;
    pools_batch_takes_ns = takes_ns;
    for (int i = 0; i < n; i++) {
        size_t before = f->n_frames;
        assert_int_equal(ask_infer(f, &input, &a, &e), 0);
        frames_await(f, before + 1);
        frame_answer(f, f->frames[before]);
        assert_int_equal(a.status, 0);
        fixture_beat(f, 10, fixture_key(0));
    }
    pools_batch_takes_ns = 1;
}

static json_int_t plans_of(struct fixture *f)
{
    json_t *d = described(f);
    json_int_t n = json_integer_value(json_object_get(d, "plans"));
    json_decref(d);
    return n;
}

TEST(batches_that_take_longer_than_planned_are_planned_anew_where_the_workload_wants_that)
{
    static const double margins[] = {0, 0.3};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        pools_replan_margin = margins[i];
        serve(&f, two_fast, 1, 2);
        size_t before = f.n_sent;
        requests_pass(&f, 40, 9000000); /* 8 ms are planned: within */
        beats(&f, 1, 500);
        assert_state(&f, "serving");
        requests_pass(&f, 200, 16000000);
        beats(&f, 1, 500);
        pools_replan_margin = 0;
        assert_state(&f, i ? "moving" : "serving");
        if (i) {
            shares_ready(&f, before);
            beats(&f, 1, 500);
            json_t *d = described(&f), *current = json_object_get(d, "current");
            const char *why = json_string_value(json_object_get(current, "why"));
            if (!strstr(why, "batches of \"m\" take 1.") || !strstr(why, "on fast as planned"))
                fail_msg("%s", why);
            json_decref(d);
            requests_pass(&f, 60, 15000000); /* as is planned now */
            beats(&f, 1, 60000);
            assert_int_equal(plans_of(&f), 2);
        }
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_workload_is_planned_prepared_and_served),
        cmocka_unit_test(moments_are_said_by_the_clock_of_the_agent_and_heard_by_ours),
        cmocka_unit_test(what_pools_count_is_told_as_metrics),
        cmocka_unit_test(requests_share_batches_and_each_gets_its_own),
        cmocka_unit_test(time_beside_computing_is_what_all_but_one_in_a_hundred_take),
        cmocka_unit_test(what_a_pause_added_to_the_time_beside_computing_is_soon_gone),
        cmocka_unit_test(what_cannot_be_on_time_is_dropped_with_what_would_be_possible),
        cmocka_unit_test(what_was_on_a_lost_agent_is_sent_again_where_its_deadline_allows),
        cmocka_unit_test(what_left_over_a_link_that_broke_is_sent_again_while_it_has_time),
        cmocka_unit_test(another_agent_that_comes_is_used_by_the_next_plan_without_a_gap),
        cmocka_unit_test(a_plan_has_batches_that_all_lengths_were_measured_in),
        cmocka_unit_test(a_request_is_padded_to_the_next_length_and_its_answer_cut_back),
        cmocka_unit_test(a_language_model_is_found_by_its_name_while_it_is_applied),
        cmocka_unit_test(whoever_hears_that_a_request_failed_may_cancel_the_next),
        cmocka_unit_test(keys_hold_their_clients_to_models_and_to_samples),
        cmocka_unit_test(what_was_dropped_before_it_was_computed_costs_its_key_nothing),
        cmocka_unit_test(what_was_applied_outlives_the_coordinator),
        cmocka_unit_test(a_workload_that_is_wrong_is_refused_by_place),
        cmocka_unit_test(
            batches_that_take_longer_than_planned_are_planned_anew_where_the_workload_wants_that),
    };
    return cmocka_run_group_tests_name("pools", tests, NULL, NULL);
}
