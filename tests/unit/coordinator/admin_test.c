/* What hpctl asks. */
#include "coordinator/admin.h"
#include "tests/unit/coordinator/member_fixture.h"

TEST(api_keys_are_kept_as_digests)
{
    struct fixture f;
    struct requests r;
    fixture_open(&f);
    json_t *made =
        json_loads(fixture_ask(&f, "key.create", "{\"name\": \"me\"}", NULL)->result, 0, NULL);
    const char *key = json_string_value(json_object_get(made, "key"));
    assert_string_equal(fixture_ask(&f, "key.create", "{\"name\": \"me\"}", NULL)->code, "exists");
    fixture_restart(&f);
    coord_requests(f.core, &r);
    assert_int_equal(r.api_keys(r.ctx), 1);
    assert_true(r.api_key_allowed(r.ctx, key, NULL));
    assert_false(r.api_key_allowed(r.ctx, "hp-0000", NULL));
    assert_null(strstr(fixture_ask(&f, "key.ls", "{}", NULL)->result, key));
    assert_string_equal(fixture_ask(&f, "key.rm", "{\"name\": \"me\"}", NULL)->code, "ok");
    assert_int_equal(r.api_keys(r.ctx), 0);
    json_decref(made);
    fixture_close(&f);
}

TEST(verbs_that_make_no_sense_are_answered_with_why)
{
    static const struct {
        const char *verb, *arguments, *code, *says;
    } cases[] = {
        {"fly", "{}", "unsupported", "does not know \"fly\""},
        {"node.describe", "{}", "invalid", "has no \"name\""},
        {"node.describe", "{\"name\": \"nobody\"}", "not_found", "no agent \"nobody\""},
        {"undeploy", "{\"name\": \"x\"}", "not_found", "no deployment \"x\""},
        {"node.ls", "[1]", "malformed", "no JSON object"},
        {"greedy", "{\"deployment\": \"x\", \"ids\": [1]}", "invalid", "\"tokens\""},
        {"weights.rm", "{\"model\": \"x\"}", "not_found", "no agent holds"},
        {"deploy", "{\"name\": \"a b\"}", "invalid", "cannot name a deployment"},
        {"deploy", "{\"name\": \"ok\"}", "malformed", ""},
    };
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct message_answer *a = fixture_ask(&f, cases[i].verb, cases[i].arguments, NULL);
        assert_non_null(a);
        if (strcmp(a->code, cases[i].code) != 0 || !strstr(a->text, cases[i].says))
            fail_msg("%s %s: %s, \"%s\"", cases[i].verb, cases[i].arguments, a->code, a->text);
    }
    fixture_close(&f);
}

TEST(what_is_not_text_is_refused_and_cuts_are_between_characters)
{
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    struct message m = {.type = MESSAGE_JOIN, .id = 3};
    m.u.join = (struct message_join){.name = "box",
                                     .token = f.token,
                                     .hostname = "caf~",
                                     .node = fixture_node("k", 1e9),
                                     .data_address = {(const uint8_t *)"box", 3}};
    fixture_say_changed(&f, 10, fixture_key(0), &m, '~', '\xe9');
    assert_non_null(strstr(refusal(&f, 10), "\"hostname\" is not text in UTF-8"));
    assert_string_equal(state_of(&f, "box"), "nobody");
    char host[100];
    memset(host, 'x', 78);
    strcpy(host + 78, "\xc3\xa9"
                      "cole");
    m.u.join.hostname = host;
    m.u.join.program = "\xff";
    fixture_say(&f, 10, fixture_key(0), &m);
    assert_string_equal(state_of(&f, "box"), "joining");
    fixture_restart(&f); /* the record of it can be read again */
    host[78] = 0;
    assert_string_equal(member_find(f.core, "box")->hostname, host);
    fixture_join(&f, 10, fixture_key(0), "box", "", fixture_node("k", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    m = (struct message){.type = MESSAGE_STAGE_STATE,
                         .u.stage_state = {.state = "failed", .text = "~"}};
    fixture_say_changed(&f, 10, fixture_key(0), &m, '~', '\xe9');
    assert_non_null(strstr(refusal(&f, 10), "\"text\" is not text in UTF-8"));
    fixture_close(&f);
}

TEST(names_of_keys_are_whole_and_printable)
{
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"", "1 to 63 bytes"},
        {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\xc3\xa9",
         "1 to 63 bytes, this one 64"},
        {"a\\u001b[31m", "no control characters"},
        {"a\\nb", "no control characters"},
        {"a\\u0085", "no control characters"},
        {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\xc3\xa9", ""},
    };
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "{\"name\": \"%s\"}", cases[i].name);
        const struct message_answer *a = fixture_ask(&f, "key.create", arguments, NULL);
        if (!strstr(a->text, cases[i].says))
            fail_msg("%s: \"%s\"", cases[i].name, a->text);
        assert_string_equal(a->code, cases[i].says[0] ? "invalid" : "ok");
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(api_keys_are_kept_as_digests),
        cmocka_unit_test(what_is_not_text_is_refused_and_cuts_are_between_characters),
        cmocka_unit_test(names_of_keys_are_whole_and_printable),
        cmocka_unit_test(verbs_that_make_no_sense_are_answered_with_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
