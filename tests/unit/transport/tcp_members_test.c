/* Members of data_tcp: what they may not say, and how they come and go.
 * Waits: for peers that are silent. */
#include "tcp_fixture.h"

TEST(a_key_whose_news_is_late_is_admitted)
{
    struct end a, b;
    struct raw r;
    size_t size;
    struct data_link *link;
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    raw_keys(&r);
    admit_key(&b, r.key); /* somebody else */
    const uint8_t *address = data_address(b.d, &size);
    assert_int_equal(data_connect(a.d, address, size, &link, NULL), 0);
    size_t sockets = count_own_sockets();
    post(&a, link, SESSION, 10);
    assert_true(EVENTUALLY(count_own_sockets() == sockets + 2)); /* it has come, and is held */
    assert_int_equal(look_at(&b, &b.frames), 0);
    admit(&b, &a);
    assert_true(wait_for(&b, &b.frames, 1));
    assert_int_equal(look_at(&a, &a.downs), 0);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(a_key_that_leaves_the_set_loses_its_connection)
{
    struct couple c;
    couple_open(&c);
    couple_talks(&c);
    assert_int_equal(data_peers_allow(c.b.d, NULL, 0, NULL), 0);
    assert_true(wait_for(&c.a, &c.a.downs, 1));
    couple_close(&c);
}

TEST(a_member_that_lies_loses_its_connection_and_nobody_else_does)
{
    struct couple c;
    couple_open(&c);
    couple_talks(&c);
    for (size_t i = 0; i < RAW_LIES; i++) {
        struct raw r;
        raw_keys(&r);
        c.b.n_friends = 1; /* `a` */
        admit_key(&c.b, r.key);
        assert_true(prove(&r, &c.b));
        raw_lies[i].lie(&r);
        if (!raw_is_closed_within(r.fd, 2000))
            fail_msg("%s is tolerated", raw_lies[i].what);
        raw_close(&r);
        couple_talks(&c);
    }
    struct data_stats stats;
    data_stats(c.b.d, &stats);
    assert_int_equal(stats.buffers_bytes, 0); /* no buffer stayed with them */
    couple_close(&c);
}

TEST(a_member_that_announces_and_sends_nothing_is_dropped)
{
    struct couple c;
    struct raw r;
    uint8_t text[FRAME_HEADER_BYTES];
    couple_open(&c);
    raw_keys(&r);
    admit_key(&c.b, r.key);
    assert_true(prove(&r, &c.b));
    raw_hello(&r);
    raw_header(text, SESSION, 1 << 20);
    raw_say(&r, RECORD_ANNOUNCE, 1, text, sizeof text);
    assert_true(raw_hear_kind(&r, RECORD_GRANT));
    bool closed = false;
    for (int i = 0; i < 30 && !closed; i++) { /* its heart beats, so silence is not the reason */
        raw_say(&r, RECORD_BEAT, 0, NULL, 0);
        closed = raw_is_closed_within(r.fd, TCP_STALL_MS / 20);
    }
    assert_true(closed);
    raw_close(&r);
    couple_talks(&c);
    couple_close(&c);
}

TEST(a_session_bound_to_another_key_is_foreign)
{
    struct couple c;
    struct end other;
    uint8_t key[KEY_BYTES];
    couple_open(&c);
    open_end(&other, data_open_tcp, 0);
    key_decode(other.keys.public_key, key, NULL);
    assert_int_equal(data_allow(c.b.d, SESSION, key, NULL), 0);
    struct data_link *link = link_to(&other, &c.b);
    post(&c.a, c.link, SESSION, 100);
    post(&c.a, c.link, SESSION, 1 << 20);
    assert_true(wait_for(&c.a, &c.a.done, 2));
    post(&other, link, SESSION, 100);
    post(&other, link, SESSION, 1 << 20);
    assert_true(wait_for(&c.b, &c.b.frames, 2));
    struct data_stats stats;
    data_stats(c.b.d, &stats);
    assert_int_equal(stats.dropped_foreign, 2);
    assert_int_equal(stats.frames_received, 2);
    data_disconnect(&link);
    data_close(&other.d);
    couple_close(&c);
}

TEST(a_peer_that_falls_silent_is_noticed_within_three_seconds)
{
    struct end a;
    struct raw r;
    struct data_link *link;
    char text[DATA_ADDRESS_TEXT];
    uint8_t frame[FRAME_HEADER_BYTES];
    open_end(&a, data_open_tcp, 0);
    raw_keys(&r);
    admit_key(&a, r.key);
    assert_true(prove(&r, &a));
    raw_hello(&r);
    struct data_address where = {.kind = DATA_KIND_TCP, .host = "127.0.0.1", .port = 9};
    memcpy(where.key, r.key, KEY_BYTES);
    size_t n = data_address_print(&where, text);
    assert_true(raw_hear_kind(&r, RECORD_HELLO));
    data_allow(a.d, SESSION, NULL, NULL);
    raw_header(frame, SESSION, 0);
    raw_say(&r, RECORD_FRAME, 0, frame, sizeof frame);
    assert_true(wait_for(&a, &a.frames, 1)); /* so the greeting, which came before, is there, and
                                                what is posted goes over this connection */
    assert_int_equal(data_connect(a.d, (const uint8_t *)text, n, &link, NULL), 0);
    uint64_t started = env_now_ns(&env_real);
    post(&a, link, SESSION, 100);
    assert_true(wait_for(&a, &a.downs, 1));
    double took_s = (double)(env_now_ns(&env_real) - started) * 1e-9;
    assert_true(took_s > 1 && took_s < 3 * env_time_scale());
    assert_int_equal(a.why.code, HP_ETIMEOUT);
    assert_non_null(strstr(a.why.text, "nothing was heard"));
    raw_close(&r);
    data_disconnect(&link);
    data_close(&a.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_whose_news_is_late_is_admitted),
        cmocka_unit_test(a_key_that_leaves_the_set_loses_its_connection),
        cmocka_unit_test(a_member_that_lies_loses_its_connection_and_nobody_else_does),
        cmocka_unit_test(a_member_that_announces_and_sends_nothing_is_dropped),
        cmocka_unit_test(a_session_bound_to_another_key_is_foreign),
        cmocka_unit_test(a_peer_that_falls_silent_is_noticed_within_three_seconds),
    };
    return cmocka_run_group_tests_name("tcp_members", tests, NULL, NULL);
}
