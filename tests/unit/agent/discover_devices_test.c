/* A share that is divided among devices. */
#include <stdio.h>
#include <string.h>

#include "agent/discover_devices.h"
#include "tests/test.h"

enum { CORES = 8 };

/* Cores 10 to 17: what they are called is not where they stand. */
static struct discover_share share_of(uint64_t memory_bytes)
{
    struct discover_share s = {.n_cores = CORES, .n_threads = CORES, .memory_bytes = memory_bytes};
    for (int i = 0; i < CORES; i++)
        s.cores[i] = 10 + i;
    return s;
}

static bool cores_are(const struct discover_share *s, int device, const int *cores, int n)
{
    const struct discover_device *d = &s->devices[device];
    return d->n_cores == n &&
           memcmp(s->cores + d->first_core, cores, (size_t)n * sizeof *cores) == 0;
}

TEST(without_devices_one_has_all)
{
    struct discover_share s = share_of(1 << 30);
    struct discover_device d = discover_device_at(&s, 0);
    assert_int_equal(discover_device_count(&s), 1);
    assert_string_equal(d.name, "cpu");
    assert_int_equal(d.n_cores, CORES);
    assert_int_equal(d.memory_bytes, discover_stage_bytes(&s));
}

TEST(cores_go_to_those_that_name_them_then_to_those_that_count_them_and_the_rest_to_one)
{
    static const char *const texts[] = {"cpu,threads=1", "cpu:12,16-17,threads=2",
                                        "cpu:any:2,threads=1"};
    static const int rest[] = {13, 14, 15}, named[] = {12, 16, 17}, any[] = {10, 11};
    struct discover_share s = share_of(1 << 30);
    struct err e = {0};
    assert_int_equal(discover_devices(texts, 3, &s, &e), 0);
    assert_int_equal(s.n_devices, 3);
    assert_true(cores_are(&s, 0, rest, 3) && cores_are(&s, 1, named, 3) &&
                cores_are(&s, 2, any, 2));
    assert_string_equal(s.devices[1].name, "cpu1");
    assert_int_equal(s.n_cores, CORES);
    assert_int_equal(s.n_threads, 4);
}

TEST(cores_of_no_device_leave_the_share)
{
    static const char *const text[] = {"cpu:11,13,threads=1"};
    static const int own[] = {11, 13};
    struct discover_share s = share_of(1 << 30);
    assert_int_equal(discover_devices(text, 1, &s, NULL), 0);
    assert_int_equal(s.n_cores, 2);
    assert_true(cores_are(&s, 0, own, 2));
    assert_string_equal(s.devices[0].name, "cpu");
    assert_int_equal(s.devices[0].memory_bytes, discover_stage_bytes(&s) / 2 * 2);
}

TEST(memory_is_what_was_said_and_the_rest_in_proportion_to_cores)
{
    static const char *const texts[] = {"cpu:10-11,threads=1", "cpu:12,mem=100M,threads=1",
                                        "cpu:13-16,threads=1"};
    struct discover_share s = share_of(1 << 30);
    uint64_t left = discover_stage_bytes(&s) - (100 << 20);
    assert_int_equal(discover_devices(texts, 3, &s, NULL), 0);
    assert_int_equal(s.devices[1].memory_bytes, 100 << 20);
    assert_int_equal(s.devices[0].memory_bytes, left / 6 * 2);
    assert_int_equal(s.devices[2].memory_bytes, left / 6 * 4);
}

