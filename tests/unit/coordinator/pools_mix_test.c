/* Pools that follow the load: what clients ask of each model becomes the weights of the next plan
 * where one of them is not on time and that plan serves enough more. */
#include <math.h>

#include "coordinator/pools/pool_load.h"
#include "coordinator/pools/pool_state.h"
#include "tests/unit/coordinator/pools_fixture.h"

enum { MIX_AGENTS = 4 };
static const char *const four_fast[] = {"fast", "fast", "fast", "fast"};
static char mix_arguments[16384];

/* Two models of one block: a device does one to four samples of either in 100 ms. */
static const char *mix_document(double margin, const char *more)
{
    json_t *manifest = manifest_json_of("m.onnx", 100);
    static const char tensor[] = "{\"name\": \"x\", \"type\": 1, \"dims\": [-1, 2]}";
    static const char model[] =
        "{\"name\": \"%c\", \"profile\": \"%c.json\", \"weight\": 1, \"slo_s\": 0.5}";
    static const char profile[] =
        "\"%c\": {\"format\": \"hp-profile/1\", \"model\": \"%c\", \"layers\": [{\"name\": \"b\", "
        "\"class\": \"b\", \"output_bytes\": 8}], \"latency\": {\"fast\": {\"b\": {\"share\": [1], "
        "\"batch\": [1, 4], \"seconds\": [[0.1, 0.1]]}}}}";
    static const char network[] =
        "{\"name\": \"%c\", \"manifest\": \"%s\", \"source_path\": \"/m.onnx\", \"limit_bytes\": "
        "1000, \"inputs\": [%s], \"outputs\": [%s]}";
    char part[3][2][3000];
    for (int i = 0; i < 2; i++) {
        int name = 'a' + i;
        snprintf(part[0][i], sizeof part[0][i], model, name, name);
        snprintf(part[1][i], sizeof part[1][i], profile, name, name);
        snprintf(part[2][i], sizeof part[2][i], network, name, json_string_value(manifest), tensor,
                 tensor);
    }
    json_decref(manifest);
    snprintf(mix_arguments, sizeof mix_arguments,
             "{\"document\": {\"workload\": {\"format\": \"hp-workload/1\", \"models\": [%s, %s], "
             "\"slo_margin\": 0.2, \"replan_margin\": %g, \"max_stages\": 1}, \"profiles\": {%s, "
             "%s}, \"source_machine\": \"a0\", \"networks\": [%s, %s]}%s}",
             part[0][0], part[0][1], margin, part[1][0], part[1][1], part[2][0], part[2][1], more);
    return mix_arguments;
}

static void mix_serve(struct fixture *f, double margin)
{
    fixture_open(f);
    for (int i = 0; i < MIX_AGENTS; i++)
        fixture_agent(f, i, four_fast[i], 1e9);
    size_t before = f->n_sent;
    fixture_ask(f, "apply", mix_document(margin, ""), NULL);
    shares_ready(f, before);
    beats(f, MIX_AGENTS, 200);
    assert_state(f, "serving");
}

static struct infer_answer answers[20000];
static int n_answers;

static void mix_ask(struct fixture *f, const char *model)
{
    static float values[2] = {1, 2};
    static struct ndarray input;
    struct pool_requests r;
    struct err e;
    uint64_t id;
    uint32_t unused;
    struct infer_answer *a = &answers[n_answers++ % 20000];
    input = input_of(values, 1);
    *a = (struct infer_answer){.status = 1};
    struct pool_call call = {
        .model = model, .inputs = &input, .ctx = a, .answered = on_answered, .failed = on_failed};
    coord_pool_requests(f->core, &r);
    assert_int_equal(r.infer(r.ctx, &call, &id, &unused, &e), 0);
}

/* A batch takes 100 ms from when it was sent. */
static void batches_answer(struct fixture *f, size_t *answered, uint64_t *due_ns, size_t *seen)
{
    while (*seen < f->n_frames)
        due_ns[(*seen)++] = f->clock.now_ns + pools_batch_takes_ns;
    for (; *answered < *seen && due_ns[*answered] <= f->clock.now_ns; ++*answered) {
        f->clock.now_ns -= 1 + pools_batch_takes_ns; /* when it began; the answer comes now */
        if (f->frames[*answered]->header.deployment == f->core->pools->current->id)
            frame_answer(f, f->frames[*answered]);
        else
            f->clock.now_ns += 1 + pools_batch_takes_ns;
    }
}

