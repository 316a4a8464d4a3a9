#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "transport/handshake.h"

enum { BOTH = HANDSHAKE_AES256_GCM | HANDSHAKE_CHACHA20_POLY1305 };

struct handshake_pair {
    struct key_pair client_keys, server_keys;
    uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
    struct handshake client, server;
};

static void begin(struct handshake_pair *p)
{
    memset(p, 0, sizeof *p);
    assert_int_equal(key_pair_create(&p->client_keys, NULL), 0);
    assert_int_equal(key_pair_create(&p->server_keys, NULL), 0);
    assert_int_equal(key_decode(p->client_keys.public_key, p->client_key, NULL), 0);
    assert_int_equal(key_decode(p->server_keys.public_key, p->server_key, NULL), 0);
    assert_int_equal(
        handshake_initiate(&p->client, &p->client_keys, p->server_key, HANDSHAKE_TCP, BOTH, NULL),
        0);
    assert_int_equal(handshake_respond(&p->server, &p->server_keys, HANDSHAKE_TCP, BOTH, NULL), 0);
}

/* Takes what `from` has to send, up to `size` bytes. */
static size_t output(struct handshake *from, uint8_t bytes[HANDSHAKE_MAX_BYTES])
{
    size_t n;
    const uint8_t *m = handshake_output(from, &n);
    memcpy(bytes, m, n);
    handshake_sent(from);
    return n;
}

static int pass(struct handshake *from, struct handshake *to, struct err *e)
{
    uint8_t bytes[HANDSHAKE_MAX_BYTES];
    size_t n = output(from, bytes);
    return handshake_read(to, bytes, n, e);
}

static void finish(struct handshake_pair *p)
{
    assert_int_equal(pass(&p->client, &p->server, NULL), 0);
    assert_int_equal(handshake_admit(&p->server, NULL), 0);
    assert_int_equal(pass(&p->server, &p->client, NULL), 0);
    assert_int_equal(pass(&p->client, &p->server, NULL), 0);
}

TEST(both_ends_know_each_other_and_share_two_keys)
{
    struct handshake_pair p;
    struct handshake_result c, s;
    begin(&p);
    finish(&p);
    assert_int_equal(handshake_state(&p.client), HANDSHAKE_DONE);
    assert_int_equal(handshake_state(&p.server), HANDSHAKE_DONE);
    handshake_result(&p.client, &c);
    handshake_result(&p.server, &s);
    assert_memory_equal(c.peer, p.server_key, KEY_BYTES);
    assert_memory_equal(s.peer, p.client_key, KEY_BYTES);
    assert_memory_equal(c.send_key, s.receive_key, 32);
    assert_memory_equal(c.receive_key, s.send_key, 32);
    assert_memory_not_equal(c.send_key, c.receive_key, 32);
    assert_int_equal(c.cipher, HANDSHAKE_AES256_GCM);
    assert_int_equal(s.cipher, HANDSHAKE_AES256_GCM);
}

TEST(two_handshakes_of_the_same_keys_share_nothing)
{
    struct handshake_pair p;
    struct handshake_result first, second;
    begin(&p);
    finish(&p);
    handshake_result(&p.client, &first);
    handshake_initiate(&p.client, &p.client_keys, p.server_key, HANDSHAKE_TCP, BOTH, NULL);
    handshake_respond(&p.server, &p.server_keys, HANDSHAKE_TCP, BOTH, NULL);
    finish(&p);
    handshake_result(&p.client, &second);
    assert_memory_not_equal(first.send_key, second.send_key, 32);
    assert_memory_not_equal(first.receive_key, second.receive_key, 32);
}

