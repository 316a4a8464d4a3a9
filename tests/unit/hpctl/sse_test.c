/* Server-sent events, whatever pieces they come in. */
#include <string.h>

#include "hpctl/sse.h"
#include "tests/test.h"

struct sse_heard {
    struct buffer said;
    int stop_at, n; /* the event that is refused; 0: none */
};

static int on_event(void *ctx, const char *data, size_t size, struct err *e)
{
    struct sse_heard *h = ctx;
    assert_int_equal(strlen(data), size);
    buffer_printf(&h->said, "[%s]", data);
    return ++h->n == h->stop_at ? err_set(e, HP_EPROTO, "enough") : 0;
}

TEST(events_come_out_whole_however_they_are_cut)
{
    static const char stream[] =
        "data: {\"a\": 1}\n\n: a comment\n\ndata: x\ndata: y\n\n"
        "event: ping\nid: 7\n\r\ndata:tight\r\n\r\ndata\n\ndata: [DONE]\n\n"
        "database: no\n\ndata: not ended\n";
    for (size_t step = 1; step <= sizeof stream; step++) {
        struct sse s = {0};
        struct sse_heard h = {0};
        for (size_t at = 0; at < sizeof stream - 1; at += step) {
            size_t n = sizeof stream - 1 - at < step ? sizeof stream - 1 - at : step;
            assert_int_equal(sse_take(&s, stream + at, n, on_event, &h, NULL), 0);
        }
        assert_string_equal(buffer_cstr(&h.said), "[{\"a\": 1}][x\ny][tight][][[DONE]]");
        buffer_free(&h.said);
        sse_free(&s);
    }
}

TEST(a_refused_event_ends_the_reading)
{
    static const char stream[] = "data: 1\n\ndata: 2\n\ndata: 3\n\n";
    struct sse s = {0};
    struct sse_heard h = {.stop_at = 2};
    struct err e = {0};
    assert_int_equal(sse_take(&s, stream, sizeof stream - 1, on_event, &h, &e), HP_EPROTO);
    assert_string_equal(e.text, "enough");
    assert_string_equal(buffer_cstr(&h.said), "[1][2]");
    buffer_free(&h.said);
    sse_free(&s);
}

TEST(an_event_without_an_end_is_refused_at_its_limit)
{
    static char block[1 << 20];
    struct sse s = {0};
    struct sse_heard h = {0};
    struct err e = {0};
    int rc = sse_take(&s, "data: ", 6, on_event, &h, &e);
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 32 && rc == 0; i++)
        rc = sse_take(&s, block, sizeof block, on_event, &h, &e);
    assert_int_equal(rc, HP_ELIMIT);
    assert_true(s.line.capacity <= 64 << 20);
    sse_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_out_whole_however_they_are_cut),
        cmocka_unit_test(a_refused_event_ends_the_reading),
        cmocka_unit_test(an_event_without_an_end_is_refused_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