/* So many of each model in a second, for so long. */
static void mix_load(struct fixture *f, int a_per_s, int b_per_s, int seconds)
{
    enum { FRAMES = 10000 };
    static uint64_t due_ns[FRAMES];
    size_t answered = f->n_frames, seen = answered;
    for (int ms = 0; ms < seconds * 1000; ms += 10) {
        if (ms % 500 == 0)
            for (int i = 0; i < MIX_AGENTS; i++)
                fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
        for (int i = a_per_s * (ms / 10) / 100; i < a_per_s * (ms / 10 + 1) / 100; i++)
            mix_ask(f, "a");
        for (int i = b_per_s * (ms / 10) / 100; i < b_per_s * (ms / 10 + 1) / 100; i++)
            mix_ask(f, "b");
        fixture_pass_ms(f, 10);
        pools_go(f);
        assert_true(f->n_frames <= FRAMES);
        batches_answer(f, &answered, due_ns, &seen);
    }
}

static json_t *model_row(json_t *d, int i)
{
    return json_array_get(json_object_get(d, "models"), (size_t)i);
}

static double row_number(struct fixture *f, int i, const char *key)
{
    json_t *d = described(f);
    double n = json_number_value(json_object_get(model_row(d, i), key));
    json_decref(d);
    return n;
}

TEST(a_plan_follows_the_load_where_a_model_is_not_on_time_and_another_plan_serves_more)
{
    static const double margins[] = {0, 0.2, 0.9};
    pools_batch_takes_ns = 100000000;
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        mix_serve(&f, margins[i]);
        double planned = row_number(&f, 0, "planned_per_s");
        assert_true(planned > 60 && row_number(&f, 1, "planned_per_s") == planned);
        size_t before = f.n_sent;
        mix_load(&f, (int)(planned * 1.4), 4, 23);
        assert_true(fabs(row_number(&f, 0, "asked_per_s") / planned - 1.4) < 0.1);
        assert_true(row_number(&f, 0, "dropped") > 100);
        if (margins[i] != 0.2) { /* off; or it would have to gain more than it does */
            assert_state(&f, "serving");
            assert_int_equal(f.core->pools->plans, 1);
            fixture_close(&f);
            continue;
        }
        assert_state(&f, "moving");
        shares_ready(&f, before);
        beats(&f, MIX_AGENTS, 500);
        json_t *d = described(&f);
        const char *why = json_string_value(json_object_get(json_object_get(d, "current"), "why"));
        if (!why || !strstr(why, "\"a\" is asked for") || !strstr(why, "1.50 times as much"))
            fail_msg("%s", why);
        json_decref(d);
        assert_true(row_number(&f, 0, "planned_per_s") > 1.4 * planned);
        assert_true(row_number(&f, 1, "planned_per_s") > 10); /* it keeps a part */
        /* It serves the load now, and stays. */
        double dropped = row_number(&f, 0, "dropped");
        mix_load(&f, (int)(planned * 1.2), 4, 40);
        assert_true(row_number(&f, 0, "dropped") - dropped < 20);
        assert_int_equal(f.core->pools->plans, 2);
        fixture_close(&f);
    }
}

/* The load of what serves now says nothing of a plan for other models. */
TEST(a_plan_for_the_load_is_not_held_against_another_workload_that_took_over_meanwhile)
{
    struct fixture f;
    pools_batch_takes_ns = 100000000;
    serve(&f, four_fast, MIX_AGENTS, 0.1); /* one model */
    static float values[2] = {1, 2};
    struct ndarray input = input_of(values, 1);
    struct infer_answer a;
    struct err e;
    beats(&f, MIX_AGENTS, 1000);
    assert_int_equal(ask_infer(&f, &input, &a, &e), 0);
    pools_go(&f);
    beats(&f, MIX_AGENTS, 11000);
    f.holds_work = true;
    fixture_ask(&f, "apply", "{\"dry_run\": true, \"load\": true}", NULL);
    assert_int_equal(f.n_held_work, 1);
    struct coord_work *diff = f.held_work[0];
    f.n_held_work = 0;
    f.holds_work = false;
    size_t before = f.n_sent;
    fixture_ask(&f, "apply", mix_document(0, ""), NULL);
    shares_ready(&f, before);
    beats(&f, MIX_AGENTS, 500);
    assert_state(&f, "serving");
    mix_load(&f, 4, 4, 12);
    before = f.n_sent;
    diff->run(diff);
    coord_worked(f.core, diff);
    fixture_settle(&f);
    const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
    assert_true(f.n_sent > before);
    assert_string_equal(m->u.answer.code, "busy");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_plan_follows_the_load_where_a_model_is_not_on_time_and_another_plan_serves_more),
        cmocka_unit_test(
            a_plan_for_the_load_is_not_held_against_another_workload_that_took_over_meanwhile),
    };
    return cmocka_run_group_tests_name("pools_mix", tests, NULL, NULL);
}
