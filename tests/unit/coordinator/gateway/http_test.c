/* Turns of the HTTP server's loop: how much is done in one, and that nothing is left lying. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coordinator/gateway/http.h"
#include "coordinator/gateway/openai.h"
#include "tests/test.h"

enum { CLIENTS = 20, PIPELINED = 30, TURNS = 100000, MOST_IN_A_RUN = 2 };

static uv_loop_t loop;
static struct http_server *server;
static int asked;                   /* requests that the handler has seen */
static struct http_exchange *later; /* of the handler that answers afterwards */

static uint64_t begin(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    (void)ctx, (void)x, (void)r;
    return 1000;
}

static void answer_now(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    (void)ctx, (void)r;
    asked++;
    http_reply(x, 200, "text/plain", "answer", 6);
}

static void answer_later(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    (void)ctx, (void)r;
    asked++;
    later = x;
}

static void refused(void *ctx, struct http_exchange *x, int http_status, const char *why)
{
    (void)ctx;
    http_reply(x, http_status, "text/plain", why, strlen(why));
}

static void server_start(void (*request)(void *, struct http_exchange *,
                                         const struct http_request *))
{
    struct err e = {0};
    struct http_limits limits = {.bodies_bytes = 1 << 20};
    struct http_handler handler = {.begin = begin, .request = request, .refused = refused};
    asked = 0;
    later = NULL;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(http_start(&loop, "127.0.0.1", 0, &limits, NULL, &handler, &server, &e), 0);
}

static void server_stop(void)
{
    http_stop(&server);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static int client_open(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_port(server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void client_ask(int fd, int times)
{
    static const char ask[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < times; i++)
        assert_int_equal(send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL), sizeof ask - 1);
}

/* Answers that came until now; what was cut in two is counted with its end. */
static int answers_taken(int fd)
{
    char text[65536];
    int n = 0;
    ssize_t got = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    text[got > 0 ? got : 0] = 0;
    for (const char *at = text; (at = strstr(at, "\r\n\r\nanswer")) != NULL; at++)
        n++;
    return n;
}

TEST(a_turn_takes_few_requests_of_a_connection_that_has_many_waiting)
{
    int fds[CLIENTS], answers = 0;
    server_start(answer_now);
    for (int i = 0; i < CLIENTS; i++)
        client_ask(fds[i] = client_open(), PIPELINED);
    for (int turn = 0; turn < TURNS && answers < CLIENTS * PIPELINED; turn++) {
        int before = asked;
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_in_range(asked - before, 0, CLIENTS * MOST_IN_A_RUN);
        for (int i = 0; i < CLIENTS; i++)
            answers += answers_taken(fds[i]);
    }
    assert_int_equal(answers, CLIENTS * PIPELINED);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    server_stop();
}

TEST(what_is_answered_afterwards_goes_out_in_the_next_turns)
{
    int answers = 0;
    server_start(answer_later);
    int fd = client_open();
    client_ask(fd, PIPELINED);
    for (int turn = 0; turn < TURNS && answers < PIPELINED; turn++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        if (later)
            http_reply(later, 200, "text/plain", "answer", 6);
        later = NULL;
        answers += answers_taken(fd);
    }
    assert_int_equal(answers, PIPELINED);
    assert_int_equal(asked, PIPELINED);
    close(fd);
    server_stop();
}

static void answer_without_memory(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    struct buffer half = {0};
    (void)ctx, (void)r;
    buffer_printf(&half, "{\"data\":[");
    half.failed = true;
    openai_reply_json(x, 200, &half);
}

TEST(a_document_that_there_is_no_memory_for_is_an_error)
{
    char text[4096];
    ssize_t got = -1;
    server_start(answer_without_memory);
    int fd = client_open();
    client_ask(fd, 1);
    for (int turn = 0; turn < TURNS && got <= 0; turn++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        got = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    }
    assert_true(got > 0);
    text[got] = '\0';
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    assert_non_null(strstr(text, "no memory for the answer"));
    close(fd);
    server_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_takes_few_requests_of_a_connection_that_has_many_waiting),
        cmocka_unit_test(what_is_answered_afterwards_goes_out_in_the_next_turns),
        cmocka_unit_test(a_document_that_there_is_no_memory_for_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