TEST(the_cipher_is_one_that_both_have)
{
    static const struct {
        uint8_t client, server;
        int cipher; /* 0: none */
    } cases[] = {
        {BOTH, BOTH, HANDSHAKE_AES256_GCM},
        {BOTH, HANDSHAKE_CHACHA20_POLY1305, HANDSHAKE_CHACHA20_POLY1305},
        {HANDSHAKE_CHACHA20_POLY1305, BOTH, HANDSHAKE_CHACHA20_POLY1305},
        {HANDSHAKE_AES256_GCM, BOTH, HANDSHAKE_AES256_GCM},
        {HANDSHAKE_AES256_GCM, HANDSHAKE_CHACHA20_POLY1305, 0},
        {0, BOTH, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct handshake_pair p;
        struct handshake_result r;
        struct err e = {0};
        begin(&p);
        handshake_initiate(&p.client, &p.client_keys, p.server_key, HANDSHAKE_TCP, cases[i].client,
                           NULL);
        handshake_respond(&p.server, &p.server_keys, HANDSHAKE_TCP, cases[i].server, NULL);
        if (cases[i].cipher == 0) {
            assert_int_equal(pass(&p.client, &p.server, &e), HP_EPROTO);
            assert_non_null(strstr(e.text, "cipher"));
            continue;
        }
        finish(&p);
        handshake_result(&p.server, &r);
        assert_int_equal(r.cipher, cases[i].cipher);
    }
}

TEST(a_responder_with_another_key_is_refused_and_learns_no_key)
{
    struct handshake_pair p;
    struct err e = {0};
    struct key_pair other;
    begin(&p);
    key_pair_create(&other, NULL);
    handshake_respond(&p.server, &other, HANDSHAKE_TCP, BOTH, NULL);
    assert_int_equal(pass(&p.client, &p.server, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "does not know this endpoint's key"));
    assert_int_equal(handshake_state(&p.server), HANDSHAKE_FAILED);
}

TEST(an_initiator_without_the_secret_of_its_key_is_refused)
{
    struct handshake_pair p;
    struct err e = {0};
    struct key_pair other, liar;
    begin(&p);
    key_pair_create(&other, NULL);
    liar = p.client_keys;
    memcpy(liar.secret_key, other.secret_key, KEY_TEXT);
    handshake_initiate(&p.client, &liar, p.server_key, HANDSHAKE_TCP, BOTH, NULL);
    assert_int_equal(pass(&p.client, &p.server, NULL), 0);
    assert_int_equal(handshake_state(&p.server), HANDSHAKE_ASK);
    assert_memory_equal(handshake_peer(&p.server), p.client_key, KEY_BYTES);
    assert_int_equal(handshake_admit(&p.server, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "does not hold the key that it names"));
}

TEST(a_responder_without_the_secret_of_its_key_is_refused)
{
    struct handshake_pair p;
    struct err e = {0};
    uint8_t first[HANDSHAKE_MAX_BYTES],
        made_up[HANDSHAKE_SECOND_BYTES] = {HANDSHAKE_VERSION, HANDSHAKE_AES256_GCM, 0, 0, 9};
    begin(&p);
    output(&p.client, first);
    assert_int_equal(handshake_read(&p.client, made_up, sizeof made_up, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "does not hold the key that its address names"));
}

TEST(a_recorded_handshake_opens_nothing)
{
    struct handshake_pair p;
    struct err e = {0};
    uint8_t first[HANDSHAKE_MAX_BYTES], second[HANDSHAKE_MAX_BYTES], third[HANDSHAKE_MAX_BYTES];
    begin(&p);
    size_t n1 = output(&p.client, first);
    handshake_read(&p.server, first, n1, NULL);
    handshake_admit(&p.server, NULL);
    size_t n2 = output(&p.server, second);
    handshake_read(&p.client, second, n2, NULL);
    size_t n3 = output(&p.client, third);
    /* to the responder: the first message is taken, the third does not fit */
    handshake_respond(&p.server, &p.server_keys, HANDSHAKE_TCP, BOTH, NULL);
    assert_int_equal(handshake_read(&p.server, first, n1, NULL), 0);
    assert_int_equal(handshake_admit(&p.server, NULL), 0);
    output(&p.server, second);
    assert_int_equal(handshake_read(&p.server, third, n3, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "confirm"));
    /* to the initiator: the second does not fit its new first */
    uint8_t recorded[HANDSHAKE_MAX_BYTES];
    memcpy(recorded, second, n2);
    handshake_initiate(&p.client, &p.client_keys, p.server_key, HANDSHAKE_TCP, BOTH, NULL);
    output(&p.client, first);
    assert_int_equal(handshake_read(&p.client, recorded, n2, &e), HP_EDENIED);
}

TEST(a_message_sent_back_or_out_of_turn_is_refused)
{
    struct handshake_pair p, q;
    struct err e = {0};
    uint8_t first[HANDSHAKE_MAX_BYTES], second[HANDSHAKE_MAX_BYTES];
    begin(&p);
    size_t n1 = output(&p.client, first);
    assert_int_equal(handshake_read(&p.client, first, HANDSHAKE_SECOND_BYTES, &e),
                     HP_EDENIED); /* reflected to the initiator */
    begin(&p);
    n1 = output(&p.client, first);
    handshake_read(&p.server, first, n1, NULL);
    handshake_admit(&p.server, NULL);
    output(&p.server, second);
    assert_int_equal(handshake_read(&p.server, second, HANDSHAKE_THIRD_BYTES, &e),
                     HP_EDENIED); /* reflected to the responder */
    /* swapped between two handshakes of the same two */
    begin(&p);
    q = p;
    handshake_initiate(&q.client, &q.client_keys, q.server_key, HANDSHAKE_TCP, BOTH, NULL);
    handshake_respond(&q.server, &q.server_keys, HANDSHAKE_TCP, BOTH, NULL);
    pass(&p.client, &p.server, NULL);
    pass(&q.client, &q.server, NULL);
    handshake_admit(&p.server, NULL);
    handshake_admit(&q.server, NULL);
    assert_int_equal(pass(&p.server, &q.client, &e), HP_EDENIED);
}

TEST(a_process_does_not_admit_its_own_key)
{
    struct handshake_pair p;
    struct err e = {0};
    begin(&p);
    handshake_initiate(&p.client, &p.server_keys, p.server_key, HANDSHAKE_TCP, BOTH, NULL);
    assert_int_equal(pass(&p.client, &p.server, NULL), 0);
    assert_int_equal(handshake_admit(&p.server, &e), HP_EDENIED);
    assert_non_null(strstr(e.text, "own key"));
}

TEST(another_purpose_version_or_size_is_named)
{
    struct handshake_pair p;
    struct err e = {0};
    uint8_t first[HANDSHAKE_MAX_BYTES];
    begin(&p);
    handshake_respond(&p.server, &p.server_keys, HANDSHAKE_UCX, BOTH, NULL);
    assert_int_equal(pass(&p.client, &p.server, &e), HP_EPROTO);
    assert_non_null(strstr(e.text, "another transport"));
    begin(&p);
    size_t n = output(&p.client, first);
    first[0] = HANDSHAKE_VERSION + 1;
    assert_int_equal(handshake_read(&p.server, first, n, &e), HP_EPROTO);
    assert_non_null(strstr(e.text, "version 2"));
    static const size_t sizes[] = {0, 1, HANDSHAKE_FIRST_BYTES - 1, HANDSHAKE_FIRST_BYTES + 1,
                                   HANDSHAKE_SECOND_BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t bytes[HANDSHAKE_FIRST_BYTES + 1] = {HANDSHAKE_VERSION};
        begin(&p);
        assert_int_equal(handshake_read(&p.server, bytes, sizes[i], &e), HP_EPROTO);
        assert_int_equal(handshake_state(&p.server), HANDSHAKE_FAILED);
    }
}

/* Runs a handshake in which bit `bit` of message `which` is turned over; true when either end
 * refuses. */
static bool refused_with_bit(struct handshake_pair *p, int which, size_t bit)
{
    struct handshake client = p->client, server = p->server;
    struct handshake *from = &client, *to = &server;
    for (int message = 0; message < 3; message++) {
        uint8_t bytes[HANDSHAKE_MAX_BYTES];
        size_t n = output(from, bytes);
        if (message == which)
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (handshake_read(to, bytes, n, NULL) < 0 ||
            (handshake_state(to) == HANDSHAKE_ASK && handshake_admit(to, NULL) < 0))
            return true;
        struct handshake *swap = from;
        from = to;
        to = swap;
    }
    return false;
}

TEST(every_bit_of_every_message_counts)
{
    static const size_t sizes[] = {HANDSHAKE_FIRST_BYTES, HANDSHAKE_SECOND_BYTES,
                                   HANDSHAKE_THIRD_BYTES};
    struct handshake_pair p;
    begin(&p);
    for (int which = 0; which < 3; which++)
        for (size_t bit = 0; bit < 8 * sizes[which]; bit++)
            if (!refused_with_bit(&p, which, bit))
                fail_msg("bit %zu of message %d may be changed", bit, which + 1);
}

TEST(points_of_low_order_are_no_keys)
{
    static const uint8_t low[][KEY_BYTES] = {
        {0}, {1}, {0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3,
                   0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32,
                   0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00}};
    struct handshake_pair p;
    for (size_t i = 0; i < sizeof low / sizeof *low; i++) {
        begin(&p);
        assert_int_equal(
            handshake_initiate(&p.client, &p.client_keys, low[i], HANDSHAKE_TCP, BOTH, NULL),
            HP_EINVAL);
    }
}

TEST(what_is_no_key_pair_cannot_begin)
{
    struct handshake h;
    struct key_pair none = {{0}, {0}};
    assert_int_equal(handshake_respond(&h, &none, HANDSHAKE_TCP, BOTH, NULL), HP_EINVAL);
    assert_int_equal(
        handshake_initiate(&h, &none, (const uint8_t[KEY_BYTES]){9}, HANDSHAKE_TCP, BOTH, NULL),
        HP_EINVAL);
    assert_int_equal(handshake_wants(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_know_each_other_and_share_two_keys),
        cmocka_unit_test(two_handshakes_of_the_same_keys_share_nothing),
        cmocka_unit_test(the_cipher_is_one_that_both_have),
        cmocka_unit_test(a_responder_with_another_key_is_refused_and_learns_no_key),
        cmocka_unit_test(an_initiator_without_the_secret_of_its_key_is_refused),
        cmocka_unit_test(a_responder_without_the_secret_of_its_key_is_refused),
        cmocka_unit_test(a_recorded_handshake_opens_nothing),
        cmocka_unit_test(a_message_sent_back_or_out_of_turn_is_refused),
        cmocka_unit_test(a_process_does_not_admit_its_own_key),
        cmocka_unit_test(another_purpose_version_or_size_is_named),
        cmocka_unit_test(every_bit_of_every_message_counts),
        cmocka_unit_test(points_of_low_order_are_no_keys),
        cmocka_unit_test(what_is_no_key_pair_cannot_begin),
    };
    return cmocka_run_group_tests_name("handshake", tests, NULL, NULL);
}
