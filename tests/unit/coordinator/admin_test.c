/* What hpctl asks. */
#include "coordinator/admin.h"
#include "coordinator/api_keys.h"
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

static struct request_limits limits_now(struct fixture *f)
{
    struct requests r;
    struct request_limits limits = {0};
    coord_requests(f->core, &r);
    assert_true(r.limits(r.ctx, "key me", &limits));
    return limits;
}

/* A coordinator that is killed forgets the last second of what keys have used, one that stops
 * nothing. */
TEST(what_a_key_may_do_and_has_used_outlives_the_coordinator)
{
    struct fixture f;
    struct requests r;
    struct err e = {0};
    uint32_t retry_after_s;
    fixture_open(&f);
    fixture_ask(&f, "key.create", "{\"name\": \"me\", \"tokens_per_day\": 1000}", NULL);
    assert_string_equal(
        fixture_ask(&f, "key.edit", "{\"name\": \"me\", \"requests_per_minute\": 3}", NULL)->code,
        "ok");
    assert_string_equal(fixture_ask(&f, "key.edit", "{\"name\": \"you\"}", NULL)->code,
                        "not_found");
    assert_string_equal(
        fixture_ask(&f, "key.edit", "{\"name\": \"me\", \"weight\": 0}", NULL)->code, "invalid");
    coord_requests(f.core, &r);
    api_keys_count_tokens(f.core, "key me", 100, 20);
    f.clock.now_ns += 1500000000;
    coord_tick(f.core);
    fixture_settle(&f);
    api_keys_count_tokens(f.core, "key me", 0, 7); /* after the last was stored */
    fixture_restart(&f);
    assert_int_equal(limits_now(&f).requests.limit, 3);
    assert_int_equal(limits_now(&f).tokens.remaining, 880);
    api_keys_count_tokens(f.core, "key me", 0, 80);
    coord_stopping(f.core);
    fixture_settle(&f);
    fixture_restart(&f);
    assert_int_equal(limits_now(&f).tokens.remaining, 800);
    coord_requests(f.core, &r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r.begin(r.ctx, "key me", &retry_after_s, &e), 0);
    assert_int_equal(r.begin(r.ctx, "key me", &retry_after_s, &e), HP_ERATE);
    assert_int_equal(retry_after_s, 20);
    assert_int_equal(r.begin(r.ctx, "address ::1", &retry_after_s, &e), 0);
    const char *ls = fixture_ask(&f, "key.ls", "{}", NULL)->result;
    assert_non_null(strstr(ls, "\"refused\":1"));
    assert_non_null(strstr(ls, "\"tokens_left\":800"));
    fixture_close(&f);
}

/* While nothing can be written, counts go on; when there is room, all of them are stored. */
TEST(what_keys_use_while_the_disk_is_full_is_stored_when_it_has_room)
{
    struct fixture f;
    fixture_open(&f);
    fixture_ask(&f, "key.create", "{\"name\": \"me\", \"tokens_total\": 1000}", NULL);
    err_set(&f.disk, HP_ENOSPACE, "full");
    for (int i = 0; i < 5; i++) {
        api_keys_count_tokens(f.core, "key me", 10, 0);
        f.clock.now_ns += 1100000000;
        coord_tick(f.core);
        fixture_settle(&f);
    }
    f.disk = (struct err){0};
    coord_stored(f.core, f.asked_number, NULL);
    coord_tick(f.core);
    f.clock.now_ns += 1100000000;
    coord_tick(f.core);
    fixture_settle(&f);
    fixture_restart(&f);
    assert_int_equal(limits_now(&f).tokens.remaining, 950);
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
        cmocka_unit_test(what_a_key_may_do_and_has_used_outlives_the_coordinator),
        cmocka_unit_test(what_keys_use_while_the_disk_is_full_is_stored_when_it_has_room),
        cmocka_unit_test(what_is_not_text_is_refused_and_cuts_are_between_characters),
        cmocka_unit_test(names_of_keys_are_whole_and_printable),
        cmocka_unit_test(verbs_that_make_no_sense_are_answered_with_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
