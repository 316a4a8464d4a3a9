/* Where a reader is, in words. */
#include <string.h>

#include "coordinator/gateway/event_ids.h"
#include "tests/test.h"

TEST(an_id_says_tokens_and_ends_of_each_choice_and_nothing_else_is_one)
{
    struct event_id id;
    static const struct {
        const char *text;
        uint32_t n;
        bool good;
    } rows[] = {{"0", 1, true},
                {"57", 1, true},
                {"57f", 1, true},
                {"1.2f.0", 3, true},
                {"", 1, false},
                {NULL, 1, false},
                {"5", 2, false},
                {"5.6", 1, false},
                {"5.", 2, false},
                {".5", 2, false},
                {"5 ", 1, false},
                {"f", 1, false},
                {"5ff", 1, false},
                {"-1", 1, false},
                {"4294967295", 1, true},
                {"4294967296", 1, false},
                {"99999999999999999999999", 1, false},
                {"1", 0, false},
                {"1", 65, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (event_id_read(rows[i].text, rows[i].n, &id) != rows[i].good)
            fail_msg("\"%s\" of %u", rows[i].text ? rows[i].text : "NULL", rows[i].n);
    assert_true(event_id_read("12.40f.0", 3, &id));
    assert_true(id.tokens[0] == 12 && id.tokens[1] == 40 && id.tokens[2] == 0);
    assert_true(!id.ended[0] && id.ended[1] && !id.ended[2]);
}

TEST(an_id_stands_in_the_last_of_the_events_that_were_added)
{
    const struct event_id id = {.n = 2, .tokens = {3, 7}, .ended = {false, true}};
    static const struct {
        const char *before, *added, *after;
    } rows[] = {
        {"", "data: a\n\n", "id: 3.7f\ndata: a\n\n"},
        {"data: x\n\n", "data: a\n\n", "data: x\n\nid: 3.7f\ndata: a\n\n"},
        {"", "event: e\ndata: a\n\nevent: e\ndata: b\n\n",
         "event: e\ndata: a\n\nid: 3.7f\nevent: e\ndata: b\n\n"},
        {"data: x\n\n", "", "data: x\n\n"},
        {"", "{\"line\": 1}\n", "{\"line\": 1}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer b = {0};
        buffer_append(&b, rows[i].before, strlen(rows[i].before));
        buffer_append(&b, rows[i].added, strlen(rows[i].added));
        event_id_write(&b, strlen(rows[i].before), &id);
        assert_string_equal(b.data ? buffer_cstr(&b) : "", rows[i].after);
        buffer_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_says_tokens_and_ends_of_each_choice_and_nothing_else_is_one),
        cmocka_unit_test(an_id_stands_in_the_last_of_the_events_that_were_added),
    };
    return cmocka_run_group_tests_name("event_ids", tests, NULL, NULL);
}
