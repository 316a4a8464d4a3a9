#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "tests/test.h"

struct log_heard {
    char last[2048];
    int lines;
};

static void on_line(void *ctx, const char *line)
{
    struct log_heard *h = ctx;
    h->lines++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

static struct log_heard heard;

static int listen_begin(void **state)
{
    (void)state;
    memset(&heard, 0, sizeof heard);
    log_set_sink(on_line, &heard);
    return 0;
}

static int listen_end(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    return 0;
}

/* What stands after the time of the last line. */
static const char *said(void)
{
    const char *blank = strchr(heard.last, ' ');
    return blank ? blank + 1 : "";
}

TEST(a_line_is_level_room_event_and_values)
{
    log_warn("agent", "seen",
             "n=%d u=%u l=%llu z=%zu f=%.2f g=%g s=%s cut=%.3s percent=%% t=\"%s\"", -3, 4u,
             5000000000ull, (size_t)6, 0.125, 1e9, "word", "abcdef", "two words");
    assert_string_equal(said(), "warn agent seen n=-3 u=4 l=5000000000 z=6 f=0.12 g=1e+09 s=word "
                                "cut=abc percent=% t=\"two words\"");
    log_info("agent", "plain", "%s", "");
    assert_string_equal(said(), "info agent plain ");
}

TEST(lines_go_to_the_stream_that_was_named)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    log_set_output(f);
    log_info("agent", "one", "n=%d", 1);
    log_set_output(NULL);
    fclose(f);
    assert_non_null(strstr(text, " info agent one n=1\n"));
    assert_int_equal(heard.lines, 1);
    free(text);
}

TEST(text_of_others_moves_no_terminal_and_ends_no_value)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"a\x1b[2Jb\rc\nd", "a?[2Jb c d"},
        {"a\" evil=\"1", "a\\\" evil=\\\"1"},
        {"back\\slash", "back\\\\slash"},
        {"gr\xc3\xbc\xc3\x9f"
         "e",
         "gr\xc3\xbc\xc3\x9f"
         "e"},
        {"latin \xfc, csi \xc2\x9b"
         "2J, raw \x9b",
         "latin ?, csi ?2J, raw ?"},
        {"cut \xe2\x82", "cut ??"},
        {"\x7f\x01", "??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[128];
        log_warn("agent", "heard", "text=\"%s\" after=1", cases[i].text);
        snprintf(expected, sizeof expected, "warn agent heard text=\"%s\" after=1", cases[i].said);
        assert_string_equal(said(), expected);
    }
}

TEST(a_long_line_is_cut_and_ended)
{
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_warn("agent", "long", "text=\"%s\" n=%d", text, 1);
    assert_in_range(strlen(heard.last), 1500, 2000);
}

TEST(what_a_stranger_causes_is_said_a_few_times_and_then_counted)
{
    struct log_limit limit = {0};
    for (int i = 0; i < 1000; i++)
        log_line_limited(&limit, LOG_WARN, "agent", "frame_malformed", "n=%d", i);
    assert_int_equal(heard.lines, LOG_LIMIT_LINES);
    limit.from_s -= LOG_LIMIT_SECONDS;
    log_line_limited(&limit, LOG_WARN, "agent", "frame_malformed", "n=%d", 7);
    assert_string_equal(said(), "warn agent frame_malformed n=7 unsaid=995");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_level_room_event_and_values, listen_begin,
                                        listen_end),
        cmocka_unit_test_setup_teardown(lines_go_to_the_stream_that_was_named, listen_begin,
                                        listen_end),
        cmocka_unit_test_setup_teardown(text_of_others_moves_no_terminal_and_ends_no_value,
                                        listen_begin, listen_end),
        cmocka_unit_test_setup_teardown(a_long_line_is_cut_and_ended, listen_begin, listen_end),
        cmocka_unit_test_setup_teardown(what_a_stranger_causes_is_said_a_few_times_and_then_counted,
                                        listen_begin, listen_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
