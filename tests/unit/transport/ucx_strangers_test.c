/* Strangers at the ports of an endpoint that speaks UCX: not a byte of theirs reaches UCX, and no
 * member is kept out.
 * Waits: for half handshakes to end. */
#include <sys/resource.h>

#include "transport/data_int.h"
#include "transport/handshake.h"
#include "ucx_fixture.h"

TEST(bytes_of_strangers_reach_ucx_at_no_port)
{
    struct ucx_end a, b;
    uint16_t ports[16];
    end_open(&a);
    int n = own_ports(ports, 16);
    assert_true(n >= 2); /* the listener, and that of UCX's interface */
    end_open(&b);
    admit(&a, &b);
    struct data_link *link = link_up(&b, &a);
    uint64_t refused = refused_by(&a);
    for (int i = 0; i < n; i++) {
        int fd = stranger_connect(ports[i]);
        assert_true(fd >= 0);
        assert_int_equal(send(fd, deadly, sizeof deadly, MSG_NOSIGNAL), sizeof deadly);
        assert_true(is_turned_away(fd));
        close(fd);
    }
    assert_true(wait_refused(&a, refused + (uint64_t)n));
    assert_int_equal(refused_by(&a), refused + (uint64_t)n);
    post(&b, link, 100);
    frames_come(&a, &b, 2);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(silent_strangers_keep_no_member_out)
{
    enum { SILENT = 400 };
    static int fds[SILENT];
    struct ucx_end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    uint16_t port = address_of(&a).port;
    for (int i = 0; i < SILENT; i++)
        assert_true((fds[i] = stranger_connect(port)) >= 0);
    struct data_link *link = link_to(&b, &a);
    post(&b, link, 100);
    frames_come(&a, &b, 1);
    for (int i = 0; i < SILENT; i++) {
        assert_true(is_turned_away(fds[i])); /* after 2 s at the latest */
        close(fds[i]);
    }
    assert_true(wait_refused(&a, SILENT));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(ten_thousand_connections_disturb_no_member)
{
    enum { STRANGERS = 10000, EACH = 50 };
    struct ucx_end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    uint16_t port = address_of(&a).port;
    struct data_link *link = link_up(&b, &a);
    int frames = 1, downs = look_at(&b, &b.downs);
    for (int i = 0; i < STRANGERS; i++) {
        int fd = stranger_connect(port);
        if (fd >= 0 && i % 3 == 0)
            (void)!send(fd, deadly, (size_t)i % sizeof deadly, MSG_NOSIGNAL);
        if (fd >= 0)
            close(fd);
        if (i % EACH == 0) {
            post(&b, link, 100);
            frames_come(&a, &b, ++frames);
        }
    }
    assert_int_equal(look_at(&b, &b.downs), downs);
    assert_true(wait_refused(&a, STRANGERS * 9 / 10));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

/* Leads a handshake as initiator as far as it goes; the number of messages that were sent. */
static int handshake_try(int fd, const struct key_pair *own, const uint8_t responder[KEY_BYTES],
                         int messages)
{
    struct handshake h;
    uint8_t in[HANDSHAKE_MAX_BYTES];
    int sent = 0;
    assert_int_equal(
        handshake_initiate(&h, own, responder, HANDSHAKE_UCX, handshake_ciphers(), NULL), 0);
    while (sent < messages && handshake_state(&h) == HANDSHAKE_WRITE) {
        size_t size;
        const uint8_t *out = handshake_output(&h, &size);
        if (send(fd, out, size, MSG_NOSIGNAL) != (ssize_t)size)
            break;
        handshake_sent(&h);
        sent++;
        if (handshake_state(&h) == HANDSHAKE_READ &&
            (recv(fd, in, handshake_wants(&h), MSG_WAITALL) != (ssize_t)handshake_wants(&h) ||
             handshake_read(&h, in, handshake_wants(&h), NULL) < 0))
            break;
    }
    handshake_wipe(&h);
    return sent;
}

/* Our port of a connection. */
static uint16_t port_of(int fd)
{
    struct sockaddr_in sa;
    socklen_t size = sizeof sa;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &size), 0);
    return ntohs(sa.sin_port);
}

TEST(who_takes_the_place_of_one_that_hangs_up_is_not_taken_for_it)
{
    enum { SILENT = 31 };
    int silent[SILENT];
    struct ucx_end a, b;
    struct handshake h;
    size_t size;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    struct data_address to = address_of(&a);
    size_t sockets = count_own_sockets();
    for (int i = 0; i < SILENT; i++)
        assert_true((silent[i] = stranger_connect(to.port)) >= 0);
    assert_true(EVENTUALLY(count_own_sockets() == sockets + 2 * SILENT)); /* all have been taken */
    pthread_mutex_lock(
        &a.d->lock); /* the guard stands still where it asks whether a key is allowed */
    int member = stranger_connect(to.port);
    assert_int_equal(
        handshake_initiate(&h, &b.keys, a.key, HANDSHAKE_UCX, handshake_ciphers(), NULL), 0);
    assert_int_equal(send(member, handshake_output(&h, &size), HANDSHAKE_FIRST_BYTES, MSG_NOSIGNAL),
                     HANDSHAKE_FIRST_BYTES);
    assert_true(EVENTUALLY(unread_bytes(to.port, port_of(member)) == 0)); /* it asks */
    int newcomer = stranger_connect(
        to.port); /* one too many: it gets the place of the first, who hangs up meanwhile */
    for (int i = 0; i < SILENT; i++)
        slam(silent[i]);
    pthread_mutex_unlock(&a.d->lock);
    assert_int_equal(handshake_try(newcomer, &b.keys, a.key, 2), 2);
    handshake_wipe(&h);
    close(member);
    close(newcomer);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(no_port_stays_deaf_after_descriptors_ran_out)
{
    struct ucx_end a;
    uint16_t ports[16];
    int fds[16] = {0};
    struct rlimit all, few;
    end_open(&a);
    int n = own_ports(ports, 16);
    assert_in_range(n, 2, 16);
    for (int i = 0; i < n; i++)
        assert_true((fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
    getrlimit(RLIMIT_NOFILE, &all);
    few = all;
    few.rlim_cur = (rlim_t)fds[n - 1] + 1; /* so that accept finds none */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < n; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(ports[i]),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        assert_int_equal(connect(fds[i], (struct sockaddr *)&to, sizeof to), 0);
    }
    assert_true(wait_refused(&a, (uint64_t)n)); /* each port has noticed */
    setrlimit(RLIMIT_NOFILE, &all);
    for (int i = 0; i < n; i++) {
        struct timeval patience = {5, 0};
        setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        assert_int_equal(send(fds[i], deadly, sizeof deadly, MSG_NOSIGNAL), sizeof deadly);
        assert_true(is_turned_away(fds[i]));
        close(fds[i]);
    }
    data_close(&a.d);
}

TEST(half_handshakes_end_at_their_deadline)
{
    struct ucx_end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    struct data_address to = address_of(&a);
    int half = stranger_connect(to.port), silent_after = stranger_connect(to.port);
    assert_int_equal(send(half, deadly, 5, MSG_NOSIGNAL), 5);
    assert_int_equal(handshake_try(silent_after, &b.keys, a.key, 1),
                     1); /* a member that stops in the middle */
    assert_true(is_turned_away(half));
    assert_true(is_turned_away(silent_after));
    assert_true(wait_refused(&a, 2));
    close(half);
    close(silent_after);
    data_close(&a.d);
    data_close(&b.d);
}

TEST(keys_that_are_no_members_are_held_and_refused)
{
    struct ucx_end a, b;
    struct key_pair foreign;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    assert_int_equal(key_pair_create(&foreign, NULL), 0);
    struct data_address to = address_of(&a);
    int fd = stranger_connect(to.port);
    struct timespec started, ended;
    clock_gettime(CLOCK_MONOTONIC, &started);
    assert_int_equal(handshake_try(fd, &foreign, a.key, 2), 1);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_true((double)(ended.tv_sec - started.tv_sec) <= 3 * env_time_scale());
    assert_true(wait_refused(&a, 1));
    close(fd);
    data_close(&a.d);
    data_close(&b.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_strangers_reach_ucx_at_no_port),
        cmocka_unit_test(silent_strangers_keep_no_member_out),
        cmocka_unit_test(ten_thousand_connections_disturb_no_member),
        cmocka_unit_test(who_takes_the_place_of_one_that_hangs_up_is_not_taken_for_it),
        cmocka_unit_test(no_port_stays_deaf_after_descriptors_ran_out),
        cmocka_unit_test(half_handshakes_end_at_their_deadline),
        cmocka_unit_test(keys_that_are_no_members_are_held_and_refused),
    };
    return cmocka_run_group_tests_name("ucx_strangers", tests, NULL, NULL);
}
