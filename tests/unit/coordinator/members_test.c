#include "tests/unit/coordinator/core_fixture.h"
#include "transport/data_address.h"

static const char *state_of(struct fixture *f, const char *name)
{
    struct member *m = member_find(f->core, name);
    return m ? member_states[m->state].word : "nobody";
}

static const char *refusal(struct fixture *f, uint64_t peer)
{
    const struct message *m = fixture_last(f, peer, MESSAGE_REFUSED);
    return m ? m->u.refused.text : "";
}

static void a_token_opens_the_door_once(void **state)
{
    (void)state;
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

static void a_token_expires(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_invite(&f, 60);
    f.clock.now_ns += 61000000000u;
    fixture_join(&f, 10, fixture_key(0), "late", f.token, fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 10), "expired"));
    assert_int_equal(core_view(f.core).members, 0);
    fixture_close(&f);
}

static void what_opens_nothing(void **state)
{
    (void)state;
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
        assert_int_equal(core_view(f.core).members, 0);
    }
    fixture_close(&f);
}

static void an_unknown_key_may_say_nothing_but_join(void **state)
{
    (void)state;
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

static void another_protocol_version_is_refused_naming_both(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    struct message m = {.type = MESSAGE_HEARTBEAT};
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    uint8_t *v = memmem(bytes.data, bytes.size, "\xa1v\x01", 3);
    assert_non_null(v);
    v[2] = 9;
    core_message(f.core, 10, fixture_key(0), bytes.data, bytes.size);
    fixture_settle(&f);
    assert_non_null(strchr(refusal(&f, 10), '9'));
    assert_non_null(strchr(refusal(&f, 10), '1'));
    buffer_free(&bytes);
    fixture_close(&f);
}

static void silence_makes_suspect_and_then_lost_to_the_millisecond(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_pass_ms(&f, CORE_SUSPECT_MS - 1);
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_pass_ms(&f, 1);
    assert_string_equal(state_of(&f, "a0"), "suspect");
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_pass_ms(&f, CORE_LOST_MS - 1);
    assert_string_equal(state_of(&f, "a0"), "suspect");
    fixture_pass_ms(&f, 1);
    assert_string_equal(state_of(&f, "a0"), "lost");
    fixture_beat(&f, 10, fixture_key(0)); /* too late: it must join again */
    assert_non_null(strstr(refusal(&f, 10), "join first"));
    fixture_join(&f, 12, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    fixture_beat(&f, 12, fixture_key(0));
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_beat(&f, 10, fixture_key(0)); /* the old connection counts no more */
    assert_non_null(strstr(refusal(&f, 10), "has not joined over this connection"));
    fixture_close(&f);
}

static void a_pause_of_the_coordinator_is_nobodys_silence(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_pass_ms(&f, 400);
    f.clock.now_ns += UINT64_C(3600000000000); /* nothing was called meanwhile */
    core_tick(f.core);
    fixture_settle(&f);
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_pass_ms(&f, CORE_LOST_MS); /* but now it is silent */
    assert_string_equal(state_of(&f, "a0"), "lost");
    fixture_close(&f);
}

static void a_join_again_over_the_same_connection_changes_nothing(void **state)
{
    (void)state;
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

static void names_are_made_safe_and_unique_and_stay(void **state)
{
    (void)state;
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

static void an_agent_is_removed_only_when_it_is_gone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a0\"}", NULL)->code, "busy");
    fixture_pass_ms(&f, CORE_LOST_MS);
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a0\"}", NULL)->code, "ok");
    assert_string_equal(state_of(&f, "a0"), "nobody");
    fixture_restart(&f);
    assert_int_equal(core_view(f.core).members, 0);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    assert_non_null(strstr(refusal(&f, 10), "brought no join token"));
    fixture_close(&f);
}

static void a_removed_agent_is_told_and_can_come_back_with_a_token(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    assert_string_equal(fixture_ask(&f, "node.drain", "{\"name\": \"a0\"}", NULL)->code, "ok");
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a0\"}", NULL)->code, "ok");
    assert_non_null(strstr(refusal(&f, 10), "agent \"a0\" was removed from this cluster"));
    fixture_beat(&f, 10, fixture_key(0));
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    const struct message *m = fixture_last(&f, 10, MESSAGE_REFUSED);
    assert_string_equal(m->u.refused.code, "denied");
    assert_non_null(strstr(m->u.refused.text, "was removed"));
    assert_non_null(strstr(m->u.refused.hint, "hpctl node token create"));
    fixture_agent(&f, 0, "k", 1e9); /* with a new token */
    assert_string_equal(state_of(&f, "a0"), "ready");
    fixture_close(&f);
}

static void draining_survives_both_restarts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_ask(&f, "node.drain", "{\"name\": \"a0\"}", NULL);
    assert_string_equal(state_of(&f, "a0"), "draining");
    fixture_restart(&f);
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 1e9));
    fixture_beat(&f, 10, fixture_key(0));
    assert_string_equal(state_of(&f, "a0"), "draining");
    fixture_close(&f);
}

