#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/bytes.h"
#include "hpctl/shown.h"
#include "tests/test.h"

TEST(sizes_have_two_or_three_digits_and_a_unit)
{
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 B"},         {999, "999 B"},     {999.4, "999 B"},  {1000, "1.0 kB"},
                 {1500, "1.5 kB"},   {99499, "99.5 kB"}, {99600, "100 kB"}, {999499, "999 kB"},
                 {999600, "1.0 MB"}, {2.5e9, "2.5 GB"},  {3e12, "3.0 TB"},  {7e15, "7.0 PB"},
                 {7e18, "7000 PB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(shown_bytes(cases[i].bytes).s, cases[i].text);
    assert_string_equal(shown_rate(1.25e8).s, "125 MB/s");
}

TEST(text_of_strangers_moves_no_cursor_and_is_cut_between_characters)
{
    assert_string_equal(shown_plain("batch").s, "batch");
    assert_string_equal(shown_plain("a\x1b[2Jb\nc\x7f").s, "a?[2Jb\\nc?");
    char text[400];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "µ", 3);
    struct shown t = shown_plain(text);
    assert_int_equal(strlen(t.s), 254);
    memset(text, '\n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    t = shown_plain(text);
    assert_int_equal(strlen(t.s), 254);
}

TEST(times_are_in_the_unit_that_one_would_say)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0 µs"},        {0.0005, "500 µs"}, {0.0123, "12.3 ms"}, {1.5, "1.5 s"},
                 {119.9, "119.9 s"}, {120, "2 min"},     {7199, "120 min"},   {7200, "2.0 h"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(shown_seconds(cases[i].seconds).s, cases[i].text);
}

TEST(dates_are_of_this_time_zone)
{
    setenv("TZ", "UTC", 1);
    tzset();
    assert_string_equal(shown_date(0).s, "1970-01-01 00:00");
    assert_string_equal(shown_date(1767225599).s, "2025-12-31 23:59");
}

TEST(members_are_what_they_are_or_a_dash)
{
    json_t *o = json_pack("{s:s, s:s, s:i, s:f, s:b, s:n, s:[]}", "text", "abc", "empty", "",
                          "whole", 1234567, "real", 0.123456, "on", 1, "null", "list");
    static const char *const said[][2] = {{"text", "abc"},    {"empty", "-"}, {"whole", "1234567"},
                                          {"real", "0.1235"}, {"on", "yes"},  {"null", "-"},
                                          {"list", "-"},      {"none", "-"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        assert_string_equal(shown_member(o, said[i][0]).s, said[i][1]);
    assert_string_equal(string_member(o, "text"), "abc");
    assert_string_equal(string_member(o, "whole"), "-");
    assert_true(number_member(o, "whole") == 1234567 && number_member(o, "text") == 0);
    assert_true(bool_member(o, "on") && !bool_member(o, "none"));
    json_decref(o);
}

TEST(texts_in_one_line_do_not_share_a_buffer)
{
    char line[200];
    snprintf(line, sizeof line, "%s %s %s %s %s %s %s %s %s %s", shown_bytes(1).s, shown_bytes(2).s,
             shown_bytes(3).s, shown_bytes(4).s, shown_bytes(5).s, shown_bytes(6).s,
             shown_bytes(7).s, shown_bytes(8).s, shown_bytes(9).s, shown_bytes(10).s);
    assert_string_equal(line, "1 B 2 B 3 B 4 B 5 B 6 B 7 B 8 B 9 B 10 B");
}

TEST(what_does_not_fit_is_cut_between_characters)
{
    char lengthy[600] = "";
    for (int i = 0; i < 200; i++)
        strcat(lengthy, "é");
    struct shown t = shown_of("x%s", lengthy);
    assert_int_equal(strlen(t.s) % 2, 1); /* x and whole characters */
    assert_true(strlen(t.s) < sizeof t.s);
}

TEST(texts_of_any_length_keep_their_lines_and_tell_a_terminal_nothing)
{
    static const char text[] = "a\tb\n\x1b]0;t\x07\xc2\x9b"
                               "31m\r\xc3\xa9\xc2\xa0\x7f\0.";
    struct buffer out = {0};
    shown_harmless(text, sizeof text - 1, &out);
    assert_string_equal(buffer_cstr(&out), "a\tb\n?]0;t??31m?\xc3\xa9\xc2\xa0?"
                                           "?.");
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_two_or_three_digits_and_a_unit),
        cmocka_unit_test(text_of_strangers_moves_no_cursor_and_is_cut_between_characters),
        cmocka_unit_test(texts_of_any_length_keep_their_lines_and_tell_a_terminal_nothing),
        cmocka_unit_test(times_are_in_the_unit_that_one_would_say),
        cmocka_unit_test(dates_are_of_this_time_zone),
        cmocka_unit_test(members_are_what_they_are_or_a_dash),
        cmocka_unit_test(texts_in_one_line_do_not_share_a_buffer),
        cmocka_unit_test(what_does_not_fit_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