TEST(what_makes_no_sense_is_refused_by_the_name_of_its_device)
{
    static const struct {
        const char *texts[3], *says;
    } cases[] = {
        {{"gpu:0"}, "--device gpu:0"},
        {{"cpux"}, "--device cpux"},
        {{"cpu:"}, "something is missing"},
        {{"cpu:10,,11"}, "something is missing"},
        {{"cpu:10,"}, "something is missing"},
        {{"cpu:18"}, "core 18 is not one that this agent may use"},
        {{"cpu:10-9"}, "\"10-9\" is neither"},
        {{"cpu:x"}, "\"x\" is neither"},
        {{"cpu:10,10"}, "core 10 is named twice"},
        {{"cpu:10-12", "cpu:12"}, "core 12 is of --device cpu:10-12 already"},
        {{"cpu:any:2,10"}, "any:COUNT stands alone"},
        {{"cpu:10,any:2"}, "any:COUNT stands alone"},
        {{"cpu:any:0"}, "not a number from 1"},
        {{"cpu:any:9"}, "leave it 8 cores"},
        {{"cpu:any:8", "cpu"}, "leave it 0 cores"},
        {{"cpu", "cpu"}, "two devices without cores"},
        {{"cpu,threads=0"}, "threads=0 is not a number"},
        {{"cpu:,threads=0"}, "something is missing in it"},
        {{"cpu,mem=lots"}, "mem=lots is not a size"},
        {{"cpu:10,mem=600M", "cpu:11,mem=600M"}, "the devices ask for more"},
        {{"cuda"}, "--device cuda: is neither cpu[:CORES]"},
        {{"cuda:0/share=1/5"}, "a share of a GPU is cuda:0/share=1/2, 1/3 or 1/4"},
        {{"cuda:1/share=1/1"}, "a share of a GPU is cuda:1/share=1/2, 1/3 or 1/4"},
        {{"cuda:0/share=1/40"}, "a share of a GPU is"},
        {{"cuda:0/share=2/3"}, "a share of a GPU is"},
        {{"cuda:0/"}, "a share of a GPU is"},
        {{"cuda:0/share=1/4,threads=2"}, "\"threads=2\" is not of a GPU"},
        {{"cuda:0,host=much"}, "host=much is not a size"},
        {{"cuda:0,host=1G,small=few"}, "small=few is not a size"},
        {{"cuda:0,small=1M"}, "small= says what lies in the room of host=BYTES"},
        {{"cpu,host=1G"}, "\"host=1G\" is neither"},
        {{"cuda:0", "cuda:0"}, "cuda:0 is named twice"},
        {{"cuda:0/share=1/2", "cuda:0"}, "cuda:0 is named twice"},
        {{"cuda:0", "cuda:0/share=1/4"}, "the devices before it leave no such share of cuda:0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct discover_share s = share_of(1 << 30);
        struct err e = {0};
        int n = cases[i].texts[1] ? 2 : 1;
        if (discover_devices(cases[i].texts, n, &s, &e) != HP_EUSAGE ||
            !strstr(e.text, cases[i].says) || s.n_devices)
            fail_msg("%s: %d \"%s\"", cases[i].texts[0], e.code, e.text);
    }
}

TEST(all_of_the_memory_may_be_given_away_and_no_more)
{
    struct discover_share s = share_of(1 << 30);
    char all[64];
    snprintf(all, sizeof all, "cpu:10,threads=1,mem=%llu",
             (unsigned long long)discover_stage_bytes(&s));
    const char *texts[] = {all, "cpu:11,threads=1"};
    struct err e = {0};
    assert_int_equal(discover_devices(texts, 2, &s, &e), HP_EUSAGE);
    assert_non_null(strstr(e.text, "leave it no memory"));
    s = share_of(1 << 30);
    assert_int_equal(discover_devices(texts, 1, &s, NULL), 0);
}

TEST(threads_are_no_more_than_the_cores)
{
    struct discover_share all, s;
    assert_int_equal(discover_share(NULL, 0, 0, &all, NULL), 0);
    s = all;
    static const char *const text[] = {"cpu:any:1"};
    assert_int_equal(discover_devices(text, 1, &s, NULL), 0);
    assert_int_equal(s.devices[0].n_threads, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_devices_one_has_all),
        cmocka_unit_test(
            cores_go_to_those_that_name_them_then_to_those_that_count_them_and_the_rest_to_one),
        cmocka_unit_test(cores_of_no_device_leave_the_share),
        cmocka_unit_test(memory_is_what_was_said_and_the_rest_in_proportion_to_cores),
        cmocka_unit_test(what_makes_no_sense_is_refused_by_the_name_of_its_device),
        cmocka_unit_test(all_of_the_memory_may_be_given_away_and_no_more),
        cmocka_unit_test(threads_are_no_more_than_the_cores),
    };
    return cmocka_run_group_tests_name("devices of a share", tests, NULL, NULL);
}
