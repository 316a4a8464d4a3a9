/* The guard and UCX's own calls: ports, what a send says, a UCX that goes around it. */
#include <stdio.h>
#include <ucp/api/ucp.h>

#include "transport/ucx_guard_int.h"
#include "ucx_fixture.h"

TEST(a_fixed_port_is_used_and_the_next_one_and_both_again_after_a_restart)
{
    struct ucx_end a, b;
    end_open(&a);
    uint16_t port = 0, ports[16];
    for (int i = 0; i < 50 && !port; i++) { /* two ports that are free now */
        uint16_t candidate = (uint16_t)(20000 + (getpid() * 7 + i * 2) % 10000);
        int fds[2] = {stranger_connect(candidate), stranger_connect((uint16_t)(candidate + 1))};
        port = fds[0] < 0 && fds[1] < 0 ? candidate : 0;
        for (int k = 0; k < 2; k++)
            if (fds[k] >= 0)
                close(fds[k]);
    }
    for (int turn = 0; turn < 2; turn++) {
        struct err e = {0};
        end_prepare(&b);
        struct data_config c = {.network = "lo",
                                .host = "127.0.0.1",
                                .port = port,
                                .keys = b.keys,
                                .callbacks = {&b, on_frame, on_down}};
        if (data_open_ucx(&c, &b.d, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(data_allow(b.d, SESSION, NULL, NULL), 0);
        assert_int_equal(address_of(&b).port, port);
        int n = own_ports(ports, 16), found = 0;
        for (int i = 0; i < n; i++)
            found += ports[i] == port || ports[i] == port + 1;
        assert_int_equal(found, 2);
        struct data_endpoint *third = NULL;
        assert_int_equal(data_open_ucx(&c, &third, &e), HP_EBUSY);
        admit(&b, &a);
        struct data_link *link = link_to(&a, &b);
        post(&a, link, 100);
        assert_true(wait_for(&b, &b.frames, 1));
        data_close(&b.d); /* the side that closes first keeps its ports for a while, if nobody asked
                             for them again */
        data_disconnect(&link);
    }
    data_close(&a.d);
}

TEST(ucx_without_a_guard_can_not_listen)
{
    struct ucx_end a; /* from now on UCX's calls are known */
    end_open(&a);
    ucp_config_t *config;
    ucp_context_h context;
    ucp_worker_h worker;
    assert_int_equal(ucp_config_read(NULL, NULL, &config), UCS_OK);
    ucp_config_modify(config, "TLS", "tcp");
    ucp_config_modify(config, "NET_DEVICES", "lo");
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    assert_int_equal(ucp_init(&p, config, &context), UCS_OK);
    ucp_config_release(config);
    ucp_worker_params_t w = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    assert_int_not_equal(ucp_worker_create(context, &w, &worker), UCS_OK);
    ucp_cleanup(context);
    data_close(&a.d);
}

/* Two ends of one TCP connection. */
static void tcp_pair(int fds[2])
{
    struct data_address at = {0};
    int listener = silent_listener(&at);
    fds[0] = stranger_connect(at.port);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[0] >= 0 && fds[1] >= 0);
    close(listener);
}

TEST(the_end_of_a_connection_is_told_by_reading_and_never_by_sending)
{
    uint8_t bytes[100] = {0};
    struct iovec parts[2] = {{bytes, 40}, {bytes + 40, 60}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    for (int local = 0; local < 2; local++) {
        int fds[2];
        tcp_pair(fds);
        assert_int_equal(guard_ucx_send(fds[0], bytes, 10, 0), 10);
        assert_int_equal(guard_ucx_sendmsg(fds[0], &message, 0), 100);
        assert_int_equal(send(fds[1], bytes, 7, 0), 7);
        if (local)
            shutdown(fds[0], SHUT_RDWR); /* as for a key that has left the set */
        else
            slam(fds[1]); /* as when its process is killed */
        for (int i = 0; i < 3; i++) {
            assert_int_equal(guard_ucx_send(fds[0], bytes, 100, 0), 100);
            assert_int_equal(guard_ucx_sendmsg(fds[0], &message, 0), 100);
        }
        while (recv(fds[0], bytes, sizeof bytes, 0) > 0)
            ; /* what came before the end */
        assert_true(is_turned_away(fds[0]));
        close(fds[0]);
        if (local)
            close(fds[1]);
    }
    assert_int_equal(guard_ucx_send(-1, bytes, 1, 0), -1); /* our own bugs are told */
    assert_int_equal(errno, EBADF);
}

TEST(who_sends_megabytes_is_read_in_portions)
{
    static uint8_t bytes[2 * GUARD_RECEIVE_BYTES];
    int fds[2];
    tcp_pair(fds);
    for (size_t sent = 0; sent < sizeof bytes;) {
        ssize_t n = send(fds[0], bytes, sizeof bytes - sent, MSG_DONTWAIT);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    assert_in_range(guard_ucx_recv(fds[1], bytes, sizeof bytes, 0), 1, GUARD_RECEIVE_BYTES);
    assert_int_equal(guard_ucx_recv(fds[1], bytes, 100, 0), 100);
    close(fds[0]);
    close(fds[1]);
}

TEST(a_full_socket_takes_later_what_it_does_not_take_now)
{
    static uint8_t bytes[1 << 20];
    int fds[2];
    tcp_pair(fds);
    ssize_t n;
    while ((n = guard_ucx_send(fds[0], bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        ;
    assert_int_equal(n, -1);
    assert_true(errno == EAGAIN || errno == EWOULDBLOCK);
    close(fds[0]);
    close(fds[1]);
}

static bool nobody_is_allowed(void *ctx, const uint8_t key[KEY_BYTES])
{
    (void)ctx, (void)key;
    return false;
}

static void nobody_counts(void *ctx, const char *from, const char *why)
{
    (void)ctx, (void)from, (void)why;
}

TEST(a_ucx_that_goes_around_the_guard_is_noticed)
{
    struct ucx_guard_config c = {.allowed = nobody_is_allowed, .refused = nobody_counts};
    struct ucx_guard *g;
    struct err e = {0};
    assert_int_equal(key_pair_create(&c.keys, NULL), 0);
    assert_int_equal(ucx_guard_open(&c, &g, &e), 0);
    int fd =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a listener that the guard has not seen */
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof sa;
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa) | listen(fd, 5) |
                         getsockname(fd, (struct sockaddr *)&sa, &size),
                     0);
    struct data_address own = {
        .kind = DATA_KIND_UCX, .host = "127.0.0.1", .port = ntohs(sa.sin_port)};
    assert_int_equal(ucx_guard_test(g, &own, &e), HP_EUNSUPPORTED);
    close(fd);
    ucx_guard_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_port_is_used_and_the_next_one_and_both_again_after_a_restart),
        cmocka_unit_test(ucx_without_a_guard_can_not_listen),
        cmocka_unit_test(the_end_of_a_connection_is_told_by_reading_and_never_by_sending),
        cmocka_unit_test(who_sends_megabytes_is_read_in_portions),
        cmocka_unit_test(a_full_socket_takes_later_what_it_does_not_take_now),
        cmocka_unit_test(a_ucx_that_goes_around_the_guard_is_noticed),
    };
    return cmocka_run_group_tests_name("ucx_guard", tests, NULL, NULL);
}
