/* How an agent becomes a member. */
#include "coordinator/invites.h"
#include "coordinator/joining.h"
#include "tests/unit/coordinator/member_fixture.h"

TEST(a_token_opens_the_door_once)
{
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    fixture_join(&f, 10, fixture_key(0), "box", f.token, fixture_node("k", 1e9));
    assert_string_equal(fixture_last(&f, 10, MESSAGE_WELCOME)->u.welcome.name, "box");
    assert_string_equal(state_of(&f, "box"), "joining");
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f, "box"), "ready");
    fixture_join(&f, 11, fixture_key(1), "thief", f.token, fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 11), "used already, by agent \"box\""));
    assert_string_equal(state_of(&f, "thief"), "nobody");
    fixture_restart(&f); /* the store knows it too */
    fixture_join(&f, 11, fixture_key(1), "thief", f.token, fixture_node("k", 1e9));
    assert_string_equal(state_of(&f, "thief"), "nobody");
    fixture_close(&f);
}

TEST(a_token_expires)
{
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    f.clock.now_ns += 61000000000u;
    fixture_join(&f, 10, fixture_key(0), "late", f.token, fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 10), "expired"));
    assert_int_equal(coord_view(f.core).members, 0);
    fixture_close(&f);
}

TEST(a_token_expires_while_the_box_sleeps_and_stays_so)
{
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    coord_wall_clock(f.core, 1061);
    coord_wall_clock(f.core, 1000);
    fixture_join(&f, 10, fixture_key(0), "late", f.token, fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 10), "expired"));
    fixture_close(&f);
}

TEST(a_token_opens_nothing_for_a_clock_that_was_set_back)
{
    struct fixture f;
    fixture_open(&f);
    coord_wall_clock(f.core, 5000);
    fixture_invite(&f, 60);
    fixture_restart(&f); /* at 1000 */
    fixture_join(&f, 10, fixture_key(0), "late", f.token, fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 10), "clock stands before"));
    fixture_close(&f);
}

TEST(join_tokens_have_a_limit_in_number_and_time)
{
    static const char *const bad[] = {"{\"ttl_s\": 0}", "{\"ttl_s\": 315360001}",
                                      "{\"ttl_s\": 9223372036854775807}"};
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_equal(fixture_ask(&f, "token.create", bad[i], NULL)->code, "invalid");
    for (int i = 0; i < INVITES_MOST; i++)
        fixture_invite(&f, 60);
    assert_string_equal(fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL)->code, "limit");
    f.clock.now_ns += 61000000000u;
    assert_string_equal(fixture_ask(&f, "token.create", "{\"ttl_s\": 60}", NULL)->code, "ok");
    fixture_close(&f);
}

TEST(what_opens_nothing)
{
    static const struct {
        const char *token, *node, *says;
    } cases[] = {
        {"", "{\"devices\": [{\"name\": \"c\", \"kind\": \"k\", \"memory_bytes\": 1}]}",
         "brought no join token"},
        {"00112233445566778899aabbccddeeff",
         "{\"devices\": [{\"name\": \"c\", \"kind\": \"k\", \"memory_bytes\": 1}]}",
         "not one of this cluster"},
        {NULL, "nonsense", "not a JSON object"},
        {NULL, "{\"devices\": []}", "has no device"},
        {NULL, "{\"devices\": [{\"name\": \"c\", \"kind\": \"k\", \"memory_bytes\": -1}]}",
         "is negative"},
    };
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_join(&f, 10 + i, fixture_key(0), "x", cases[i].token ? cases[i].token : f.token,
                     cases[i].node);
        if (!strstr(refusal(&f, 10 + i), cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, refusal(&f, 10 + i));
        assert_int_equal(coord_view(f.core).members, 0);
    }
    fixture_close(&f);
}

TEST(an_unknown_key_may_say_nothing_but_join)
{
    struct fixture f;
    fixture_open(&f);
    fixture_beat(&f, 10, fixture_key(0));
    assert_non_null(strstr(refusal(&f, 10), "is not known here"));
    struct message ask = {.type = MESSAGE_ASK, .id = 4};
    ask.u.ask.verb = "node.ls";
    ask.u.ask.arguments = "{}";
    fixture_say(&f, 11, fixture_key(0), &ask);
    assert_null(fixture_last(&f, 11, MESSAGE_ANSWER));
    assert_non_null(fixture_last(&f, 11, MESSAGE_REFUSED));
    fixture_close(&f);
}

