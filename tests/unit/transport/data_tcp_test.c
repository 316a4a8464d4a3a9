/* What data_tcp keeps up: one connection a peer, frames that were sent, its keys. */
#include "tcp_fixture.h"

TEST(two_that_dial_each_other_lose_nothing_and_keep_one_connection)
{
    enum { TURNS = 40 };
    size_t before = count_own_sockets();
    for (int i = 0; i < TURNS; i++) {
        struct end a, b;
        open_end(&a, data_open_tcp, 0);
        open_end(&b, data_open_tcp, 0);
        data_allow(a.d, SESSION, NULL, NULL);
        data_allow(b.d, SESSION, NULL, NULL);
        struct data_link *there = link_to(&a, &b), *back = link_to(&b, &a);
        for (int k = 0; k < 3; k++) {
            post(&a, there, SESSION, k == 1 ? 300000 : 100);
            post(&b, back, SESSION, k == 2 ? 300000 : 100);
        }
        assert_true(wait_for(&a, &a.frames, 3) && wait_for(&b, &b.frames, 3));
        assert_true(wait_for(&a, &a.done, 3) && wait_for(&b, &b.done, 3));
        assert_int_equal(look_at(&a, &a.failed) + look_at(&b, &b.failed) + look_at(&a, &a.downs) +
                             look_at(&b, &b.downs),
                         0);
        /* two listeners, both ends of one connection */
        assert_true(EVENTUALLY(count_own_sockets() == before + 4));
        data_disconnect(&there);
        data_disconnect(&back);
        data_close(&a.d);
        data_close(&b.d);
    }
}

TEST(a_peer_that_was_started_anew_is_found_again)
{
    struct end a, b;
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    post(&a, link, SESSION, 100);
    assert_true(wait_for(&b, &b.frames, 1));
    struct data_address where = address_of(&b);
    data_close(&b.d);
    assert_true(wait_for(&a, &a.downs, 1));
    data_disconnect(&link);
    struct data_config c = {
        .port = where.port, .keys = b.keys, .callbacks = {&b, on_frame, on_down}};
    struct err e = {0};
    if (data_open_tcp(&c, &b.d, &e) < 0)
        fail_msg("%s", e.text);
    data_allow(b.d, SESSION, NULL, NULL);
    b.n_friends = 0;
    link = link_to(&a, &b);
    post(&a, link, SESSION, 100);
    assert_true(wait_for(&b, &b.frames, 2));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(what_is_done_arrives_though_its_sender_closes)
{
    for (int i = 0; i < 10; i++) {
        struct end a, b;
        open_end(&a, data_open_tcp, 0);
        open_end(&b, data_open_tcp, 0);
        data_allow(b.d, SESSION, NULL, NULL);
        struct data_link *link = link_to(&a, &b);
        for (int k = 0; k < 4; k++)
            post(&a, link, SESSION, 3 << 20);
        assert_true(wait_for(&a, &a.done, 4));
        data_disconnect(&link);
        data_close(&a.d);
        assert_true(wait_for(&b, &b.frames, 4));
        data_close(&b.d);
    }
}

TEST(keys_are_replaced_every_so_many_records)
{
    struct tcp_seal out, in;
    uint8_t key[32] = {1}, head[TCP_HEAD_BYTES] = {0}, text[32] = "a record",
            sealed[32 + SEAL_BYTES], opened[32];
    static const enum handshake_cipher ciphers[] = {HANDSHAKE_AES256_GCM,
                                                    HANDSHAKE_CHACHA20_POLY1305};
    for (int i = 0; i < 2; i++) {
        tcp_seal_init(&out, ciphers[i], key, true, NULL);
        tcp_seal_init(&in, ciphers[i], key, false, NULL);
        out.number = in.number = SEAL_RECORDS_PER_KEY - 2;
        for (int k = 0; k < 4; k++) {
            assert_true(tcp_seal_close(&out, head, sizeof head, text, 32, NULL, 0, sealed));
            assert_true(tcp_seal_open(&in, head, sizeof head, sealed, 32, opened));
            assert_memory_equal(opened, text, 32);
        }
        assert_memory_not_equal(out.key, key, 32);
        assert_true(tcp_seal_close(&out, head, sizeof head, text, 32, NULL, 0, sealed));
        head[0] = 1; /* the clear head counts */
        assert_false(tcp_seal_open(&in, head, sizeof head, sealed, 32, opened));
        head[0] = 0;
        tcp_seal_fini(&out);
        tcp_seal_fini(&in);
    }
}

TEST(what_was_sent_to_a_peer_is_counted_and_told_as_news)
{
    struct end a, b;
    struct data_loss row = {0};
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    for (int i = 0; i < 150; i++) {
        post(&a, link, SESSION, 100);
        assert_true(wait_for(&b, &b.frames, i + 1));
    }
    assert_true(EVENTUALLY(data_losses(a.d, &row, 1) == 1)); /* it is counted once a second */
    assert_memory_equal(row.peer, address_of(&b).key, KEY_BYTES);
    assert_true(row.segments >= DATA_LOSS_NEWS_SEGMENTS && row.lost == 0);
    assert_int_equal(data_losses(a.d, &row, 1), 0);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(what_cannot_be_opened_says_why)
{
    struct end a;
    struct data_endpoint *d = NULL;
    struct data_link *link;
    struct err e = {0};
    open_end(&a, data_open_tcp, 0);
    struct data_config taken = {.port = address_of(&a).port, .keys = a.keys},
                       name = {.host = "localhost", .keys = a.keys}, keyless = {.port = 0};
    assert_int_equal(data_open_tcp(&taken, &d, &e), HP_EBUSY);
    assert_non_null(strstr(e.hint, "--data-port"));
    assert_int_equal(data_open_tcp(&name, &d, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "numeric"));
    assert_int_equal(data_open_tcp(&keyless, &d, &e), HP_EINVAL);
    struct data_address other = address_of(&a);
    char text[DATA_ADDRESS_TEXT];
    other.kind = DATA_KIND_UCX;
    size_t n = data_address_print(&other, text);
    assert_int_equal(data_connect(a.d, (const uint8_t *)text, n, &link, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "UCX"));
    data_close(&a.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_dial_each_other_lose_nothing_and_keep_one_connection),
        cmocka_unit_test(a_peer_that_was_started_anew_is_found_again),
        cmocka_unit_test(what_is_done_arrives_though_its_sender_closes),
        cmocka_unit_test(keys_are_replaced_every_so_many_records),
        cmocka_unit_test(what_was_sent_to_a_peer_is_counted_and_told_as_news),
        cmocka_unit_test(what_cannot_be_opened_says_why),
    };
    return cmocka_run_group_tests_name("data_tcp", tests, NULL, NULL);
}
