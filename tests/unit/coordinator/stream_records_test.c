/* Records of requests that outlive the coordinator: what of them is read, and what is refused. */
#include <string.h>

#include "common/log.h"
#include "coordinator/core.h"
#include "coordinator/stream_records.h"
#include "tests/test.h"

TEST(keys_are_sixteen_digits_and_say_what_they_are_of)
{
    static const struct {
        const char *key;
        uint64_t number;
        bool ended, good;
    } rows[] = {{"00000000000a0001", 0xa0001, false, true},
                {"00000000000a0001.end", 0xa0001, true, true},
                {"00000000000A0001", 0, false, false},
                {"0000000000000000", 0, false, false},
                {"a0001", 0, false, false},
                {"", 0, false, false},
                {"00000000000a0001.en", 0, false, false},
                {"00000000000a00010", 0, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t number = 0;
        bool ended = false, good = stream_record_key(rows[i].key, &number, &ended);
        if (good != rows[i].good || (good && (number != rows[i].number || ended != rows[i].ended)))
            fail_msg("\"%s\"", rows[i].key);
    }
}

/* A record that cannot be used is dropped, and the coordinator starts. */
TEST(what_is_no_record_costs_nobody_the_start)
{
    struct env_virtual clock;
    struct env env = env_virtual_init(&clock, 1);
    const struct coord_config config = {.env = &env,
                                        .cluster = "c",
                                        .version = "1",
                                        .public_key = "p",
                                        .admin_key = "a",
                                        .unix_s = 1000};
    struct coord *core = NULL;
    struct err none = {0};
    log_set_level(LOG_ERROR);
    assert_int_equal(coord_create(&config, &core, &none), 0);
    static const struct {
        const char *key;
        const void *bytes;
        size_t size;
    } rows[] = {{"00000000000a0001", "", 0},
                {"00000000000a0001", "{\"json\": 1}", 11},
                {"00000000000a0001", "\x80", 1},
                {"00000000000a0001.end", "\x80", 1},
                {"00000000000a0001.end",
                 "\x81\xa6"
                 "finish\x07",
                 9},
                {"nonsense", "\x80", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        assert_int_equal(
            coord_restore(core, "stream", rows[i].key, rows[i].bytes, rows[i].size, &e), 0);
    }
    assert_int_equal(coord_view(core).sequences_waiting, 0);
    coord_start(core, true);
    coord_destroy(&core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_sixteen_digits_and_say_what_they_are_of),
        cmocka_unit_test(what_is_no_record_costs_nobody_the_start),
    };
    return cmocka_run_group_tests_name("stream_records", tests, NULL, NULL);
}