TEST(another_protocol_version_is_refused_naming_both)
{
    struct fixture f;
    fixture_open(&f);
    struct message m = {.type = MESSAGE_HEARTBEAT};
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    uint8_t *v = memmem(bytes.data, bytes.size, "\xa1v\x01", 3);
    assert_non_null(v);
    v[2] = 9;
    coord_message(f.core, 10, fixture_key(0), bytes.data, bytes.size);
    fixture_settle(&f);
    assert_non_null(strchr(refusal(&f, 10), '9'));
    assert_non_null(strchr(refusal(&f, 10), '1'));
    buffer_free(&bytes);
    fixture_close(&f);
}

TEST(a_join_again_over_the_same_connection_changes_nothing)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    struct member *m = member_find(f.core, "a0");
    uint64_t joins = m->joins;
    size_t n = f.n_sent;
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    assert_int_equal(m->joins, joins);
    assert_string_equal(state_of(&f, "a0"), "ready");
    assert_int_equal(f.sent[n].type, MESSAGE_WELCOME);
    fixture_join(&f, 20, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    assert_int_equal(m->joins, joins + 1);
    assert_string_equal(state_of(&f, "a0"), "joining");
    fixture_close(&f);
}

TEST(names_are_made_safe_and_unique_and_stay)
{
    static const struct {
        const char *asked, *got;
    } cases[] = {{"box", "box"},
                 {"box", "box-2"},
                 {"box", "box-3"},
                 {"my box/1", "my-box-1"},
                 {"", "agent"}};
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 5; i++) {
        fixture_invite(&f, 60);
        fixture_join(&f, 10 + (uint64_t)i, fixture_key(i), cases[i].asked, f.token,
                     fixture_node("k", 1e9));
        assert_string_equal(fixture_last(&f, 10 + (uint64_t)i, MESSAGE_WELCOME)->u.welcome.name,
                            cases[i].got);
    }
    fixture_restart(&f);
    fixture_join(&f, 20, fixture_key(1), "another name", "", fixture_node("k", 1e9));
    assert_string_equal(fixture_last(&f, 20, MESSAGE_WELCOME)->u.welcome.name, "box-2");
    assert_int_equal(fixture_last(&f, 20, MESSAGE_WELCOME)->u.welcome.coordinator_boot, 2);
    fixture_close(&f);
}

static void join_as(struct fixture *f, uint64_t peer, const char *key, const char *host,
                    uint64_t process, const char *address)
{
    struct message m = {.type = MESSAGE_JOIN, .id = 3};
    m.u.join = (struct message_join){.name = "box",
                                     .token = f->token,
                                     .hostname = host,
                                     .process = process,
                                     .node = fixture_node("k", 1e9),
                                     .data_address = {(const uint8_t *)address, strlen(address)}};
    fixture_say(f, peer, key, &m);
}

TEST(two_processes_with_one_key_are_told_apart)
{
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    join_as(&f, 10, fixture_key(0), "old", 1, "box");
    fixture_beat(&f, 10, fixture_key(0));
    join_as(&f, 11, fixture_key(0), "new", 2, "box"); /* no answer yet */
    assert_string_equal(refusal(&f, 11), "");
    fixture_pass_ms(&f, 500);
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f, "box"), "ready");
    fixture_pass_ms(&f, 500);
    join_as(&f, 11, fixture_key(0), "new", 2, "box");
    assert_non_null(strstr(refusal(&f, 11),
                           "in use by another process, on host \"old\"; this one is on \"new\""));
    assert_int_equal(member_find(f.core, "box")->joins, 1);
    const struct message_answer *a = fixture_ask(&f, "node.ls", "", NULL);
    assert_non_null(strstr(a->result, "\"key_also_on\":\"new\""));
    fixture_close(&f);
}

