#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/engine/sampler.h"
#include "agent/engine/sampler_kernels.h"
#include "tests/share.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/sampler_reference.h"

enum { VOCABULARY = 8, DRAWS = 20000 };

static struct sampler *make(const struct sampling_params *p, int vocabulary, const uint32_t *prompt,
                            size_t n_prompt)
{
    struct sampler *s = NULL;
    struct err e = {0};
    if (sampler_create(p, vocabulary, prompt, n_prompt, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

/* Picks DRAWS times, or its share, with as many seeds, so that penalties do not build up, and gives
 * how often each token came. */
static void frequencies(struct sampling_params p, const float *logits, double out[VOCABULARY])
{
    int draws = test_share(DRAWS);
    memset(out, 0, VOCABULARY * sizeof *out);
    for (int seed = 0; seed < draws; seed++) {
        p.seed = (uint64_t)seed;
        struct sampler *s = make(&p, VOCABULARY, NULL, 0);
        out[sampler_pick(s, logits)] += 1.0 / draws;
        sampler_destroy(&s);
    }
}

static const float logits[VOCABULARY] = {0.5f, 3, -1, 2, 2.5f, 0, -4, 1};

/* What is drawn follows the softmax over the tokens that the cuts leave. */
TEST(draws_follow_the_distribution_that_the_cuts_leave)
{
    static const struct {
        const char *name;
        struct sampling_params p;
        unsigned left; /* bit t: token t may come */
    } cases[] = {
        {"temperature 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1}, 0xff},
        {"temperature 2", {.temperature = 2, .top_p = 1, .repetition_penalty = 1}, 0xff},
        {"temperature 0.3", {.temperature = 0.3, .top_p = 1, .repetition_penalty = 1}, 0xff},
        {"top-k 3",
         {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 3},
         1 << 1 | 1 << 4 | 1 << 3},
        {"top-k 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 1}, 1 << 1},
        {"top-p 0.6", {.temperature = 1, .top_p = 0.6, .repetition_penalty = 1}, 1 << 1 | 1 << 4},
        {"top-p 0.01", {.temperature = 1, .top_p = 0.01, .repetition_penalty = 1}, 1 << 1},
        {"min-p 0.3",
         {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .min_p = 0.3},
         1 << 1 | 1 << 4 | 1 << 3},
        {"top-k 3, top-p 0.6",
         {.temperature = 1, .top_p = 0.6, .repetition_penalty = 1, .top_k = 3},
         1 << 1 | 1 << 4},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double got[VOCABULARY], want[VOCABULARY], total = 0;
        for (int i = 0; i < VOCABULARY; i++)
            total += want[i] =
                cases[c].left >> i & 1 ? exp((double)logits[i] / cases[c].p.temperature) : 0;
        frequencies(cases[c].p, logits, got);
        for (int i = 0; i < VOCABULARY; i++) {
            double p = want[i] / total,
                   five_sigma = 5 * sqrt(p * (1 - p) / test_share(DRAWS)) + 1e-9;
            if (!(fabs(got[i] - p) <= five_sigma))
                fail_msg("%s: token %d came with %.4f, expected %.4f", cases[c].name, i, got[i], p);
        }
    }
}

TEST(greedy_takes_the_first_of_the_greatest_and_leaves_the_logits_alone)
{
    float mine[VOCABULARY] = {1, 5, -2, 5, 0, 5, 1, 1}, before[VOCABULARY];
    memcpy(before, mine, sizeof mine);
    struct sampler *s = make(&sampling_greedy, VOCABULARY, NULL, 0);
    assert_int_equal(sampler_pick(s, mine), 1);
    assert_memory_equal(mine, before, sizeof mine);
    sampler_destroy(&s);
    assert_null(s);
}

TEST(a_seed_and_a_count_say_everything)
{
    struct sampling_params p = sampling_greedy;
    p.temperature = 1.5;
    p.seed = 42;
    uint32_t first[50];
    struct sampler *s = make(&p, VOCABULARY, NULL, 0);
    for (int i = 0; i < 50; i++)
        first[i] = sampler_pick(s, logits);
    sampler_destroy(&s);
    /* A sequence that is rebuilt counts what came before and goes on where it was. */
    s = make(&p, VOCABULARY, NULL, 0);
    for (int i = 0; i < 20; i++)
        sampler_accept(s, first[i]);
    for (int i = 20; i < 50; i++)
        assert_int_equal(sampler_pick(s, logits), first[i]);
    sampler_destroy(&s);
    int same = 0;
    p.seed = 43;
    s = make(&p, VOCABULARY, NULL, 0);
    for (int i = 0; i < 50; i++)
        same += sampler_pick(s, logits) == first[i];
    assert_true(same < 40);
    sampler_destroy(&s);
}

TEST(penalties_move_what_they_name)
{
    static const struct {
        const char *name;
        double repetition, presence, frequency;
        float logits[3];
        uint32_t prompt, output[3];
        uint32_t n_output, want;
    } cases[] = {
        {"repetition of the prompt divides", 2, 0, 0, {1.9f, 1, 1.1f}, 0, {0}, 0, 2},
        {"repetition multiplies what is negative", 2, 0, 0, {-1, -1.5f, -3}, 0, {0}, 0, 1},
        {"presence counts once", 1, 1, 0, {3, 2.5f, 1.9f}, 2, {0, 0, 0}, 3, 1},
        {"presence spares the prompt", 1, 1, 0, {3, 2.5f, 2}, 0, {0}, 0, 0},
        {"frequency counts every time", 1, 0, 0.2, {3, 2.5f, 2}, 2, {0, 0, 0}, 3, 1},
        {"frequency of one is small", 1, 0, 0.2, {3, 2.5f, 2}, 2, {0}, 1, 0},
        {"negative presence attracts", 1, -1, 0, {3, 2.5f, 2}, 2, {1}, 1, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct sampling_params p = sampling_greedy;
        p.repetition_penalty = cases[c].repetition;
        p.presence_penalty = cases[c].presence;
        p.frequency_penalty = cases[c].frequency;
        struct sampler *s = make(&p, 3, &cases[c].prompt, 1);
        for (uint32_t i = 0; i < cases[c].n_output; i++)
            sampler_accept(s, cases[c].output[i]);
        uint32_t got = sampler_pick(s, cases[c].logits);
        if (got != cases[c].want)
            fail_msg("%s: took %u", cases[c].name, got);
        sampler_destroy(&s);
    }
}

TEST(bias_forces_and_forbids)
{
    struct sampling_params p = sampling_greedy;
    struct sampling_bias bias[2] = {{6, 100}, {1, -100}};
    p.bias = (struct pack_list){bias, 2};
    struct sampler *s = make(&p, VOCABULARY, NULL, 0);
    assert_int_equal(sampler_pick(s, logits), 6);
    sampler_destroy(&s);
    bias[0].bias = 0;
    s = make(&p, VOCABULARY, NULL, 0);
    assert_int_equal(sampler_pick(s, logits), 4);
    sampler_destroy(&s);
}

/* The cuts look at the front of a large vocabulary only, and must find the same as a whole sort
 * would. */
TEST(top_p_of_a_flat_distribution_keeps_its_share)
{
    enum { LARGE = 5000 };
    static float flat[LARGE];
    struct sampling_params p = sampling_greedy;
    p.temperature = 1;
    p.top_p = 0.5;
    for (int i = 0; i < LARGE; i++)
        flat[i] = (float)(i * 7919 % LARGE) * 1e-7f;
    unsigned highest = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        p.seed = seed;
        struct sampler *s = make(&p, LARGE, NULL, 0);
        unsigned rank = LARGE - 1 - sampler_pick(s, flat) * 7919 % LARGE;
        highest = rank > highest ? rank : highest;
        sampler_destroy(&s);
    }
    assert_in_range(highest, LARGE * 4 / 10, LARGE / 2);
}

TEST(extremes_do_not_break_a_draw)
{
    struct sampling_params p = sampling_greedy;
    const float odd[4] = {-INFINITY, 1e30f, -1e30f, -INFINITY}, nan_first[4] = {NAN, 1, 2, 0};
    p.temperature = 1e-3;
    p.top_k = 100;
    p.top_p = 0.9;
    p.min_p = 1;
    struct sampler *s = make(&p, 4, NULL, 0);
    assert_int_equal(sampler_pick(s, odd), 1);
    assert_int_equal(sampler_pick(s, nan_first), 2);
    sampler_destroy(&s);
}

TEST(values_out_of_range_are_named)
{
    const struct {
        struct sampling_params p;
        const char *says;
    } cases[] = {
        {{.temperature = -0.1, .top_p = 1, .repetition_penalty = 1}, "temperature is -0.1"},
        {{.temperature = NAN, .top_p = 1, .repetition_penalty = 1}, "temperature"},
        {{.top_p = 0, .repetition_penalty = 1}, "top_p is 0"},
        {{.top_p = 1.1, .repetition_penalty = 1}, "top_p is 1.1"},
        {{.top_p = 1, .min_p = 2, .repetition_penalty = 1}, "min_p is 2"},
        {{.top_p = 1, .repetition_penalty = 0}, "repetition_penalty is 0"},
        {{.top_p = 1, .repetition_penalty = 1, .presence_penalty = 2.5}, "presence_penalty is 2.5"},
        {{.top_p = 1, .repetition_penalty = 1, .frequency_penalty = -3}, "frequency_penalty is -3"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = {(struct sampling_bias[]){{9, 1}}, 1}},
         "token 9"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = {(struct sampling_bias[]){{1, 101}}, 1}},
         "logit_bias of token 1 is 101"},
        {{.top_p = 1, .repetition_penalty = 1, .bias = {NULL, 301}}, "301"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct sampler *s = NULL;
        assert_int_equal(sampler_create(&cases[i].p, VOCABULARY, NULL, 0, &s, &e), HP_EINVAL);
        assert_null(s);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
    }
}

/* ---- as before, to the bit ---- */

static float normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += random_unit(state);
    return (float)(sum - 6);
}

enum logits_shape {
    SHAPE_FLAT,
    SHAPE_NORMAL,
    SHAPE_PEAKED,
    SHAPE_TIES,
    SHAPE_SAME,
    SHAPE_STEEP,
    SHAPE_HOLES,
    SHAPES
};

static void row_make(float *row, int n, enum logits_shape shape, uint64_t *state)
{
    for (int i = 0; i < n; i++) {
        float x = normal(state);
        switch (shape) {
        case SHAPE_FLAT: row[i] = x * 0.01f; break;
        case SHAPE_NORMAL: row[i] = x * 2; break;
        case SHAPE_PEAKED: row[i] = x * 2 + (random_unit(state) < 0.001 ? 12 : 0); break;
        case SHAPE_TIES: row[i] = roundf(x * 4) / 4; break;
        case SHAPE_SAME: row[i] = 1.5f; break;
        case SHAPE_STEEP: row[i] = x * 100; break;
        default: row[i] = i % 5 == 3 ? NAN : i % 7 == 2 ? -INFINITY : x; break;
        }
    }
}

static struct sampling_bias twice[] = {{1, 3}, {1, -1}};
static const struct sampling_params variants[] = {
    {.top_p = 1, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
    {.temperature = 0.7, .top_p = 0.95, .repetition_penalty = 1},
    {.temperature = 1.3, .top_p = 0.5, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 0.999999, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 1, .top_k = 40, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 1, .top_k = 3, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 1, .top_k = 2000, .repetition_penalty = 1},
    {.temperature = 0.8, .top_p = 0.9, .top_k = 40, .repetition_penalty = 1},
    {.temperature = 0.8, .top_p = 0.9, .top_k = 1000000, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 0.95, .min_p = 0.05, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 1, .min_p = 0.1, .repetition_penalty = 1},
    {.temperature = 0.9,
     .top_p = 0.9,
     .top_k = 50,
     .min_p = 0.02,
     .repetition_penalty = 1.1,
     .presence_penalty = 0.5,
     .frequency_penalty = 0.3,
     .bias = {twice, 2}},
    {.top_p = 1, .repetition_penalty = 1.3, .presence_penalty = 1},
    {.temperature = 0.01, .top_p = 0.9, .repetition_penalty = 1},
    {.temperature = 100, .top_p = 0.9, .repetition_penalty = 1},
};

static void compare_picks(const struct sampler_kernels *k, const struct sampling_params *p,
                          float *row, int vocabulary, enum logits_shape shape, int picks,
                          uint64_t *state)
{
    static const uint32_t prompt[] = {0, 1, 1, 3};
    uint32_t known = vocabulary < 4 ? 1 : 4;
    struct sampler *s = make(p, vocabulary, prompt, known);
    struct old_sampler *old = old_create(p, vocabulary, prompt, known);
    sampler_kernels_use(s, k);
    for (int i = 0; i < picks; i++) {
        if (i % 4 == 0)
            row_make(row, vocabulary, shape, state);
        uint32_t want = old_pick(old, row), got = sampler_pick(s, row);
        if (got != want)
            fail_msg("%s: vocabulary %d, shape %d, temperature %g, top_p %g, top_k %llu, min_p %g, "
                     "pick %d: %u, not %u",
                     k->name, vocabulary, (int)shape, p->temperature, p->top_p,
                     (unsigned long long)p->top_k, p->min_p, i, got, want);
    }
    sampler_destroy(&s);
    old_destroy(old);
}

TEST(every_pick_is_the_one_that_sorting_everything_gives)
{
    static const struct {
        int vocabulary, picks;
    } sizes[] = {{2, 40}, {7, 40}, {64, 40}, {1001, 16}, {5000, 8}, {30000, 1}};
    uint64_t random = 7;
    float *row = malloc(40000 * sizeof *row);
    for (int k = 0; sampler_kernels_all[k]; k++)
        for (size_t z = 0; sampler_kernels_all[k]->supported() && z < sizeof sizes / sizeof *sizes;
             z++)
            for (size_t v = 0; v < sizeof variants / sizeof *variants; v += (size_t)test_stride())
                for (int shape = 0; shape < SHAPES; shape++) {
                    struct sampling_params p = variants[v];
                    p.seed = random_next(&random);
                    compare_picks(sampler_kernels_all[k], &p, row, sizes[z].vocabulary,
                                  (enum logits_shape)shape, sizes[z].picks, &random);
                }
    free(row);
}

/* More than the sampler counts in one go. */
TEST(a_vocabulary_of_300000_is_picked_from_as_any)
{
    enum { LARGE = 300000 };
    static const struct sampling_params large[] = {
        {.temperature = 1, .top_p = 0.9, .repetition_penalty = 1, .seed = 1},
        {.temperature = 1, .top_p = 1, .top_k = 50, .repetition_penalty = 1, .seed = 2},
        {.temperature = 1, .top_p = 0.8, .top_k = 100000, .repetition_penalty = 1, .seed = 3}};
    uint64_t random = 11;
    float *row = malloc(LARGE * sizeof *row);
    for (size_t v = 0; v < sizeof large / sizeof *large; v++)
        for (int shape = SHAPE_FLAT; shape <= SHAPE_SAME; shape++)
            compare_picks(sampler_kernels_best(), &large[v], row, LARGE, (enum logits_shape)shape,
                          2, &random);
    free(row);
}

TEST(weights_have_the_same_bits_with_all_instructions)
{
    enum { N = 1 << 16 };
    float *row = malloc(N * sizeof *row), *want = malloc(N * sizeof *want),
          *got = malloc(N * sizeof *got);
    uint64_t random = 3;
    for (int round = 0; round < test_share(24); round++) {
        double temperature = 0.05 + 2 * random_unit(&random);
        for (int i = 0; i < N; i++)
            row[i] = (float)(-120 * temperature * random_unit(&random));
        row[5] = NAN;
        row[6] = -INFINITY;
        row[7] = 0;
        sampler_plain.weigh(row, N, 0, temperature, want);
        for (int k = 0; sampler_kernels_all[k]; k++) {
            if (!sampler_kernels_all[k]->supported())
                continue;
            memset(got, 0xff, N * sizeof *got);
            sampler_kernels_all[k]->weigh(row, N, 0, temperature, got);
            assert_memory_equal(got, want, N * sizeof *got);
        }
    }
    free(row);
    free(want);
    free(got);
}

TEST(every_set_of_instructions_rules_out_the_same_logits)
{
    enum { N = 1000 };
    float row[N], want[N], got[N];
    uint64_t allowed[N / 64 + 1], random = 5;
    for (int i = 0; i < N; i++)
        row[i] = i % 50 ? (float)i : i % 100 ? NAN : -INFINITY;
    for (size_t n = 0; n <= N; n += n < 130 ? 1 : 29) {
        for (size_t i = 0; i <= N / 64; i++)
            allowed[i] = i % 4 == 1 ? 0 : i % 4 == 2 ? UINT64_MAX : random_next(&random);
        for (size_t i = 0; i < N; i++)
            want[i] = i >= n || allowed[i / 64] >> i % 64 & 1 ? row[i] : -INFINITY;
        for (int k = 0; sampler_kernels_all[k]; k++) {
            if (!sampler_kernels_all[k]->supported())
                continue;
            memcpy(got, row, sizeof got);
            sampler_kernels_all[k]->rule_out(got, allowed, n);
            assert_memory_equal(got, want, sizeof got);
        }
    }
}

TEST(an_output_does_not_end_before_it_has_its_least_tokens)
{
    static const uint32_t late[] = {1, 4}; /* the likeliest two */
    for (int warm = 0; warm < 2; warm++) {
        struct sampling_params p = sampling_greedy;
        p.temperature = warm;
        p.top_k = (uint64_t)warm;
        p.min_tokens = 3;
        p.late_ids = (struct pack_u32s){late, 2};
        struct sampler *s = make(&p, VOCABULARY, NULL, 0);
        sampler_accept(s, 6); /* one that was told before counts */
        for (int i = 1; i < 5; i++)
            assert_int_equal(sampler_pick(s, logits), i < 3 ? 3 : 1);
        sampler_destroy(&s);
    }
    struct sampling_params p = sampling_greedy;
    struct sampler *none;
    static const uint32_t beyond[] = {VOCABULARY};
    p.late_ids = (struct pack_u32s){beyond, 1};
    assert_int_equal(sampler_create(&p, VOCABULARY, NULL, 0, &none, NULL), HP_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_distribution_that_the_cuts_leave),
        cmocka_unit_test(greedy_takes_the_first_of_the_greatest_and_leaves_the_logits_alone),
        cmocka_unit_test(a_seed_and_a_count_say_everything),
        cmocka_unit_test(penalties_move_what_they_name),
        cmocka_unit_test(bias_forces_and_forbids),
        cmocka_unit_test(every_set_of_instructions_rules_out_the_same_logits),
        cmocka_unit_test(an_output_does_not_end_before_it_has_its_least_tokens),
        cmocka_unit_test(top_p_of_a_flat_distribution_keeps_its_share),
        cmocka_unit_test(extremes_do_not_break_a_draw),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(every_pick_is_the_one_that_sorting_everything_gives),
        cmocka_unit_test(a_vocabulary_of_300000_is_picked_from_as_any),
        cmocka_unit_test(weights_have_the_same_bits_with_all_instructions),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
