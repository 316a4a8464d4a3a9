/* Networks that no profile tells of: agents measure them, one of each kind, what they say is
 * checked and kept, and a workload is planned with it. The test plays the agents. */
#include <sodium.h>
#include <stdio.h>

#include "coordinator/pools/pools.h"
#include "tests/unit/coordinator/core_fixture.h"

enum { LAYERS = 14 };

static const char tensor[] = "{\"name\": \"x\", \"type\": 1, \"dims\": [-1, 2]}";

static const char *manifest_hex(void)
{
    static char hex[2048];
    static const uint8_t digest[32] = {7};
    struct manifest_file file = {"m.onnx", 100};
    struct manifest_chunk chunk = {0, 0, 100, {digest, sizeof digest}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .chunks = {&chunk, 1}};
    struct buffer bytes = {0};
    manifest_encode(&m, &bytes);
    sodium_bin2hex(hex, sizeof hex, bytes.data, bytes.size);
    buffer_free(&bytes);
    return hex;
}

/* A workload of one network without a profile, which the document has more to say of. */
static const char *apply_slo_s = "0.1"; /* of what is applied */

static const struct message_answer *network_apply(struct fixture *f, bool dry, const char *input,
                                                  const char *more)
{
    static char arguments[9000];
    snprintf(arguments, sizeof arguments,
             "{\"dry_run\": %s, \"document\": {\"workload\": {\"format\": \"hp-workload/1\", "
             "\"models\": [{\"name\": \"m\", \"weight\": 1, \"slo_s\": %s}], \"slo_margin\": 0.2, "
             "\"max_stages\": 2}, \"profiles\": {}, \"source_machine\": \"a0\", \"networks\": "
             "[{\"name\": \"m\", \"manifest\": \"%s\", \"source_path\": \"/m.onnx\", "
             "\"limit_bytes\": 1000, \"inputs\": [%s], \"outputs\": [%s], %s}]}}",
             dry ? "true" : "false", apply_slo_s, manifest_hex(), input, tensor, more);
    return fixture_ask(f, "apply", arguments, NULL);
}

static const struct message_answer *apply(struct fixture *f, bool dry)
{
    return network_apply(f, dry, tensor, "\"dims\": {\"s\": 8}");
}

/* `more` begins with a comma, or is "". */
static const struct message_answer *measure(struct fixture *f, const char *more)
{
    static char arguments[5000];
    snprintf(arguments, sizeof arguments,
             "{\"document\": {\"network\": {\"name\": \"m.onnx\", \"manifest\": \"%s\", "
             "\"source_path\": \"/m.onnx\", \"dims\": {\"s\": 8}}, \"source_machine\": \"a0\"%s}}",
             manifest_hex(), more);
    return fixture_ask(f, "profile.network", arguments, NULL);
}

/* ---- agents ---- */

/* The last order to measure that an agent got; fails where it got none. */
static const struct message_stage_prepare *ordered(const struct fixture *f, int agent)
{
    const struct message *m = fixture_last(f, 10 + (uint64_t)agent, MESSAGE_STAGE_PREPARE);
    assert_non_null(m);
    assert_int_equal(m->u.stage_prepare.share.count, 1);
    return &m->u.stage_prepare;
}

static const struct message_measure *ordered_measure(const struct fixture *f, int agent)
{
    const struct message_share *s = ordered(f, agent)->share.items;
    assert_int_equal(s->measure.count, 1);
    return s->measure.items;
}

static bool was_ordered(const struct fixture *f, int agent)
{
    const struct message *m = fixture_last(f, 10 + (uint64_t)agent, MESSAGE_STAGE_PREPARE);
    const struct message_share *s = m ? m->u.stage_prepare.share.items : NULL;
    return s && s->measure.count == 1;
}

/* Layers of `each_s` seconds a sample, of which the first shares' times are twice as long on half
 * the device. */
