/* Both kinds of control endpoint, by the same claims. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "tests/test.h"
#include "transport/control.h"

struct control_side {
    struct control *control;
    int got;
    uint64_t peer;
    char key[KEY_TEXT];
    char text[64];
    size_t bytes;
    bool echo;
};

static void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    struct control_side *s = ctx;
    s->got++;
    s->peer = peer;
    s->bytes += size;
    snprintf(s->key, sizeof s->key, "%s", key);
    snprintf(s->text, sizeof s->text, "%.*s", (int)(size < 63 ? size : 63), (const char *)bytes);
    if (s->echo)
        assert_int_equal(control_send(s->control, peer, bytes, size, NULL), 0);
}

static bool everybody(void *ctx, const char *key)
{
    return ctx && key[0];
}

static void on_timer(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

/* Runs the loop until *value reaches `at_least` or patience ends. */
static bool run_until(uv_loop_t *loop, const int *value, int at_least, uint64_t patience_ms)
{
    bool late = false;
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    timer.data = &late;
    uv_timer_start(&timer, on_timer, (uint64_t)((double)patience_ms * env_time_scale()), 0);
    while (*value < at_least && !late)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    return *value >= at_least;
}

static void finish(uv_loop_t *loop, struct control_side *a, struct control_side *b)
{
    control_close(&a->control);
    control_close(&b->control);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static void messages_arrive_with_the_senders_proven_key(void **state)
{
    bool zmq = *(bool *)*state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct control_side server = {.echo = true}, client = {0};
    struct key_pair sk, ck;
    struct err e = {0};
    key_pair_create(&sk, &e);
    key_pair_create(&ck, &e);
    struct control_callbacks scb = {.ctx = &server, .message = on_message, .knows = everybody},
                             ccb = {.ctx = &client, .message = on_message};
    struct control_hub *hub = control_hub_create();
    char address[64];
    int rc = zmq ? control_serve_zmq(&loop, "127.0.0.1:0", &sk, &scb, &server.control, &e)
                 : control_serve_inproc(hub, &loop, "c", &sk, &scb, &server.control, &e);
    if (rc < 0)
        fail_msg("%s", e.text);
    snprintf(address, sizeof address, "127.0.0.1:%d", control_port(server.control));
    rc = zmq ? control_connect_zmq(&loop, address, sk.public_key, &ck, &ccb, &client.control, &e)
             : control_connect_inproc(hub, &loop, "c", sk.public_key, &ck, &ccb, &client.control,
                                      &e);
    if (rc < 0)
        fail_msg("%s", e.text);
    enum { N = 500 };
    uint8_t *large = calloc(1, 3 << 20);
    for (int i = 0; i < N; i++)
        assert_int_equal(control_send(client.control, 0, (const uint8_t *)"hello", 5, &e), 0);
    assert_int_equal(control_send(client.control, 0, large, 3 << 20, &e), 0);
    assert_true(run_until(&loop, &client.got, N + 1, 10000));
    assert_int_equal(server.got, N + 1);
    assert_int_equal(client.bytes, 5 * N + (3 << 20));
    assert_string_equal(server.key, ck.public_key);
    assert_int_equal(control_send(server.control, 12345, large, 1, &e), HP_ELINK);
    free(large);
    finish(&loop, &client, &server);
    control_hub_destroy(&hub);
}

TEST(a_wrong_server_key_gets_nowhere)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct control_side server = {.echo = true}, client = {0};
    struct key_pair sk, ck, other;
    struct err e = {0};
    key_pair_create(&sk, &e);
    key_pair_create(&ck, &e);
    key_pair_create(&other, &e);
    struct control_callbacks scb = {.ctx = &server, .message = on_message},
                             ccb = {.ctx = &client, .message = on_message};
    char address[64];
    assert_int_equal(control_serve_zmq(&loop, "127.0.0.1:0", &sk, &scb, &server.control, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", control_port(server.control));
    assert_int_equal(
        control_connect_zmq(&loop, address, other.public_key, &ck, &ccb, &client.control, &e), 0);
    control_send(client.control, 0, (const uint8_t *)"x", 1, &e);
    assert_false(run_until(&loop, &server.got, 1, 700));
    assert_int_equal(control_contact(client.control), CONTROL_UNPROVEN);
    finish(&loop, &client, &server);
}

TEST(a_client_knows_whether_its_server_is_there)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct control_side server = {.echo = true}, client = {0};
    struct key_pair sk, ck;
    struct err e = {0};
    key_pair_create(&sk, &e);
    key_pair_create(&ck, &e);
    struct control_callbacks scb = {.ctx = &server, .message = on_message},
                             ccb = {.ctx = &client, .message = on_message};
    char address[64];
    assert_int_equal(control_serve_zmq(&loop, "127.0.0.1:0", &sk, &scb, &server.control, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", control_port(server.control));
    control_close(&server.control);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(
        control_connect_zmq(&loop, address, sk.public_key, &ck, &ccb, &client.control, &e), 0);
    assert_false(run_until(&loop, &client.got, 1, 300));
    assert_int_equal(control_contact(client.control), CONTROL_ABSENT);
    assert_int_equal(control_serve_zmq(&loop, address, &sk, &scb, &server.control, &e), 0);
    control_send(client.control, 0, (const uint8_t *)"x", 1, &e);
    assert_true(run_until(&loop, &client.got, 1, 5000));
    assert_int_equal(control_contact(client.control), CONTROL_PROVEN);
    finish(&loop, &client, &server);
}

TEST(what_waits_to_be_sent_is_bounded)
{
    enum { LARGE = 8 << 20 };
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct control_side client = {0};
    struct key_pair sk, ck;
    struct err e = {0};
    key_pair_create(&sk, &e);
    key_pair_create(&ck, &e);
    struct control_callbacks cb = {.ctx = &client, .message = on_message};
    /* Nobody listens at this port, so that all waits. */
    assert_int_equal(
        control_connect_zmq(&loop, "127.0.0.1:1", sk.public_key, &ck, &cb, &client.control, &e), 0);
    uint8_t *bytes = calloc(1, LARGE);
    int sent = 0;
    while (sent < 1000 && control_send(client.control, 0, bytes, LARGE, &e) == 0)
        sent++;
    assert_int_equal(sent, CONTROL_MAX_QUEUED_BYTES / LARGE);
    assert_int_equal(e.code, HP_EBUSY);
    assert_int_equal(control_send(client.control, 0, bytes, CONTROL_SMALL_BYTES, &e), 0);
    control_close(&client.control);
    uv_run(&loop, UV_RUN_DEFAULT); /* what waited is given back (the sanitizers look) */
    assert_int_equal(uv_loop_close(&loop), 0);
    free(bytes);
}

TEST(a_port_in_use_is_said_plainly)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct control_side a = {0}, b = {0};
    struct key_pair k;
    struct err e = {0};
    key_pair_create(&k, &e);
    struct control_callbacks cb = {.ctx = &a, .message = on_message};
    char address[64];
    assert_int_equal(control_serve_zmq(&loop, "127.0.0.1:0", &k, &cb, &a.control, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", control_port(a.control));
    assert_int_equal(control_serve_zmq(&loop, address, &k, &cb, &b.control, &e), HP_EIO);
    assert_non_null(strstr(e.text, address));
    assert_non_null(strstr(e.hint, "--listen"));
    finish(&loop, &a, &b);
}

TEST(an_address_that_is_none_is_refused)
{
    static const char *const cases[] = {"127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1",
                                        "127.0.0.1:",      ":7070",           "127.0.0.1:x",
                                        "127.0.0.1:70x",   "127.0.0.1:-1"};
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct control_side a = {0};
    struct key_pair k;
    struct err e = {0};
    key_pair_create(&k, &e);
    struct control_callbacks cb = {.ctx = &a, .message = on_message};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(control_serve_zmq(&loop, cases[i], &k, &cb, &a.control, &e), HP_EINVAL);
        assert_non_null(strstr(e.text, "a port of 0 to 65535"));
        assert_int_equal(
            control_connect_zmq(&loop, cases[i], k.public_key, &k, &cb, &a.control, &e), HP_EINVAL);
    }
    uv_loop_close(&loop);
}

int main(void)
{
    static bool kinds[] = {false, true};
    const struct CMUnitTest tests[] = {
        {"messages_arrive_with_the_senders_proven_key (in process)",
         messages_arrive_with_the_senders_proven_key, NULL, NULL, &kinds[0]},
        {"messages_arrive_with_the_senders_proven_key (zmq)",
         messages_arrive_with_the_senders_proven_key, NULL, NULL, &kinds[1]},
        cmocka_unit_test(a_wrong_server_key_gets_nowhere),
        cmocka_unit_test(a_client_knows_whether_its_server_is_there),
        cmocka_unit_test(what_waits_to_be_sent_is_bounded),
        cmocka_unit_test(a_port_in_use_is_said_plainly),
        cmocka_unit_test(an_address_that_is_none_is_refused),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