TEST(a_restarted_process_is_let_in_after_a_missed_heartbeat)
{
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    join_as(&f, 10, fixture_key(0), "box", 1, "box");
    fixture_beat(&f, 10, fixture_key(0));
    fixture_pass_ms(&f, 100);
    join_as(&f, 11, fixture_key(0), "box", 2, "box");
    assert_int_equal(member_find(f.core, "box")->joins, 1);
    fixture_pass_ms(&f, 500);
    fixture_pass_ms(&f, 500);
    join_as(&f, 11, fixture_key(0), "box", 2, "box");
    assert_int_equal(member_find(f.core, "box")->joins, 2);
    assert_int_equal(member_find(f.core, "box")->peer, 11);
    join_as(&f, 12, fixture_key(0), "box", 2,
            "box"); /* the same process over another connection is itself */
    assert_int_equal(member_find(f.core, "box")->peer, 12);
    fixture_close(&f);
}

TEST(a_data_address_has_the_joiners_own_key)
{
    struct fixture f;
    struct key_pair own, other;
    struct data_address a = {.kind = DATA_KIND_TCP, .host = "10.0.0.5", .port = 7071};
    char text[DATA_ADDRESS_TEXT];
    fixture_open(&f);
    fixture_invite(&f, 60);
    assert_int_equal(key_pair_create(&own, NULL), 0);
    assert_int_equal(key_pair_create(&other, NULL), 0);
    assert_int_equal(key_decode(other.public_key, a.key, NULL), 0);
    data_address_print(&a, text);
    join_as(&f, 10, own.public_key, "box", 1, text);
    assert_non_null(strstr(refusal(&f, 10), "not the agent's own"));
    join_as(&f, 10, own.public_key, "box", 1, "tcp:nowhere.example:1:22");
    assert_non_null(strstr(refusal(&f, 10), "no numeric host"));
    join_as(&f, 10, own.public_key, "box", 1, "a packed address \x01\x02\x03\x04");
    assert_non_null(strstr(refusal(&f, 10), "neither tcp nor ucx"));
    assert_int_equal(coord_view(f.core).members, 0);
    assert_int_equal(key_decode(own.public_key, a.key, NULL), 0);
    data_address_print(&a, text);
    join_as(&f, 10, own.public_key, "box", 1, text);
    assert_string_equal(state_of(&f, "box"), "joining");
    fixture_close(&f);
}

TEST(agents_hear_whose_connections_to_take)
{
    struct fixture f;
    uint8_t key[KEY_BYTES];
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    assert_int_equal(fixture_last(&f, 10, MESSAGE_MEMBERS)->u.members.keys.size,
                     3 * KEY_BYTES); /* the admin's, the coordinator's, and its own */
    fixture_agent(&f, 1, "k", 1e9);
    for (uint64_t peer = 10; peer < 12; peer++) {
        const struct message_members *m = &fixture_last(&f, peer, MESSAGE_MEMBERS)->u.members;
        assert_int_equal(m->keys.size, 4 * KEY_BYTES);
        assert_int_equal(key_decode(fixture_key(1), key, NULL), 0);
        assert_memory_equal(m->keys.data + 3 * KEY_BYTES, key, sizeof key);
    }
    for (int i = 0; i < 30; i++) {
        fixture_pass_ms(&f, 100);
        fixture_beat(&f, 10, fixture_key(0));
    }
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a1\"}", NULL)->code, "ok");
    assert_int_equal(fixture_last(&f, 10, MESSAGE_MEMBERS)->u.members.keys.size, 3 * KEY_BYTES);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_opens_the_door_once),
        cmocka_unit_test(a_token_expires),
        cmocka_unit_test(a_token_expires_while_the_box_sleeps_and_stays_so),
        cmocka_unit_test(a_token_opens_nothing_for_a_clock_that_was_set_back),
        cmocka_unit_test(join_tokens_have_a_limit_in_number_and_time),
        cmocka_unit_test(what_opens_nothing),
        cmocka_unit_test(an_unknown_key_may_say_nothing_but_join),
        cmocka_unit_test(another_protocol_version_is_refused_naming_both),
        cmocka_unit_test(a_join_again_over_the_same_connection_changes_nothing),
        cmocka_unit_test(names_are_made_safe_and_unique_and_stay),
        cmocka_unit_test(two_processes_with_one_key_are_told_apart),
        cmocka_unit_test(a_restarted_process_is_let_in_after_a_missed_heartbeat),
        cmocka_unit_test(a_data_address_has_the_joiners_own_key),
        cmocka_unit_test(agents_hear_whose_connections_to_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
