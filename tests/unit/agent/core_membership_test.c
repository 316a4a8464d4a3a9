/* Joining, heartbeats, silence and broken links, as one core answers them. */
#include "tests/unit/agent/core_fixture.h"

/* Nothing fires while the process is stopped. */
static void stop_until(struct core_fixture *f, uint64_t now_ms)
{
    f->clock.now_ns = now_ms * ms;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
}

static void joins_and_beats_until_nobody_answers_then_joins_again(void **state)
{
    struct core_fixture *f = *state;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
    assert_string_equal(said(f, MESSAGE_JOIN)->u.join.token, "s");
    tick_to(f, 1900);
    assert_null(said(f, MESSAGE_JOIN));
    tick_to(f, 2000);
    assert_non_null(said(f, MESSAGE_JOIN));
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 3};
    tell(f, &m);
    assert_int_equal(said(f, MESSAGE_HEARTBEAT)->u.heartbeat.number, 1);
    assert_int_equal(did(f, AGENT_DO_TIMER, 0)->u.timer.at_ns, 2500 * ms);
    assert_string_equal(agent_core_view(f->core).name, "node-1");
    tick_to(f, 2500);
    assert_int_equal(said(f, MESSAGE_HEARTBEAT)->u.heartbeat.number, 2);
    tick_to(f, 6999);
    assert_null(said(f, MESSAGE_JOIN));
    tick_to(f, 7000); /* five seconds after the welcome */
    assert_string_equal(said(f, MESSAGE_JOIN)->u.join.token, ""); /* its key is known now */
    assert_string_equal(said(f, MESSAGE_JOIN)->u.join.name, "node-1");
    assert_false(agent_core_view(f->core).joined);
}

/* Both stopped, as a box that was frozen: the ack lies unread while the timer fires. */
static void an_agents_own_pause_is_not_the_coordinators_silence(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    ack(f);
    stop_until(f, 600000);
    assert_null(said(f, MESSAGE_JOIN));
    assert_non_null(said(f, MESSAGE_HEARTBEAT));
    ack(f);
    tick_to(f, 600000 + AGENT_ACK_LIMIT_MS - 1);
    assert_null(said(f, MESSAGE_JOIN));
    tick_to(f, 600000 + AGENT_ACK_LIMIT_MS);
    assert_non_null(said(f, MESSAGE_JOIN));
}

static void refusal_ends_a_newcomer_and_makes_a_member_join_again(void **state)
{
    static const struct {
        const char *code;
        bool member, quits, joins;
    } cases[] = {
        {"denied", false, true, false}, {"protocol", false, true, false},
        {"busy", false, false, false},  {"denied", true, false, true},
        {"link", true, false, true},    {"link", false, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct core_fixture *f = *state;
        struct message m = {.type = MESSAGE_REFUSED};
        m.u.refused = (struct message_refused){cases[i].code, "no", ""};
        if (cases[i].member)
            join(f);
        else
            feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
        f->clock.now_ns += 600 * ms;
        tell(f, &m);
        assert_int_equal(did(f, AGENT_DO_QUIT, 0) != NULL, cases[i].quits);
        assert_int_equal(said(f, MESSAGE_JOIN) != NULL, cases[i].joins);
        teardown(state);
        setup(state);
    }
}

static void unknown_request_is_refused_and_a_refusal_is_not_answered(void **state)
{
    struct core_fixture *f = *state;
    struct message ask = {.type = MESSAGE_ASK, .id = 12};
    ask.u.ask = (struct message_ask){"x", "{}", {0}};
    join(f);
    tell(f, &ask);
    assert_int_equal(said(f, MESSAGE_REFUSED)->id, 12);
    ask.id = 0;
    tell(f, &ask);
    assert_null(said(f, MESSAGE_REFUSED));
}

static void who_may_connect_is_what_the_coordinator_says(void **state)
{
    struct core_fixture *f = *state;
    static const uint8_t keys[2 * KEY_BYTES] = {1, 2, 3};
    struct message m = {.type = MESSAGE_MEMBERS, .u.members.keys = {keys, sizeof keys}};
    join(f);
    tell(f, &m);
    const struct agent_action *a = did(f, AGENT_DO_PEERS, 0);
    assert_int_equal(a->u.peers.keys.size, sizeof keys);
    assert_memory_equal(a->u.peers.keys.data, keys, sizeof keys);
    m.u.members.keys.size = 33;
    tell(f, &m);
    assert_null(did(f, AGENT_DO_PEERS, 0));
}

static void broken_link_ends_open_sequences_and_is_made_anew_for_the_next(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    uint64_t slot = make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    struct agent_event ev = {.kind = AGENT_EVENT_LINK_DOWN};
    ev.u.link_down.slot = slot;
    feed(f, &ev);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "link");
    open_sequence(f, 1, 6, 10, true);
    assert_int_equal(did(f, AGENT_DO_CONNECT, 0)->u.connect.next.size, 1);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_OPEN, 0));
}

