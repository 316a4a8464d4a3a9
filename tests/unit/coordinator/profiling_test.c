#include <stdio.h>

#include "common/profile.h"
#include "tests/unit/coordinator/core_fixture.h"

static const char tables[] =
    "{\"attn\": {\"slice\": [1, 64], \"prefix\": [0], \"seconds\": [[1e-4], [3e-3]], \"decode\": "
    "{}}, \"useful_slice\": {\"tokens\": %d, \"within\": 1.25}, "
    "\"source\": {\"device\": \"toy\"}, \"layers\": [{\"name\": \"blk.0.attn\", \"class\": "
    "\"attn\", \"param_bytes\": 100, \"resident_bytes\": 200, "
    "\"state_bytes_per_token\": 8, \"output_bytes_per_token\": 16}]}";

static int setup(void **state)
{
    static struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "big", 1e9);
    fixture_agent(&f, 1, "small", 1e9);
    fixture_agent(&f, 2, "small", 1e9);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

static void manifest_of(struct buffer *out)
{
    static const uint8_t head[] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "toy", .files = {&file, 1}, .heads = {&first, 1}};
    manifest_encode(&m, out);
}

/* What was answered to the question `profile`, the last time; NULL: nothing. */
static const struct message_answer *answered(const struct fixture *f)
{
    const struct message *m = fixture_last(f, ADMIN, MESSAGE_ANSWER);
    return m && m->id == 5 ? &m->u.answer : NULL;
}

static void ask(struct fixture *f, const char *arguments)
{
    struct buffer manifest = {0};
    manifest_of(&manifest);
    fixture_ask(f, "profile", arguments, &manifest);
    buffer_free(&manifest);
}

static const struct message *ordered(const struct fixture *f, int agent)
{
    return fixture_last(f, 10 + (uint64_t)agent, MESSAGE_PROFILE_RUN);
}

static void tell(struct fixture *f, int agent, int useful)
{
    char text[600];
    const struct message *order = ordered(f, agent);
    struct message m = {.type = MESSAGE_PROFILE_RESULT, .id = order->id};
    snprintf(text, sizeof text, tables, useful);
    m.u.profile_result = (struct message_profile_result){
        .model = order->u.profile_run.model, .kind = "", .tables = text, .code = "", .text = ""};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

static void one_agent_of_each_kind_measures_and_the_answer_is_a_profile(void **state)
{
    struct fixture *f = *state;
    ask(f, "{\"budget_s\": 5}");
    assert_true(ordered(f, 0) && ordered(f, 1) && !ordered(f, 2));
    assert_true(ordered(f, 0)->u.profile_run.fine);
    assert_int_equal(ordered(f, 0)->u.profile_run.budget_ms, 5000);
    struct message p = {.type = MESSAGE_PROFILE_PROGRESS, .id = ordered(f, 1)->id};
    p.u.profile_progress = (struct message_profile_progress){
        .what = "attn", .points = 7, .elapsed_s = 1, .budget_s = 5, .error = 0.2};
    fixture_say(f, 11, fixture_key(1), &p);
    assert_true(answered(f)->more && strstr(answered(f)->result, "\"points\""));
    tell(f, 0, 64);
    assert_true(answered(f)->more);
    struct message forged = {.type = MESSAGE_PROFILE_RESULT, .id = ordered(f, 1)->id};
    forged.u.profile_result =
        (struct message_profile_result){.model = ordered(f, 1)->u.profile_run.model,
                                        .kind = "",
                                        .tables = "{\"layers\": []}",
                                        .code = "",
                                        .text = ""};
    fixture_say(f, 12, fixture_key(2), &forged); /* of the same kind, and was not asked */
    assert_true(answered(f)->more);
    assert_true(ordered(f, 0)->id > 1000 && ordered(f, 1)->id > 1000); /* by chance, not counted */
    tell(f, 1, 32);
    assert_false(answered(f)->more);
    json_t *root;
    struct json_at at;
    struct profile profile = {0};
    struct err e = {0};
    if (json_parse_at("answer", answered(f)->result, strlen(answered(f)->result), &root, &at, &e) <
            0 ||
        profile_from_json(&at, &profile, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(profile.n_kinds, 2);
    assert_true(profile.layers[0].param_bytes == 200);
    assert_true(profile.useful_slice_tokens == 32);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(json_object_get(root, "source"), "big"), "device")),
                        "toy");
    profile_free(&profile);
    json_decref(root);
    assert_int_equal(f->core->n_profilings, 0);
}

static void what_cannot_be_measured_is_an_error(void **state)
{
    struct fixture *f = *state;
    ask(f, "{\"budget_s\": 5, \"nodes\": [\"a9\"]}");
    assert_string_equal(answered(f)->code, status_word(HP_ENOENT));
    ask(f, "{\"budget_s\": 0}");
    assert_true(strstr(answered(f)->text, "budget_s") != NULL);
    ask(f, "{\"budget_s\": 5, \"nodes\": [\"a2\"]}");
    struct message m = {.type = MESSAGE_PROFILE_RESULT, .id = ordered(f, 2)->id};
    m.u.profile_result = (struct message_profile_result){
        .kind = "", .tables = "", .code = status_word(HP_ENOMEM), .text = "too large"};
    fixture_say(f, 12, fixture_key(2), &m);
    assert_true(strstr(answered(f)->text, "too large") != NULL);
    assert_int_equal(f->core->n_profilings, 0);
}

static void an_agent_that_is_lost_ends_the_measurement(void **state)
{
    struct fixture *f = *state;
    ask(f, "{\"budget_s\": 5, \"nodes\": [\"a0\"]}");
    for (int i = 0; i < 40; i++)
        fixture_pass_ms(f, 100);
    assert_false(answered(f)->more);
    assert_true(strstr(answered(f)->text, "lost") != NULL);
    assert_int_equal(f->core->n_profilings, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_agent_of_each_kind_measures_and_the_answer_is_a_profile,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_measured_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_is_lost_ends_the_measurement, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
