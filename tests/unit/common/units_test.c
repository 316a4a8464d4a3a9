#include <stddef.h>

#include "common/units.h"
#include "tests/test.h"

TEST(sizes_are_read_as_people_write_them)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
        {"1", 1},
        {"8000000000", UINT64_C(8000000000)},
        {"24G", UINT64_C(24) << 30},
        {"24GiB", UINT64_C(24) << 30},
        {"24gib", UINT64_C(24) << 30},
        {"24GB", UINT64_C(24000000000)},
        {"512M", UINT64_C(512) << 20},
        {"3MB", 3000000},
        {"7K", 7168},
        {"2T", UINT64_C(2) << 40},
        {"2TB", UINT64_C(2000000000000)},
        {"1.5G", UINT64_C(3) << 29},
        {"0.5GiB", UINT64_C(1) << 29},
        {"1.5GB", 1500000000},
        {"12e9", UINT64_C(12000000000)},
        {"1B", 1},
        {"500kB", 500000},
        {"9007199254740993", UINT64_C(9007199254740993)},
        {"", 0},
        {"0.0001K", 0},
        {"0x10", 0},
        {"1e30", 0},
        {"1e", 0},
        {"inf", 0},
        {"nan", 0},
        {"1GiBB", 0},
        {"0", 0},
        {"-1", 0},
        {" 1", 0},
        {"1 G", 0},
        {"G", 0},
        {"1P", 0},
        {"1Gb1", 0},
        {"18446744073709551616", 0},
        {"17000000T", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        if (units_bytes_parse(cases[i].text, &bytes) != (cases[i].bytes > 0) ||
            bytes != cases[i].bytes)
            fail_msg("\"%s\": %llu", cases[i].text, (unsigned long long)bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_read_as_people_write_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
