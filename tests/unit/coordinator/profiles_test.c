/* What agents say they measured: believed when it can be. */
#include "coordinator/profile_check.h"
#include "coordinator/profiles.h"
#include "tests/unit/coordinator/core_fixture.h"

static const struct layer_facts layers[] = {
    {"embed", "embed", 4 << 20, 2 << 20, 0, 8, 0, 0, 0, 0, 0, 0, 0},
    {"blk.0.mlp", "mlp", 40 << 20, 20 << 20, 0, 8, 8000, 0, 0, 0, 0, 0, 0}};
static const struct model_facts facts = {.architecture = "toy",
                                         .layers = layers,
                                         .n_layers = 2,
                                         .vocabulary = 100,
                                         .width = 4,
                                         .context = 1024};

TEST(what_can_be_believed)
{
    static const struct {
        const char *tables, *says; /* says NULL: is believed */
    } cases[] = {
        {"{}", NULL},
        {"{\"mlp\": {\"slice\": [1, 64], \"prefix\": [0], \"seconds\": [[1e-4], [3e-3]], "
         "\"decode\": {}}, \"source\": {}}",
         NULL},
        {"[]", "an object"},
        {"{\"mlp\": {}}", "no \"slice\""},
        {"{\"mlp\": 7}", "an object"},
        {"{\"mlp\": {\"slice\": [1, 64], \"prefix\": [0], \"seconds\": [[1e-4]]}}", "rows"},
        {"{\"mlp\": {\"slice\": [64, 1], \"prefix\": [0], \"seconds\": [[1e-4], [1e-4]]}}",
         "does not rise"},
        {"{\"mlp\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[-1]]}}", "not a time"},
        {"{\"mlp\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e9]]}}", "more than an hour"},
        {"{\"mlp\": {\"slice\": [1, 64], \"prefix\": [0], \"seconds\": [[1], [1e-3]]}}",
         "a shorter slice takes 1"},
        {"{\"layers\": 5}", "not a list"},
        {"{\"layers\": [{\"class\": \"embed\", \"output_bytes_per_token\": 8}]}",
         "1 layers, the model 2"},
        {"{\"layers\": [{\"class\": \"embed\", \"output_bytes_per_token\": 8}, {\"class\": "
         "\"mlp\", \"output_bytes_per_token\": 8, \"resident_bytes\": 1e18}]}",
         "weights of this layer take about"},
        {"{\"layers\": [{\"class\": \"embed\", \"output_bytes_per_token\": 8}, {\"class\": "
         "\"mlp\", \"output_bytes_per_token\": 8, \"resident_bytes\": 1}]}",
         "weights of this layer take about"},
        {"{\"layers\": [{\"class\": \"embed\", \"output_bytes_per_token\": 8}, {\"class\": "
         "\"mlp\", \"output_bytes_per_token\": 8, \"resident_bytes\": 60000000}]}",
         NULL},
        {"{\"layers\": [{}, {}]}", "no \"class\""},
        {"{\"useful_slice\": 5}", "not an object"},
        {"{\"useful_slice\": {\"tokens\": 0}}", "less than 1"},
        {"{\"batch\": \"many\"}", "not a number"},
        {"{\"scratch\": {\"tokens\": [1, 64], \"bytes\": [0, 8e6]}}", NULL},
        {"{\"scratch\": 5}", "no tokens and bytes"},
        {"{\"scratch\": {\"tokens\": [1, 64], \"bytes\": [1]}}", "no tokens and bytes"},
        {"{\"scratch\": {\"tokens\": [64, 1], \"bytes\": [1, 1]}}", "does not rise"},
        {"{\"scratch\": {\"tokens\": [1], \"bytes\": [-1]}}", "bytes[0] is -1"},
        {"{\"scratch\": {\"tokens\": [1], \"bytes\": [\"a\"]}}", "bytes[0] is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        json_t *tables = json_loads(cases[i].tables, 0, NULL);
        assert_non_null(tables);
        int rc = profile_check(&facts, false, tables, &e);
        if ((rc < 0) != (cases[i].says != NULL) ||
            (cases[i].says && !strstr(e.text, cases[i].says)))
            fail_msg("%s: \"%s\"", cases[i].tables, e.text);
        json_decref(tables);
    }
}

static void deploy(struct fixture *f)
{
    static const uint8_t head[] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "toy", .files = {&file, 1}, .heads = {&first, 1}};
    struct buffer blob = {0};
    manifest_encode(&m, &blob);
    fixture_ask(f, "deploy", "{\"name\": \"d\", \"options\": {}}", &blob);
    buffer_free(&blob);
}

/* An agent of kind k that measures when asked, and says this. */
static void measure(struct fixture *f, const char *tables)
{
    f->core->config.profile_ms = 1000;
    f->facts = &facts;
    fixture_agent(f, 0, "k", 1e9);
    deploy(f);
    const struct message *order = fixture_last(f, 10, MESSAGE_PROFILE_RUN);
    assert_non_null(order);
    struct message m = {.type = MESSAGE_PROFILE_RESULT, .id = order->id};
    m.u.profile_result = (struct message_profile_result){
        .model = order->u.profile_run.model, .kind = "", .tables = tables, .code = "", .text = ""};
    fixture_say(f, 10, fixture_key(0), &m);
}

TEST(a_lie_does_not_make_a_model_undeployable)
{
    struct fixture f;
    fixture_open(&f);
    measure(&f, "{\"layers\": [{\"class\": \"embed\", \"output_bytes_per_token\": 8, "
                "\"resident_bytes\": 1e18}, {\"class\": \"mlp\", \"output_bytes_per_token\": 8}]}");
    assert_int_equal(f.core->n_profiles, 0);
    assert_non_null(fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)); /* planned by an estimate */
    fixture_close(&f);
}

TEST(what_was_measured_is_listed_and_dropped)
{
    struct fixture f;
    fixture_open(&f);
    measure(&f, "{\"mlp\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-4]]}}");
    const struct message_answer *a = fixture_ask(&f, "profile.ls", "", NULL);
    assert_non_null(strstr(a->result, "\"kind\":\"k\",\"compute\":\"auto\",\"classes\":1"));
    fixture_restart(&f);
    assert_int_equal(f.core->n_profiles, 1);
    assert_string_equal(
        fixture_ask(&f, "profile.rm", "{\"model\": \"toy\", \"kind\": \"other\"}", NULL)->code,
        "not_found");
    a = fixture_ask(&f, "profile.rm", "{\"model\": \"toy\"}", NULL);
    assert_string_equal(a->result, "{\"removed\":1}");
    fixture_restart(&f);
    assert_int_equal(f.core->n_profiles, 0);
    fixture_close(&f);
}

TEST(a_bad_record_of_a_profile_is_dropped_at_the_start)
{
    struct fixture f;
    struct err e = {0};
    fixture_open(&f);
    static const char *const bad[] = {"{\"mlp\": {}}", "garbage"};
    for (size_t i = 0; i < 2; i++) {
        struct store_change change = {"profile", "00ff/k/auto", bad[i], strlen(bad[i])};
        assert_int_equal(store_apply(f.store, &change, 1, &e), 0);
        fixture_restart(&f);
        assert_int_equal(f.core->n_profiles, 0);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_be_believed),
        cmocka_unit_test(a_lie_does_not_make_a_model_undeployable),
        cmocka_unit_test(what_was_measured_is_listed_and_dropped),
        cmocka_unit_test(a_bad_record_of_a_profile_is_dropped_at_the_start),
    };
    return cmocka_run_group_tests_name("profiles", tests, NULL, NULL);
}