static void api_keys_are_kept_as_digests(void **state)
{
    (void)state;
    struct fixture f;
    struct requests r;
    fixture_open(&f);
    json_t *made =
        json_loads(fixture_ask(&f, "key.create", "{\"name\": \"me\"}", NULL)->result, 0, NULL);
    const char *key = json_string_value(json_object_get(made, "key"));
    assert_string_equal(fixture_ask(&f, "key.create", "{\"name\": \"me\"}", NULL)->code, "exists");
    fixture_restart(&f);
    core_requests(f.core, &r);
    assert_int_equal(r.api_keys(r.ctx), 1);
    assert_true(r.api_key_allowed(r.ctx, key, NULL));
    assert_false(r.api_key_allowed(r.ctx, "hp-0000", NULL));
    assert_null(strstr(fixture_ask(&f, "key.ls", "{}", NULL)->result, key));
    assert_string_equal(fixture_ask(&f, "key.rm", "{\"name\": \"me\"}", NULL)->code, "ok");
    assert_int_equal(r.api_keys(r.ctx), 0);
    json_decref(made);
    fixture_close(&f);
}

static void verbs_that_make_no_sense_are_answered_with_why(void **state)
{
    (void)state;
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

static void what_is_not_text_is_refused_and_cuts_are_between_characters(void **state)
{
    (void)state;
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

static void names_of_keys_are_whole_and_printable(void **state)
{
    (void)state;
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

static void a_sender_is_looked_at_before_its_message(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    char *node = malloc(200001);
    memset(node, '[', 200000);
    node[200000] = 0;
    fixture_join(&f, 11, fixture_key(1), "big", "00112233445566778899aabbccddeeff", node);
    assert_non_null(strstr(refusal(&f, 11), "65536 are the limit for this sender"));
    node[60000] = 0;
    fixture_join(&f, 11, fixture_key(1), "big", "00112233445566778899aabbccddeeff", node);
    assert_non_null(strstr(refusal(&f, 11), "not one of this cluster")); /* not: about its node */
    node[60000] = '[';
    fixture_join(&f, 10, fixture_key(0), "a0", "", node);
    assert_non_null(strstr(refusal(&f, 10), "at most 65536 bytes"));
    free(node);
    fixture_close(&f);
}

struct counted_work {
    struct work work;
    int ran, done, dropped;
};

static void counted_run(struct work *w)
{
    ((struct counted_work *)w)->ran++;
}
static void counted_done(struct work *w, bool dropped)
{
    *(dropped ? &((struct counted_work *)w)->dropped : &((struct counted_work *)w)->done) += 1;
}

static void work_comes_back_once_and_what_is_out_at_the_end_is_dropped(void **state)
{
    (void)state;
    struct fixture f;
    struct requests r;
    struct err e = {0};
    static struct counted_work w[CORE_MAX_WORK + 1];
    fixture_open(&f);
    f.holds_work = true;
    core_requests(f.core, &r);
    for (int i = 0; i <= CORE_MAX_WORK; i++)
        w[i] = (struct counted_work){.work = {.run = counted_run, .done = counted_done}};
    assert_int_equal(r.work(r.ctx, NULL, &w[0].work, &e), 0);
    assert_int_equal(r.work(r.ctx, (const struct model *)&w[1], &w[1].work, &e),
                     HP_ENOENT); /* a model that nobody has */
    fixture_settle(&f);
    assert_int_equal(w[0].ran, 0);
    fixture_work(&f);
    assert_int_equal(w[0].ran + w[0].done, 2);
    for (int i = 1; i <= CORE_MAX_WORK; i++)
        assert_int_equal(r.work(r.ctx, NULL, &w[i].work, &e), 0);
    assert_int_equal(r.work(r.ctx, NULL, &w[0].work, &e), HP_EBUSY);
    core_works_cancel(f.core);
    assert_true(atomic_load(&w[7].work.canceled));
    fixture_close(&f);
    for (int i = 1; i <= CORE_MAX_WORK; i++)
        assert_true(w[i].dropped == 1 && w[i].done == 0 && w[i].ran == 0);
    assert_int_equal(w[0].dropped, 0);
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

static void two_processes_with_one_key_are_told_apart(void **state)
{
    (void)state;
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

static void a_restarted_process_is_let_in_after_a_missed_heartbeat(void **state)
{
    (void)state;
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

static void a_data_address_has_the_joiners_own_key(void **state)
{
    (void)state;
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
    assert_int_equal(core_view(f.core).members, 0);
    assert_int_equal(key_decode(own.public_key, a.key, NULL), 0);
    data_address_print(&a, text);
    join_as(&f, 10, own.public_key, "box", 1, text);
    assert_string_equal(state_of(&f, "box"), "joining");
    fixture_close(&f);
}

static void agents_hear_whose_connections_to_take(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t key[KEY_BYTES];
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    assert_int_equal(fixture_last(&f, 10, MESSAGE_MEMBERS)->u.members.keys.size,
                     2 * KEY_BYTES); /* the admin's, and its own */
    fixture_agent(&f, 1, "k", 1e9);
    for (uint64_t peer = 10; peer < 12; peer++) {
        const struct message_members *m = &fixture_last(&f, peer, MESSAGE_MEMBERS)->u.members;
        assert_int_equal(m->keys.size, 3 * KEY_BYTES);
        assert_int_equal(key_decode(fixture_key(1), key, NULL), 0);
        assert_memory_equal(m->keys.data + 2 * KEY_BYTES, key, sizeof key);
    }
    for (int i = 0; i < 30; i++) {
        fixture_pass_ms(&f, 100);
        fixture_beat(&f, 10, fixture_key(0));
    }
    assert_string_equal(fixture_ask(&f, "node.rm", "{\"name\": \"a1\"}", NULL)->code, "ok");
    assert_int_equal(fixture_last(&f, 10, MESSAGE_MEMBERS)->u.members.keys.size, 2 * KEY_BYTES);
    fixture_close(&f);
}

static int count_records(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    (void)bytes, (void)size, (void)e;
    snprintf(ctx, 100, "%s", key);
    return 0;
}

static void a_record_that_cannot_be_read_keeps_nobody_from_starting(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *key, *bytes, *aside;
    } cases[] = {
        {"agent", "a7", "{\"key\": \"short\"}", "agent/a7"},
        {"agent", "a8", "not json", "agent/a8"},
        {"link", "a0", "{}", ""},
        {"link", "a0", "[{\"to\": \"a0\", \"bandwidth_bytes_per_s\": -1}]", ""},
        {"model", "00ff", "garbage", "model/00ff"},
        {"deployment", "d", "{\"model\": \"00ff\"}", "deployment/d"},
        {"meta", "boot", "\"x\"", "meta/boot"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct err e = {0};
        char aside[100] = "", left[100] = "";
        fixture_open(&f);
        fixture_agent(&f, 0, "k", 1e9);
        uint64_t boot = core_view(f.core).boot;
        struct store_change change = {cases[i].kind, cases[i].key, cases[i].bytes,
                                      strlen(cases[i].bytes)};
        assert_int_equal(store_apply(f.store, &change, 1, &e), 0);
        fixture_restart(&f);
        assert_int_equal(core_view(f.core).members, 1);
        assert_int_equal(core_view(f.core).deployments, 0);
        assert_true(core_view(f.core).boot > boot);
        assert_int_equal(store_each(f.store, "bad", count_records, aside, &e), 0);
        assert_string_equal(aside, cases[i].aside);
        if (strcmp(cases[i].kind, "deployment") == 0) {
            assert_int_equal(store_each(f.store, "deployment", count_records, left, &e), 0);
            assert_string_equal(left, "");
        }
        fixture_restart(&f);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_opens_the_door_once),
        cmocka_unit_test(a_token_expires),
        cmocka_unit_test(what_opens_nothing),
        cmocka_unit_test(an_unknown_key_may_say_nothing_but_join),
        cmocka_unit_test(another_protocol_version_is_refused_naming_both),
        cmocka_unit_test(silence_makes_suspect_and_then_lost_to_the_millisecond),
        cmocka_unit_test(work_comes_back_once_and_what_is_out_at_the_end_is_dropped),
        cmocka_unit_test(a_pause_of_the_coordinator_is_nobodys_silence),
        cmocka_unit_test(a_join_again_over_the_same_connection_changes_nothing),
        cmocka_unit_test(names_are_made_safe_and_unique_and_stay),
        cmocka_unit_test(an_agent_is_removed_only_when_it_is_gone),
        cmocka_unit_test(a_removed_agent_is_told_and_can_come_back_with_a_token),
        cmocka_unit_test(draining_survives_both_restarts),
        cmocka_unit_test(api_keys_are_kept_as_digests),
        cmocka_unit_test(what_is_not_text_is_refused_and_cuts_are_between_characters),
        cmocka_unit_test(names_of_keys_are_whole_and_printable),
        cmocka_unit_test(a_sender_is_looked_at_before_its_message),
        cmocka_unit_test(two_processes_with_one_key_are_told_apart),
        cmocka_unit_test(a_restarted_process_is_let_in_after_a_missed_heartbeat),
        cmocka_unit_test(a_data_address_has_the_joiners_own_key),
        cmocka_unit_test(agents_hear_whose_connections_to_take),
        cmocka_unit_test(a_record_that_cannot_be_read_keeps_nobody_from_starting),
        cmocka_unit_test(verbs_that_make_no_sense_are_answered_with_why),
    };
    return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