static void broken_link_is_made_anew_though_nobody_asks_for_anything(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    uint64_t slot = make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    struct agent_event ev = {.kind = AGENT_EVENT_LINK_DOWN};
    ev.u.link_down.slot = slot;
    feed(f, &ev);
    f->clock.now_ns += (AGENT_ALIVE_MS + 1) * ms;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    assert_int_equal(did(f, AGENT_DO_CONNECT, 0)->u.connect.next.size, 1);
    const struct agent_action *a = did(f, AGENT_DO_POST, 0);
    assert_int_equal(a->u.post.header.kind, FRAME_ALIVE);
}

static void an_agent_that_was_removed_ends_when_its_join_is_denied(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    f->clock.now_ns += 600 * ms;
    struct message m = {.type = MESSAGE_REFUSED};
    m.u.refused = (struct message_refused){"denied", "agent \"x\" was removed", "bring a token"};
    tell(f, &m);
    assert_non_null(said(f, MESSAGE_JOIN));
    assert_null(did(f, AGENT_DO_QUIT, 0));
    tell(f, &m);
    const struct agent_action *quit = did(f, AGENT_DO_QUIT, 0);
    assert_non_null(quit);
    assert_string_equal(quit->u.quit.error.text,
                        "the coordinator refuses this agent: agent \"x\" was removed");
    assert_string_equal(quit->u.quit.error.hint, "bring a token");
}

static void restarted_coordinator_finds_the_stage_and_old_sequences_are_freed(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    f->clock.now_ns += 1000 * ms;
    struct message m = {.type = MESSAGE_REFUSED};
    m.u.refused = (struct message_refused){"link", "join first", ""};
    tell(f, &m);
    const struct message_join *j = &said(f, MESSAGE_JOIN)->u.join;
    assert_int_equal(j->held.count, 1);
    const struct message_held_stage *held = j->held.items;
    assert_string_equal(held->state, "ready");
    assert_int_equal(held->sequences, 1);
    struct message w = {.type = MESSAGE_WELCOME};
    w.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 4};
    tell(f, &w);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.sequence, 5);
    connect_stage(f, 1, 0, 2);
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
    begin(f, 1, UINT64_C(4) << 32, 10, true);
}

static void orphan_frees_its_sequences_after_a_while_and_keeps_its_stage(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    f->config.time_scale = 10; /* the batch that begins here does not become overdue */
    begin(f, 1, 5, 10, true);
    tick_to(f, 1000 + AGENT_ORPHAN_MS - 1);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    tick_to(f, 1000 + AGENT_ORPHAN_MS);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    assert_int_equal(agent_core_view(f->core).n_stages, 1);
}

static void probes_are_ordered_and_their_results_told(void **state)
{
    struct core_fixture *f = *state;
    static const uint8_t address[] = "there";
    struct message m = {.type = MESSAGE_LINK_PROBE, .id = 12};
    m.u.link_probe = (struct message_link_probe){.session = SESSION,
                                                 .role = "measure",
                                                 .peer = "b",
                                                 .data_address = {address, sizeof address}};
    tell(f, &m);
    const struct agent_action *a = did(f, AGENT_DO_PROBE, 0);
    assert_non_null(a);
    assert_int_equal(a->u.probe.id, 12);
    assert_int_equal(a->u.probe.request.session, SESSION);
    assert_string_equal(a->u.probe.request.role, "measure");
    assert_memory_equal(a->u.probe.request.data_address.data, address, sizeof address);
    struct err why = {0};
    err_set(&why, HP_ELINK, "the link broke");
    for (int failed = 0; failed < 2; failed++) {
        struct agent_event ev = {.kind = AGENT_EVENT_PROBED};
        ev.u.probed.id = 12;
        ev.u.probed.status = failed ? HP_ELINK : 0;
        ev.u.probed.error = failed ? &why : NULL;
        ev.u.probed.latency_s = failed ? 0 : 1e-4;
        ev.u.probed.bandwidth_bytes_per_s = failed ? 0 : 1e9;
        feed(f, &ev);
        const struct message *r = said(f, MESSAGE_LINK_RESULT);
        assert_non_null(r);
        assert_int_equal(r->id, 12);
        assert_string_equal(r->u.link_result.code, failed ? status_word(HP_ELINK) : "");
        assert_true(r->u.link_result.bandwidth_bytes_per_s == (failed ? 0 : 1e9));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(probes_are_ordered_and_their_results_told),
        CLAIM(joins_and_beats_until_nobody_answers_then_joins_again),
        CLAIM(an_agents_own_pause_is_not_the_coordinators_silence),
        CLAIM(refusal_ends_a_newcomer_and_makes_a_member_join_again),
        CLAIM(an_agent_that_was_removed_ends_when_its_join_is_denied),
        CLAIM(unknown_request_is_refused_and_a_refusal_is_not_answered),
        CLAIM(who_may_connect_is_what_the_coordinator_says),
        CLAIM(broken_link_ends_open_sequences_and_is_made_anew_for_the_next),
        CLAIM(broken_link_is_made_anew_though_nobody_asks_for_anything),
        CLAIM(restarted_coordinator_finds_the_stage_and_old_sequences_are_freed),
        CLAIM(orphan_frees_its_sequences_after_a_while_and_keeps_its_stage),
    };
    return cmocka_run_group_tests_name("core_membership", tests, NULL, NULL);
}
