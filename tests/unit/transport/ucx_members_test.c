/* Members that speak UCX: they come, go, lie about who they are, and say nothing.
 * Waits: for peers that are silent. */
#include <poll.h>
#include <stdio.h>

#include "transport/ucx_guard_int.h"
#include "ucx_fixture.h"

TEST(news_of_a_member_may_come_after_the_member)
{
    struct ucx_end a, b;
    end_open(&a);
    end_open(&b);
    struct data_link *link = link_to(&b, &a);
    size_t sockets = count_own_sockets();
    post(&b, link, 100);
    assert_true(EVENTUALLY(count_own_sockets() == sockets + 2)); /* it has come, and is held */
    assert_int_equal(look_at(&a, &a.frames), 0);
    admit(&a, &b);
    assert_true(wait_for(&a, &a.frames, 1));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(a_key_that_leaves_the_set_loses_its_connection)
{
    struct ucx_end a, b, c;
    end_open(&a);
    end_open(&b);
    end_open(&c);
    uint8_t both[2][KEY_BYTES];
    memcpy(both[0], b.key, KEY_BYTES);
    memcpy(both[1], c.key, KEY_BYTES);
    assert_int_equal(data_peers_allow(a.d, both, 2, NULL), 0);
    struct data_link *from_b = link_to(&b, &a), *from_c = link_to(&c, &a);
    post(&b, from_b, 100);
    post(&c, from_c, 200000);
    assert_true(wait_for(&a, &a.frames, 2));
    admit(&a, &c); /* and b no more */
    assert_true(wait_for(&b, &b.downs, 1));
    assert_int_equal(b.why.code, HP_ELINK);
    post(&b, from_b, 100);
    assert_true(wait_for(&b, &b.failed, 1));
    post(&c, from_c, 200000);
    assert_true(wait_for(&a, &a.frames, 3));
    assert_int_equal(look_at(&c, &c.downs), 0);
    data_disconnect(&from_b);
    struct data_link *again = link_to(&b, &a);
    post(&b, again, 100);
    assert_true(wait_for(&b, &b.downs, 2));
    assert_int_equal(look_at(&a, &a.frames), 3);
    data_disconnect(&again);
    data_disconnect(&from_c);
    data_close(&a.d);
    data_close(&b.d);
    data_close(&c.d);
}

TEST(a_link_that_cannot_be_made_names_host_port_and_reason)
{
    struct ucx_end a, b;
    end_open(&a);
    end_open(&b);
    struct data_address nobody = address_of(&a);
    data_close(&a.d);
    struct data_link *link = link_at(&b, &nobody);
    char port[16];
    snprintf(port, sizeof port, "port %u", nobody.port);
    post(&b, link, 100);
    assert_true(wait_for(&b, &b.downs, 1));
    assert_non_null(strstr(b.why.text, "127.0.0.1"));
    assert_non_null(strstr(b.why.text, port));
    assert_non_null(strstr(b.why.text, "refused"));
    assert_string_not_equal(b.why.hint, "");
    assert_true(wait_for(&b, &b.failed, 1));
    data_disconnect(&link);
    data_close(&b.d);
}

TEST(an_address_with_another_key_is_not_connected)
{
    struct ucx_end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    struct data_address wrong = address_of(&a);
    memcpy(wrong.key, b.key, KEY_BYTES);
    struct data_link *link = link_at(&b, &wrong), *right = link_to(&b, &a);
    post(&b, link, 100);
    assert_true(wait_for(&b, &b.downs, 1));
    post(&b, right, 100);
    assert_true(wait_for(&a, &a.frames, 1));
    data_disconnect(&link);
    data_disconnect(&right);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(a_peer_that_says_nothing_is_given_up_after_two_seconds)
{
    struct ucx_end a;
    end_open(&a);
    struct data_address nobody = address_of(&a);
    int fd = silent_listener(&nobody);
    struct data_link *link = link_at(&a, &nobody);
    post(&a, link, 100);
    post(&a, link, 100000);
    assert_true(wait_for(&a, &a.failed, 2));
    assert_true(wait_for(&a, &a.downs, 1));
    assert_non_null(strstr(a.why.text, "within 2 s"));
    data_disconnect(&link);
    data_close(&a.d);
    close(fd);
}

TEST(closing_does_not_wait_for_a_peer_that_says_nothing)
{
    struct ucx_end a;
    end_open(&a);
    struct data_address nobody = address_of(&a);
    int fd = silent_listener(&nobody);
    struct data_link *link = link_at(&a, &nobody);
    post(&a, link, 100);
    post(&a, link, 100000);
    struct pollfd came = {fd, POLLIN, 0};
    assert_int_equal(poll(&came, 1, 20000), 1);
    data_disconnect(&link);
    data_close(&a.d);
    assert_int_equal(a.done, 2);
    assert_int_equal(a.failed, 2);
    close(fd);
}

static bool all_are_allowed(void *ctx, const uint8_t *key)
{
    (void)ctx, (void)key;
    return true;
}

/* Plays a member's guard on the next connection, up to the point where UCX would get it. */
static int play_guard(int listener, const struct ucx_end *member, const struct guard_address *at)
{
    struct guard_talk talk;
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(guard_talk_respond(&talk, fd, &member->keys, NULL), 0);
    enum guard_turn turn = GUARD_WANTS_READ;
    while (turn != GUARD_DONE && turn != GUARD_GIVE && turn != GUARD_REFUSED) {
        turn = guard_talk_go(&talk, all_are_allowed, NULL);
        if (turn == GUARD_ANSWER)
            guard_talk_tell(&talk, at, 1);
        else if (turn == GUARD_WANTS_READ)
            assert_int_equal(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20000), 1);
    }
    guard_talk_wipe(&talk);
    assert_true(turn == GUARD_DONE || turn == GUARD_GIVE);
    return fd;
}

TEST(a_member_whose_ucx_says_nothing_is_given_up)
{
    struct ucx_end a, dumb;
    end_open(&a);
    end_prepare(&dumb);
    struct data_address at = address_of(&a);
    memcpy(at.key, dumb.key, KEY_BYTES);
    int listener = silent_listener(&at);
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(at.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct guard_address own;
    assert_true(guard_address_of((struct sockaddr *)&sa, sizeof sa, &own));
    struct data_link *link = link_at(&a, &at);
    post(&a, link, 100);
    close(play_guard(listener, &dumb, &own));
    int given = play_guard(listener, &dumb, &own);
    assert_true(wait_for(&a, &a.failed, 1));
    assert_true(wait_for(&a, &a.downs, 1));
    assert_non_null(strstr(a.why.text, "has not answered"));
    close(given);
    close(listener);
    data_disconnect(&link);
    data_close(&a.d);
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

TEST(members_that_come_and_go_leave_nothing_behind)
{
    enum { TURNS = 25 };
    struct ucx_end a, b;
    end_open(&a);
    int before = 0;
    for (int i = 0; i < TURNS; i++) {
        end_open(&b);
        admit(&a, &b);
        struct data_link *link = link_to(&b, &a);
        post(&b, link, i % 2 ? 200000 : 100);
        assert_true(wait_for(&a, &a.frames, i + 1));
        if (i % 3)
            data_disconnect(&link);
        data_close(&b.d);
        if (i == 4)
            before = open_descriptors();
    }
    assert_true(EVENTUALLY(open_descriptors() <= before + 4)); /* `a` notices in its time */
    data_close(&a.d);
}

TEST(what_went_to_a_member_over_tcp_is_counted_by_its_key)
{
    struct ucx_end a, b;
    struct data_loss row = {0};
    end_open(&a);
    end_open(&b);
    admit(&b, &a);
    struct data_link *link = link_to(&a, &b);
    for (int i = 0; i < 2 * DATA_LOSS_NEWS_SEGMENTS; i++) {
        post(&a, link, 100);
        assert_true(wait_for(&b, &b.frames, i + 1));
    }
    assert_int_equal(data_losses(a.d, &row, 1), 1);
    assert_memory_equal(row.peer, b.key, KEY_BYTES);
    assert_true(row.segments >= DATA_LOSS_NEWS_SEGMENTS && row.lost == 0);
    assert_int_equal(data_losses(a.d, &row, 1), 0);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(news_of_a_member_may_come_after_the_member),
        cmocka_unit_test(a_key_that_leaves_the_set_loses_its_connection),
        cmocka_unit_test(a_link_that_cannot_be_made_names_host_port_and_reason),
        cmocka_unit_test(an_address_with_another_key_is_not_connected),
        cmocka_unit_test(a_peer_that_says_nothing_is_given_up_after_two_seconds),
        cmocka_unit_test(closing_does_not_wait_for_a_peer_that_says_nothing),
        cmocka_unit_test(a_member_whose_ucx_says_nothing_is_given_up),
        cmocka_unit_test(what_went_to_a_member_over_tcp_is_counted_by_its_key),
        cmocka_unit_test(members_that_come_and_go_leave_nothing_behind),
    };
    return cmocka_run_group_tests_name("ucx_members", tests, NULL, NULL);
}
