/* Splitting a fine profile, against exhaustive search over the cuts. */
#include <math.h>
#include <stddef.h>

#include "common/bytes.h"
#include "common/env.h"
#include "planners/pools/split.h"
#include "tests/profile_fixture.h"
#include "tests/test.h"

enum { LAYERS = 12 };

static void make_profile(uint64_t seed, struct profile *p)
{
    struct buffer b = {0};
    struct err e = {0};
    buffer_printf(&b, "{\"format\":\"hp-profile/1\",\"model\":\"m\",\"layers\":[");
    for (int l = 0; l < LAYERS; l++)
        buffer_printf(&b, "%s{\"class\":\"l%d\",\"output_bytes\":%d,\"param_bytes\":%d}",
                      l ? "," : "", l, (int)(1 + 9 * random_unit(&seed)), l);
    buffer_printf(&b, "],\"latency\":{\"A\":{");
    for (int l = 0; l < LAYERS; l++)
        buffer_printf(
            &b, "%s\"l%d\":{\"share\":[1,2],\"batch\":[1,2],\"seconds\":[[%.6f,%.6f],[0.5,%s]]}",
            l ? "," : "", l, 0.5 + random_unit(&seed), 2.0, l == 3 ? "null" : "0.9");
    buffer_printf(&b, "}}}");
    *p = (struct profile){0};
    if (profile_read(buffer_cstr(&b), p, &e) < 0)
        fail_msg("%s", e.text);
    buffer_free(&b);
}

static double layer_s(const struct profile *p, int l)
{
    return profile_table_of(p, 0, p->layers[l].class_index)->seconds[0];
}

/* The fewest bytes over all sets of cuts, as bits, with every block within the window. */
static double brute(const struct profile *p, int blocks, double window)
{
    double total = 0, best = INFINITY;
    for (int l = 0; l < LAYERS; l++)
        total += layer_s(p, l);
    for (unsigned cuts = 0; cuts < 1u << (LAYERS - 1); cuts++) {
        double bytes = 0, block = 0, mean = total / blocks;
        bool fits = __builtin_popcount(cuts) == blocks - 1;
        for (int l = 0; l < LAYERS && fits; l++) {
            block += layer_s(p, l);
            if (l < LAYERS - 1 && !(cuts >> l & 1))
                continue;
            fits = block >= mean * (1 - window) - 1e-12 && block <= mean * (1 + window) + 1e-12;
            bytes += l < LAYERS - 1 ? p->layers[l].output_bytes : 0;
            block = 0;
        }
        if (fits)
            best = fmin(best, bytes);
    }
    return best;
}

TEST(cuts_move_the_fewest_bytes_within_the_window)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct profile p;
        struct split s;
        struct err e = {0};
        make_profile(seed, &p);
        assert_int_equal(pools_split(&p, 4, 0.4, NULL, &s, &e), 0);
        assert_true(s.cut_bytes == brute(&p, 4, s.window));
        if (s.window > 0.4)
            assert_true(isinf(brute(&p, 4, 0.4)));
        assert_int_equal(s.end[s.n_blocks - 1], LAYERS);
        profile_free(&p);
    }
}

TEST(blocks_add_up_and_holes_stay_holes)
{
    struct profile p, q = {0};
    struct split s;
    struct err e = {0};
    make_profile(7, &p);
    assert_int_equal(pools_split(&p, 3, 0.5, "A", &s, &e), 0);
    json_t *o = pools_split_profile(&p, &s);
    struct json_at at = {"split.json", o, NULL, NULL, 0};
    if (profile_from_json(&at, &q, &e) < 0)
        fail_msg("%s", e.text);
    double whole = 0, blocks = 0;
    for (int l = 0; l < LAYERS; l++)
        whole += layer_s(&p, l);
    for (int b = 0; b < q.n_layers; b++)
        blocks += layer_s(&q, b);
    assert_int_equal(q.n_layers, 3);
    assert_true(fabs(whole - blocks) < 1e-9);
    for (int b = 0; b < 3; b++) {
        bool has_hole = s.end[b] > 3 && (b == 0 || s.end[b - 1] <= 3);
        assert_int_equal(isnan(profile_table_of(&q, 0, q.layers[b].class_index)->seconds[3]),
                         has_hole);
    }
    assert_true(q.layers[2].output_bytes == p.layers[LAYERS - 1].output_bytes);
    profile_free(&q);
    json_decref(o);
    profile_free(&p);
}

TEST(bad_requests_are_refused)
{
    struct profile p;
    struct split s;
    struct err e = {0};
    make_profile(1, &p);
    assert_int_equal(pools_split(&p, 0, 0.5, NULL, &s, &e), HP_EINVAL);
    assert_int_equal(pools_split(&p, 3, -1, NULL, &s, &e), HP_EINVAL);
    assert_int_equal(pools_split(&p, 3, 0.5, "B", &s, &e), HP_EINVAL);
    assert_int_equal(pools_split(&p, 60, 0.5, NULL, &s, &e), 0);
    assert_int_equal(s.n_blocks, LAYERS);
    profile_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_move_the_fewest_bytes_within_the_window),
        cmocka_unit_test(blocks_add_up_and_holes_stay_holes),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