static char *profile_text(const char *kind, int layers, double each_s)
{
    struct buffer b = {0};
    buffer_printf(&b, "{\"format\": \"hp-profile/1\", \"model\": \"m\", \"layers\": [");
    for (int i = 0; i < layers; i++)
        buffer_printf(&b, "%s{\"name\": \"l%d\", \"class\": \"l%d\", \"output_bytes\": 8}",
                      i ? ", " : "", i, i);
    buffer_printf(&b, "], \"latency\": {\"%s\": {", kind);
    for (int i = 0; i < layers; i++)
        buffer_printf(&b,
                      "%s\"l%d\": {\"share\": [1, 2], \"batch\": [1, 2], \"seconds\": [[%g, %g], "
                      "[%g, %g]]}",
                      i ? ", " : "", i, each_s, 2 * each_s, 2 * each_s, 4 * each_s);
    buffer_printf(&b,
                  "}}, \"measured\": [{\"kind\": \"%s\", \"share\": 1, \"batch\": 1, "
                  "\"whole_s\": 1, \"sum_s\": 1, \"sum_error\": 0, \"spread\": 0.01, "
                  "\"runs\": 11}]}",
                  kind);
    char *text = strdup(buffer_cstr(&b));
    buffer_free(&b);
    return text;
}

static void result_say(struct fixture *f, int agent, const char *tables, const char *code,
                       const char *text)
{
    struct message m = {.type = MESSAGE_PROFILE_RESULT, .id = ordered_measure(f, agent)->id};
    m.u.profile_result = (struct message_profile_result){
        .model = {NULL, 0}, .kind = "", .tables = tables, .code = code, .text = text};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

static void profile_say(struct fixture *f, int agent, const char *kind, double each_s)
{
    char *text = profile_text(kind, LAYERS, each_s);
    result_say(f, agent, text, "", "");
    free(text);
}

static void state_say(struct fixture *f, int agent, const char *state, const char *code,
                      const char *text)
{
    const struct message_stage_prepare *p = ordered(f, agent);
    struct message m = {.type = MESSAGE_STAGE_STATE};
    m.u.stage_state = (struct message_stage_state){.deployment = p->deployment,
                                                   .generation = p->generation,
                                                   .stage = p->stage,
                                                   .state = state,
                                                   .code = code,
                                                   .text = text,
                                                   .hint = ""};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

static void agents_open(struct fixture *f, const char *const *kinds, int n)
{
    fixture_open(f);
    for (int i = 0; i < n; i++)
        fixture_agent(f, i, kinds[i], 1e9);
}

/* The last answer to hpctl, and what it says; the caller's to release. */
static json_t *answered(const struct fixture *f, const char *code)
{
    const struct message *m = fixture_last(f, ADMIN, MESSAGE_ANSWER);
    assert_non_null(m);
    assert_string_equal(m->u.answer.code, code);
    return json_loads(m->u.answer.result, 0, NULL);
}

static void assert_unloaded(const struct fixture *f, int agent)
{
    const struct message *m = fixture_last(f, 10 + (uint64_t)agent, MESSAGE_STAGE_UNLOAD);
    assert_non_null(m);
    assert_int_equal(m->u.stage_unload.deployment, ordered(f, agent)->deployment);
}

static const char *const fast_fast_slow[] = {"fast", "fast", "slow"};

/* Up to three agents, that are asked to measure. */
static void measuring_open(struct fixture *f, int n, const char *more)
{
    agents_open(f, fast_fast_slow, n);
    measure(f, more);
}

/* ---- what is asked for ---- */

TEST(one_device_of_each_kind_measures_and_the_answer_has_about_ten_blocks_of_all_kinds)
{
    struct fixture f;
    measuring_open(&f, 3, ", \"batches\": [1, 2], \"shares\": [1, 2], \"budget_s\": 3");
    assert_false(was_ordered(&f, 1));
    const struct message_measure *asked = ordered_measure(&f, 0);
    assert_int_equal(asked->batches.count, 2);
    assert_int_equal(asked->shares.items[1], 2);
    assert_int_equal(asked->budget_ms, 3000);
    const struct message_share *share = ordered(&f, 0)->share.items;
    assert_string_equal(((const struct message_dim *)share->dims.items)->symbol, "s");
    struct message going = {.type = MESSAGE_PROFILE_PROGRESS, .id = asked->id};
    going.u.profile_progress =
        (struct message_profile_progress){.what = "batches of 2", .points = 3};
    fixture_say(&f, 10, fixture_key(0), &going);
    json_t *told = answered(&f, "ok");
    assert_string_equal(json_string_value(json_object_get(told, "what")), "batches of 2");
    json_decref(told);
    profile_say(&f, 0, "fast", 0.001);
    profile_say(&f, 2, "slow", 0.003);
    json_t *made = answered(&f, "ok"), *latency = json_object_get(made, "latency");
    assert_int_equal(json_array_size(json_object_get(made, "layers")), 10);
    assert_int_equal(json_array_size(json_object_get(made, "bounds")), 11);
    assert_int_equal(json_object_size(latency), 2);
    assert_int_equal(json_array_size(json_object_get(made, "measured")), 2);
    assert_int_equal(json_array_size(json_object_get(made, "failed")), 0);
    double sum = 0;
    const char *name;
    json_t *table;
    json_object_foreach(json_object_get(latency, "slow"), name, table) sum +=
        json_number_value(json_array_get(json_array_get(json_object_get(table, "seconds"), 1), 1));
    assert_true(sum > LAYERS * 0.012 - 1e-9 && sum < LAYERS * 0.012 + 1e-9);
    json_decref(made);
    assert_unloaded(&f, 0);
    assert_unloaded(&f, 2);
    fixture_close(&f);
}

TEST(of_several_agents_of_a_kind_the_slowest_counts)
{
    struct fixture f;
    measuring_open(&f, 2, ", \"every\": true, \"blocks\": 1");
    profile_say(&f, 0, "fast", 0.001);
    profile_say(&f, 1, "fast", 0.002);
    json_t *made = answered(&f, "ok");
    json_t *table =
        json_object_get(json_object_get(json_object_get(made, "latency"), "fast"), "block0");
    double s =
        json_number_value(json_array_get(json_array_get(json_object_get(table, "seconds"), 0), 0));
    assert_true(s > LAYERS * 0.002 - 1e-9 && s < LAYERS * 0.002 + 1e-9);
    assert_int_equal(json_array_size(json_object_get(made, "measured")), 2);
    json_decref(made);
    fixture_close(&f);
}

TEST(a_kind_that_cannot_is_named_and_the_others_count)
{
    static const char *const kinds[] = {"fast", "gpu", "slow", "old"};
    struct fixture f;
    agents_open(&f, kinds, 4);
    measure(&f, "");
    state_say(&f, 1, "failed", "unsupported", "the backend runs no networks");
    result_say(&f, 2, "", "no_memory", "no memory for a profile");
    profile_say(&f, 0, "fast", 0.001);
    char *other = profile_text("old", LAYERS - 2, 0.001); /* it cuts the network otherwise */
    result_say(&f, 3, other, "", "");
    free(other);
    json_t *made = answered(&f, "ok"), *failed = json_object_get(made, "failed");
    assert_int_equal(json_object_size(json_object_get(made, "latency")), 1);
    assert_int_equal(json_array_size(failed), 3);
    json_decref(made);
    fixture_close(&f);
}

TEST(where_no_kind_can_the_first_reason_is_the_answer)
{
    struct fixture f;
    measuring_open(&f, 1, "");
    state_say(&f, 0, "failed", "unsupported", "no operator of the name Foo");
    json_t *none = answered(&f, "unsupported");
    json_decref(none);
    const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
    assert_non_null(strstr(m->u.answer.text, "Foo"));
    assert_unloaded(&f, 0);
    fixture_close(&f);
}

TEST(what_cannot_be_believed_is_refused)
{
    static const struct {
        const char *tables, *says;
    } cases[] = {
        {"", ""},
        {"[1]", ""},
        {"{\"format\": \"hp-profile/1\", \"layers\": [{\"class\": \"a\", \"output_bytes\": 1}], "
         "\"latency\": {\"slow\": {\"a\": {\"share\": [1], \"batch\": [1], \"seconds\": [[1]]}}}}",
         "it is none of a network on a fast alone"},
        {"{\"format\": \"hp-profile/1\", \"layers\": [{\"class\": \"a\", \"output_bytes\": 1}], "
         "\"latency\": {\"fast\": {\"a\": {\"share\": [1], \"batch\": [1], \"seconds\": "
         "[[9999]]}}}}",
         "more than an hour"},
        {"{\"format\": \"hp-profile/1\", \"layers\": [{\"class\": \"a\", "
         "\"output_bytes_per_token\": 1}], \"latency\": {\"fast\": {\"a\": {\"slice\": [1], "
         "\"prefix\": [0], \"seconds\": [[1]]}}}}",
         "it is none of a network"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        measuring_open(&f, 1, "");
        result_say(&f, 0, cases[i].tables, "", "");
        const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
        assert_string_not_equal(m->u.answer.code, "ok");
        assert_non_null(strstr(m->u.answer.text, cases[i].says));
        fixture_close(&f);
    }
}

TEST(questions_that_are_wrong_are_refused_by_place)
{
    static const struct {
        const char *more, *code;
    } cases[] = {
        {", \"batches\": [0]", "malformed"},      {", \"budget_s\": 0", "malformed"},
        {", \"blocks\": 65", "malformed"},        {", \"shares\": {}", "malformed"},
        {", \"agents\": [\"a9\"]", "not_found"},  {", \"agents\": 3", "malformed"},
        {", \"bounds\": [0]", "malformed"},       {", \"bounds\": [1, 2]", "malformed"},
        {", \"bounds\": [0, 3, 3]", "malformed"},
    };
    struct fixture f;
    agents_open(&f, fast_fast_slow, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(measure(&f, cases[i].more)->code, cases[i].code);
    assert_string_equal(fixture_ask(&f, "profile.network", "{}", NULL)->code, "malformed");
    assert_string_equal(fixture_ask(&f, "profile.network", "{\"document\": {}}", NULL)->code,
                        "malformed");
    assert_false(was_ordered(&f, 0));
    fixture_close(&f);
}

/* ---- what happens meanwhile ---- */

static void beats(struct fixture *f, int first, int end, uint64_t ms)
{
    for (; ms >= 300; ms -= 300) {
        fixture_pass_ms(f, 300);
        for (int i = first; i < end; i++)
            fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
    }
}

TEST(an_agent_that_is_lost_is_replaced_by_another_of_its_kind)
{
    struct fixture f;
    measuring_open(&f, 2, "");
    assert_true(was_ordered(&f, 0) && !was_ordered(&f, 1));
    uint64_t first = ordered_measure(&f, 0)->id;
    beats(&f, 1, 2, 3600);
    assert_true(was_ordered(&f, 1));
    assert_true(ordered_measure(&f, 1)->id != first);
    profile_say(&f, 1, "fast", 0.001);
    json_decref(answered(&f, "ok"));
    fixture_close(&f);
}

TEST(where_the_lost_agent_was_the_last_of_its_kind_that_is_the_answer)
{
    struct fixture f;
    measuring_open(&f, 1, "");
    fixture_pass_ms(&f, 4000);
    const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
    assert_string_equal(m->u.answer.code, "link");
    assert_non_null(strstr(m->u.answer.text, "\"a0\" was lost while it measured"));
    fixture_close(&f);
}

TEST(who_leaves_frees_the_agents)
{
    struct fixture f;
    measuring_open(&f, 3, "");
    assert_string_equal(measure(&f, ", \"agents\": [\"a0\"]")->code, "busy");
    coord_peer_gone(f.core, ADMIN);
    fixture_settle(&f);
    assert_unloaded(&f, 0);
    assert_unloaded(&f, 2);
    size_t before = f.n_sent;
    profile_say(&f, 0, "fast", 0.001); /* too late */
    for (size_t i = before; i < f.n_sent; i++)
        assert_int_not_equal(f.sent[i].peer, ADMIN);
    measure(&f, "");
    profile_say(&f, 0, "fast", 0.001);
    profile_say(&f, 2, "slow", 0.001);
    json_decref(answered(&f, "ok"));
    fixture_close(&f);
}

/* ---- a workload ---- */

/* Every share that is to serve says that it is ready. */
static int shares_ready(struct fixture *f, size_t from)
{
    int n = 0;
    for (size_t i = from; i < f->n_sent; i++) {
        const struct message_stage_prepare *p = &f->sent[i].m.u.stage_prepare;
        const struct message_share *s = p->share.items;
        if (f->sent[i].type != MESSAGE_STAGE_PREPARE || s->measure.count)
            continue;
        assert_int_equal(s->n_blocks, 10);
        assert_int_equal(s->bounds.count, 11);
        assert_int_equal(s->bounds.items[10], LAYERS);
        state_say(f, (int)f->sent[i].peer - 10, "ready", "", "");
        n++;
    }
    return n;
}

static void assert_state(struct fixture *f, const char *state)
{
    json_t *d = pools_describe(f->core);
    assert_string_equal(json_string_value(json_object_get(d, "state")), state);
    json_decref(d);
}

/* And nobody measures anything. */
static void assert_planned_with_what_is_kept(struct fixture *f)
{
    size_t before = f->n_sent;
    apply(f, true);
    json_t *diff = answered(f, "ok");
    assert_non_null(json_object_get(diff, "next"));
    json_decref(diff);
    for (size_t i = before; i < f->n_sent; i++)
        assert_int_not_equal(f->sent[i].type, MESSAGE_STAGE_PREPARE);
}

TEST(a_workload_without_a_profile_is_measured_planned_and_served_and_measured_once)
{
    struct fixture f;
    agents_open(&f, fast_fast_slow, 3);
    apply(&f, false);
    assert_state(&f, "none");
    profile_say(&f, 0, "fast", 0.0001);
    size_t before = f.n_sent;
    profile_say(&f, 2, "slow", 0.0002);
    assert_state(&f, "preparing");
    assert_int_equal(shares_ready(&f, before), 3);
    beats(&f, 0, 3, 600);
    assert_state(&f, "serving");
    assert_planned_with_what_is_kept(&f);
    fixture_close(&f);
}

TEST(a_workload_that_is_wrong_is_refused_before_anything_is_measured_for_it)
{
    struct fixture f;
    agents_open(&f, fast_fast_slow, 3);
    apply_slo_s = "0";
    const struct message_answer *a = apply(&f, false);
    apply_slo_s = "0.1";
    assert_string_equal(a->code, "malformed");
    assert_non_null(strstr(a->text, "models[0].slo_s"));
    for (int i = 0; i < 3; i++)
        assert_null(fixture_last(&f, 10 + (uint64_t)i, MESSAGE_STAGE_PREPARE));
    fixture_close(&f);
}

/* Whether hpctl was answered so, whatever came behind it. */
static bool was_told(const struct fixture *f, size_t from, const char *code, const char *text)
{
    for (size_t i = from; i < f->n_sent; i++)
        if (f->sent[i].peer == ADMIN && f->sent[i].type == MESSAGE_ANSWER &&
            strcmp(f->sent[i].m.u.answer.code, code) == 0 &&
            strstr(f->sent[i].m.u.answer.text, text))
            return true;
    return false;
}

TEST(agents_that_are_given_shares_while_they_measure_measure_nothing_that_is_kept)
{
    struct fixture f;
    measuring_open(&f, 3, "");
    profile_say(&f, 0, "fast", 0.0001);
    profile_say(&f, 2, "slow", 0.0002);
    json_decref(answered(&f, "ok"));
    measure(&f, "");
    assert_true(was_ordered(&f, 0) && was_ordered(&f, 2));
    uint64_t id = ordered_measure(&f, 0)->id, plan = ordered(&f, 0)->deployment;
    size_t before = f.n_sent;
    apply(&f, false);
    assert_state(&f, "preparing");
    beats(&f, 0, 3, 900);
    assert_true(was_told(&f, before, "busy", "\"a0\" serves pools"));
    const struct message *gone = fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD);
    assert_non_null(gone);
    assert_true(gone->u.stage_unload.deployment == plan && !pools_has(f.core, plan));
    char *late = profile_text("fast", LAYERS, 1);
    struct message m = {.type = MESSAGE_PROFILE_RESULT, .id = id};
    m.u.profile_result = (struct message_profile_result){
        .model = {NULL, 0}, .kind = "", .tables = late, .code = "", .text = ""};
    fixture_say(&f, 10, fixture_key(0), &m);
    free(late);
    assert_planned_with_what_is_kept(&f); /* with a second a layer there were no plan */
    fixture_close(&f);
}

TEST(what_was_measured_outlives_the_coordinator_and_can_be_dropped)
{
    struct fixture f;
    measuring_open(&f, 1, "");
    profile_say(&f, 0, "fast", 0.0001);
    fixture_restart(&f);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("fast", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    const struct message_answer *ls = fixture_ask(&f, "profile.ls", "{}", NULL);
    assert_non_null(strstr(ls->result, "m.onnx"));
    size_t before = f.n_sent;
    apply(&f, false);
    assert_int_equal(shares_ready(&f, before), 1);
    assert_string_equal(fixture_ask(&f, "profile.rm", "{\"model\": \"m.onnx\"}", NULL)->code, "ok");
    assert_string_equal(fixture_ask(&f, "profile.rm", "{\"model\": \"m.onnx\"}", NULL)->code,
                        "not_found");
    fixture_restart(&f);
    ls = fixture_ask(&f, "profile.ls", "{}", NULL);
    assert_null(strstr(ls->result, "m.onnx"));
    fixture_close(&f);
}

enum { AGED = 8 };
struct aged {
    char *keys[AGED], *texts[AGED];
    int n;
};

/* A record as it was before shares computed with all cores. */
static int record_age(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    struct aged *all = ctx;
    (void)e;
    assert_true(all->n < AGED);
    char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    char *at = strstr(copy, "\"all_cores\":");
    assert_non_null(at);
    at[1] = 'o'; /* "oll_cores" says nothing */
    all->keys[all->n] = strdup(key);
    all->texts[all->n++] = copy;
    return 0;
}

static void records_age(struct fixture *f)
{
    struct aged all = {0};
    struct err e;
    assert_int_equal(store_each(f->store, "network_profile", record_age, &all, &e), 0);
    for (int i = 0; i < all.n; i++) {
        const struct store_change c = {"network_profile", all.keys[i], all.texts[i],
                                       strlen(all.texts[i])};
        assert_int_equal(store_apply(f->store, &c, 1, &e), 0);
        free(all.keys[i]);
        free(all.texts[i]);
    }
}

TEST(what_was_measured_on_one_core_of_a_device_is_forgotten)
{
    struct fixture f;
    measuring_open(&f, 1, "");
    profile_say(&f, 0, "fast", 0.0001);
    records_age(&f);
    fixture_restart(&f);
    assert_null(strstr(fixture_ask(&f, "profile.ls", "{}", NULL)->result, "m.onnx"));
    fixture_close(&f);
}

TEST(a_kind_that_cannot_run_a_network_is_not_asked_again_for_a_plan)
{
    static const char *const kinds[] = {"fast", "gpu"};
    struct fixture f;
    agents_open(&f, kinds, 2);
    apply(&f, false);
    state_say(&f, 1, "failed", "unsupported", "the backend runs no networks");
    size_t before = f.n_sent;
    profile_say(&f, 0, "fast", 0.0001);
    assert_int_equal(shares_ready(&f, before), 1);
    beats(&f, 0, 2, 600);
    assert_state(&f, "serving");
    assert_planned_with_what_is_kept(&f);
    fixture_close(&f);
}

/* ---- lengths ---- */

static const struct message_answer *apply_lengths(struct fixture *f, const char *lengths)
{
    char more[200];
    snprintf(more, sizeof more, "\"lengths\": %s, \"length_symbols\": [\"s\"], \"mask\": \"x\"",
             lengths);
    return network_apply(
        f, false, "{\"name\": \"x\", \"type\": 1, \"dims\": [-1, -1], \"length_axis\": 1}", more);
}

static uint64_t ordered_length(const struct fixture *f, int agent)
{
    const struct message_share *s = ordered(f, agent)->share.items;
    assert_int_equal(s->dims.count, 1);
    const struct message_dim *dim = s->dims.items;
    assert_string_equal(dim->symbol, "s");
    return dim->size;
}

TEST(each_length_is_measured_by_itself_and_once_the_longest_first)
{
    struct fixture f;
    agents_open(&f, fast_fast_slow, 1);
    apply_lengths(&f, "[8, 4]");
    assert_int_equal(ordered_length(&f, 0), 8);
    assert_int_equal(ordered_measure(&f, 0)->budget_ms, 10000);
    profile_say(&f, 0, "fast", 0.0002);
    assert_int_equal(ordered_length(&f, 0), 4);
    size_t before = f.n_sent;
    profile_say(&f, 0, "fast", 0.0001);
    assert_true(shares_ready(&f, before) > 0);
    /* A third one: what is known of the others stands. */
    fixture_ask(&f, "pools.remove", "{}", NULL);
    apply_lengths(&f, "[8, 6, 4]");
    assert_int_equal(ordered_length(&f, 0), 6);
    fixture_close(&f);
}

TEST(a_kind_that_cannot_run_the_longest_is_not_asked_for_shorter_ones)
{
    static const char *const kinds[] = {"fast", "gpu"};
    struct fixture f;
    agents_open(&f, kinds, 2);
    apply_lengths(&f, "[8, 4]");
    uint64_t asked = ordered_measure(&f, 1)->id;
    state_say(&f, 1, "failed", "unsupported", "the backend runs no networks");
    profile_say(&f, 0, "fast", 0.0002);
    assert_int_equal(ordered_length(&f, 0), 4);
    assert_true(ordered_measure(&f, 1)->id == asked);
    size_t before = f.n_sent;
    profile_say(&f, 0, "fast", 0.0001);
    assert_true(shares_ready(&f, before) > 0);
    fixture_close(&f);
}

TEST(a_kind_that_has_no_times_of_a_length_serves_none)
{
    struct fixture f;
    agents_open(&f, fast_fast_slow, 3);
    apply_lengths(&f, "[8, 4]");
    profile_say(&f, 0, "fast", 0.0002);
    profile_say(&f, 2, "slow", 0.0004);
    profile_say(&f, 0, "fast", 0.0001);
    size_t before = f.n_sent;
    result_say(&f, 2, "", "no_memory", "no memory for a profile");
    assert_true(shares_ready(&f, before) >= 2);
    for (size_t i = before; i < f.n_sent; i++)
        assert_false(f.sent[i].type == MESSAGE_STAGE_PREPARE && f.sent[i].peer == 12);
    fixture_close(&f);
}

TEST(what_was_measured_of_a_length_in_other_layers_is_said)
{
    struct fixture f;
    agents_open(&f, fast_fast_slow, 1);
    apply_lengths(&f, "[8, 4]");
    profile_say(&f, 0, "fast", 0.0002);
    char *other = profile_text("fast", LAYERS - 2, 0.001);
    result_say(&f, 0, other, "", "");
    free(other);
    const struct message *m = fixture_last(&f, ADMIN, MESSAGE_ANSWER);
    assert_string_equal(m->u.answer.code, "unsupported");
    assert_non_null(strstr(m->u.answer.text, "what was measured of \"m\""));
    fixture_close(&f);
}

TEST(blocks_that_are_asked_for_are_those_of_the_answer)
{
    struct fixture f;
    measuring_open(&f, 1, ", \"bounds\": [0, 3, 14]");
    profile_say(&f, 0, "fast", 0.001);
    json_t *made = answered(&f, "ok");
    assert_int_equal(json_array_size(json_object_get(made, "layers")), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(made, "bounds"), 1)), 3);
    json_decref(made);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            one_device_of_each_kind_measures_and_the_answer_has_about_ten_blocks_of_all_kinds),
        cmocka_unit_test(of_several_agents_of_a_kind_the_slowest_counts),
        cmocka_unit_test(a_kind_that_cannot_is_named_and_the_others_count),
        cmocka_unit_test(where_no_kind_can_the_first_reason_is_the_answer),
        cmocka_unit_test(what_cannot_be_believed_is_refused),
        cmocka_unit_test(questions_that_are_wrong_are_refused_by_place),
        cmocka_unit_test(an_agent_that_is_lost_is_replaced_by_another_of_its_kind),
        cmocka_unit_test(where_the_lost_agent_was_the_last_of_its_kind_that_is_the_answer),
        cmocka_unit_test(who_leaves_frees_the_agents),
        cmocka_unit_test(
            a_workload_without_a_profile_is_measured_planned_and_served_and_measured_once),
        cmocka_unit_test(a_workload_that_is_wrong_is_refused_before_anything_is_measured_for_it),
        cmocka_unit_test(
            agents_that_are_given_shares_while_they_measure_measure_nothing_that_is_kept),
        cmocka_unit_test(what_was_measured_outlives_the_coordinator_and_can_be_dropped),
        cmocka_unit_test(what_was_measured_on_one_core_of_a_device_is_forgotten),
        cmocka_unit_test(a_kind_that_cannot_run_a_network_is_not_asked_again_for_a_plan),
        cmocka_unit_test(each_length_is_measured_by_itself_and_once_the_longest_first),
        cmocka_unit_test(a_kind_that_cannot_run_the_longest_is_not_asked_for_shorter_ones),
        cmocka_unit_test(a_kind_that_has_no_times_of_a_length_serves_none),
        cmocka_unit_test(what_was_measured_of_a_length_in_other_layers_is_said),
        cmocka_unit_test(blocks_that_are_asked_for_are_those_of_the_answer),
    };
    return cmocka_run_group_tests_name("pools_profiles", tests, NULL, NULL);
}
