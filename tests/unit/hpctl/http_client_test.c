/* What the API sends, as the client reads it, and how long it waits for that.
 * Waits: for a server that says nothing. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hpctl/http_client.h"
#include "tests/test.h"

TEST(an_answer_may_hold_any_character)
{
    static const char event[] = "{\"text\": \"a\\u0000b\", \"finish_reason\": null}";
    json_t *value = http_json(event, strlen(event));
    assert_non_null(value);
    const json_t *text = json_object_get(value, "text");
    assert_int_equal(json_string_length(text), 3);
    assert_memory_equal(json_string_value(text), "a\0b", 3);
    json_decref(value);
}

TEST(what_is_cut_short_or_no_json_is_nothing)
{
    static const char event[] = "{\"text\": \"a\"}";
    for (size_t n = 0; n + 1 < strlen(event); n++)
        assert_null(http_json(event, n));
    assert_null(http_json("data", 4));
}

/* Listens; whoever connects waits for an answer until somebody accepts. */
static int server_open(struct context *where)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(where->http, sizeof where->http, "http://127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void answer_send(int fd, const char *body)
{
    dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
            strlen(body), body);
    close(fd);
}

/* Answers the first request once it has twice been asked whether it is well. */
static void *slow_server_run(void *ctx)
{
    char asked[1000];
    int listener = *(int *)ctx, first = -1;
    for (int healths = 0; healths < 2;) {
        int fd = accept(listener, NULL, NULL);
        ssize_t n = read(fd, asked, sizeof asked - 1);
        asked[n > 0 ? n : 0] = 0;
        if (strncmp(asked, "GET /health ", 12) != 0) {
            first = fd;
            continue;
        }
        answer_send(fd, "{}");
        healths++;
    }
    answer_send(first, "{\"a\": 1}");
    return NULL;
}

TEST(who_takes_long_is_waited_for_and_who_stands_still_is_not)
{
    struct context where = {.name = "c"};
    struct err e = {0};
    json_t *answer = NULL;
    pthread_t thread;
    setenv("HP_TIME_SCALE", "0.02", 1);
    int listener = server_open(&where);
    assert_int_equal(pthread_create(&thread, NULL, slow_server_run, &listener), 0);
    assert_int_equal(http_get(&where, "/v1/x", &answer, &e), 0);
    assert_int_equal(json_integer_value(json_object_get(answer, "a")), 1);
    json_decref(answer);
    pthread_join(thread, NULL);
    assert_int_equal(http_get(&where, "/v1/x", &answer, &e), HP_ETIMEOUT); /* nobody accepts */
    assert_non_null(strstr(e.text, "no sign of it"));
    close(listener);
    assert_int_equal(http_get(&where, "/v1/x", &answer, &e), HP_ENOCLUSTER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_may_hold_any_character),
        cmocka_unit_test(what_is_cut_short_or_no_json_is_nothing),
        cmocka_unit_test(who_takes_long_is_waited_for_and_who_stands_still_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
