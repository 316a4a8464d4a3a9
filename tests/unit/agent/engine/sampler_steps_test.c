/* Samplers in an order of their own, those for gaps, and penalties over a window: against what they
 * say, computed the plain way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/sampler.h"
#include "agent/engine/sampler_cuts.h"
#include "agent/engine/sampler_infill.h"
#include "model/grammar/token_tree.h"
#include "tests/share.h"
#include "tests/test.h"

enum { VOCABULARY = 12, DRAWS = 20000, END = 10, OTHER_END = 11 };

static uint64_t steps_of(const char *letters)
{
    static const char names[] = "?tkpmi";
    uint64_t steps = 0;
    for (int i = 0; letters[i]; i++)
        steps |= (uint64_t)(strchr(names, letters[i]) - names) << i * SAMPLING_STEP_BITS;
    return steps;
}

/* ---- the plain way ---- */

struct plain_token {
    double logit, weight;
    int token;
};

static int plain_compare(const void *a, const void *b)
{
    const struct plain_token *x = a, *y = b;
    return x->weight > y->weight ? -1 : x->weight < y->weight ? 1 : x->token - y->token;
}

static double plain_mass(const struct plain_token *t, int n)
{
    double mass = 0;
    for (int i = 0; i < n; i++)
        mass += t[i].weight;
    return mass;
}

static int plain_step(char step, const struct sampling_params *p, struct plain_token *t, int n)
{
    double mass = plain_mass(t, n), sum = 0;
    int kept = 0;
    for (int i = 0; step == 't' && i < n; i++)
        t[i].weight = exp(t[i].logit / p->temperature);
    if (step == 'k')
        return n < (int)p->top_k ? n : (int)p->top_k;
    if (step == 'p') {
        while (kept < n && sum < p->top_p * mass)
            sum += t[kept++].weight;
        return kept;
    }
    while (step == 'm' && kept < n && t[kept].weight >= p->min_p * t[0].weight)
        kept++;
    return step == 'm' ? kept : n;
}

/* The share of each token; the logits differ. */
static void plain_shares(const char *order, const struct sampling_params *p, const float *logits,
                         double out[VOCABULARY])
{
    struct plain_token t[VOCABULARY];
    int n = VOCABULARY;
    for (int i = 0; i < n; i++)
        t[i] = (struct plain_token){(double)logits[i], exp((double)logits[i]), i};
    qsort(t, VOCABULARY, sizeof *t, plain_compare);
    for (int i = 0; order[i]; i++)
        n = plain_step(order[i], p, t, n);
    memset(out, 0, VOCABULARY * sizeof *out);
    for (int i = 0; i < n; i++)
        out[t[i].token] = t[i].weight / plain_mass(t, n);
}

static struct sampler *sampler_of(const struct sampling_params *p)
{
    struct sampler *s = NULL;
    struct err e = {0};
    if (sampler_create(p, VOCABULARY, NULL, 0, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

TEST(samplers_are_run_in_the_order_that_is_asked_for)
{
    static const float logits[VOCABULARY] = {0.5f, 3,     -1,    2,     2.5f, 0,
                                             -4,   1.25f, 1.75f, -0.5f, 0.1f, 2.75f};
    static const char *const orders[] = {"t", "kpt", "pkt", "mt", "mkp", "pmkt", "tmp", "kmpt"};
    int draws = test_share(DRAWS);
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        struct sampling_params p = {.temperature = 2.5,
                                    .top_p = 0.8,
                                    .min_p = 0.15,
                                    .repetition_penalty = 1,
                                    .top_k = 6,
                                    .steps = steps_of(orders[o])};
        double got[VOCABULARY] = {0}, want[VOCABULARY];
        plain_shares(orders[o], &p, logits, want);
        for (int seed = 0; seed < draws; seed++) {
            p.seed = (uint64_t)seed;
            struct sampler *s = sampler_of(&p);
            got[sampler_pick(s, logits)] += 1.0 / draws;
            sampler_destroy(&s);
        }
        for (int i = 0; i < VOCABULARY; i++)
            if (!(fabs(got[i] - want[i]) <= 5 * sqrt(want[i] * (1 - want[i]) / draws) + 1e-9))
                fail_msg("%s: token %d came with %.4f, expected %.4f", orders[o], i, got[i],
                         want[i]);
    }
}

TEST(a_temperature_of_0_leaves_the_likeliest_wherever_it_stands)
{
    static const float logits[VOCABULARY] = {1, 5, -2, 5, 0, 5, 1, 1};
    static const char *const orders[] = {"t", "tk", "kpt", "mpkt"};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        struct sampling_params p = {.top_p = 0.9,
                                    .min_p = 0.1,
                                    .repetition_penalty = 1,
                                    .top_k = 5,
                                    .steps = steps_of(orders[o])};
        struct sampler *s = sampler_of(&p);
        assert_int_equal(sampler_pick(s, logits), 1);
        sampler_destroy(&s);
    }
}

TEST(steps_that_make_no_sense_are_refused)
{
    static const struct {
        uint64_t steps, top_k;
    } wrong[] = {{0x6, 5},  {0x33, 5},   {0x5, 5},   {0x25, 5},
                 {0x52, 0}, {0x52, 257}, {0x103, 5}, {UINT64_MAX, 5}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sampling_params p = sampling_greedy;
        struct err e = {0};
        p.steps = wrong[i].steps;
        p.top_k = wrong[i].top_k;
        assert_int_equal(sampling_check(&p, VOCABULARY, &e), HP_EINVAL);
        assert_memory_equal(e.text, "samplers: ", 10);
    }
    struct sampling_params p = sampling_greedy;
    p.steps = steps_of("kpi");
    p.top_k = 256;
    assert_int_equal(sampling_check(&p, VOCABULARY, NULL), 0);
}

/* ---- gaps ---- */

static struct token_tree *texts_tree(void)
{
    static const char *const texts[VOCABULARY] = {"r",  "re", "return", " ", "  ", "x",
                                                  "xy", "z",  "q",      "",  "",   ""};
    struct token_text list[VOCABULARY];
    struct token_tree *t = NULL;
    for (int i = 0; i < VOCABULARY; i++)
        list[i] = (struct token_text){texts[i], (uint32_t)strlen(texts[i])};
    assert_int_equal(token_tree_make(list, VOCABULARY, &t, NULL), 0);
    return t;
}

TEST(a_gap_ends_where_it_is_not_sure_what_stands_there)
{
    static const uint32_t ends[] = {END, OTHER_END};
    static const struct {
        const char *claim;
        size_t n;
        struct {
            uint32_t token;
            float weight;
        } in[6];
        size_t n_out;
        uint32_t out[3];
    } cases[] = {
        {"an end counts for more the more may follow",
         3,
         {{5, 1}, {7, 0.5f}, {END, 0.2f}},
         1,
         {END}},
        {"ends are left to each other",
         4,
         {{5, 1}, {END, 0.5f}, {7, 0.5f}, {OTHER_END, 0.6f}},
         2,
         {OTHER_END, END}},
        {"what is likely enough stays with its end", 2, {{5, 1}, {END, 0.1f}}, 2, {5, END}},
        {"beginnings join what they begin",
         4,
         {{7, 1}, {2, 0.5f}, {1, 0.4f}, {0, 0.3f}},
         2,
         {7, 2}},
        {"of those that join the likelier stays, though shorter",
         3,
         {{0, 1}, {2, 0.5f}, {8, 0.1f}},
         1,
         {0}},
        {"what has less than a fifth is dropped", 3, {{5, 1}, {7, 0.25f}, {8, 0.1f}}, 1, {5}},
        {"and all of it is the end",
         6,
         {{2, 1}, {3, 0.99f}, {5, 0.98f}, {7, 0.97f}, {8, 0.96f}, {9, 0.95f}},
         1,
         {END}},
        {"of two that are left the lighter one has to have a third",
         2,
         {{5, 1}, {7, 0.45f}},
         1,
         {5}},
        {"or stays", 2, {{5, 1}, {7, 0.55f}}, 2, {5, 7}},
        {"alone it is sure", 1, {{9, 0.25f}}, 1, {9}},
    };
    struct token_tree *t = texts_tree();
    const struct infill_vocabulary v = {t, ends, 2};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        uint64_t c[6];
        for (size_t i = 0; i < cases[k].n; i++)
            c[i] = sampler_candidate(cases[k].in[i].weight, cases[k].in[i].token);
        size_t n = sampler_infill_cut(&v, c, cases[k].n);
        bool same = n == cases[k].n_out;
        for (size_t i = 0; i < n && same; i++)
            same = sampler_candidate_token(c[i]) == cases[k].out[i];
        if (!same)
            fail_msg("%s: %zu are left, the first is %u", cases[k].claim, n,
                     sampler_candidate_token(c[0]));
    }
    token_tree_destroy(&t);
}

TEST(a_sampler_for_gaps_knows_texts_and_ends)
{
    float logits[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = -20;
    logits[0] = 2; /* "r", which "return" begins with */
    logits[2] = 1.9f;
    logits[5] = 2.1f;
    struct sampling_params p = sampling_greedy;
    const uint32_t end = END;
    p.top_k = 4;
    p.temperature = 1;
    p.steps = steps_of("ki");
    struct token_tree *t = texts_tree();
    struct sampler *s = sampler_of(&p);
    assert_true(sampler_needs_texts(s));
    sampler_texts_use(s, t);
    assert_int_equal(sampler_expect(s, 100, &end, 1, NULL), 0);
    for (int i = 0; i < 50; i++) /* both have more than a third, "return" is within "r" */
        assert_int_not_equal(sampler_pick(s, logits), 2);
    logits[END] = 1;
    assert_int_equal(sampler_pick(s, logits), END);
    sampler_destroy(&s);
    token_tree_destroy(&t);
}

/* ---- penalties over a window ---- */

/* The plain way: all that was said, counted anew. */
static uint32_t plain_penalised(const uint32_t *said, size_t n, const struct sampling_params *p,
                                const float *logits)
{
    uint32_t best = 0;
    float most = -INFINITY;
    for (uint32_t t = 0; t < VOCABULARY; t++) {
        size_t from = n > p->penalty_window ? n - (size_t)p->penalty_window : 0;
        unsigned times = 0;
        float logit = logits[t];
        for (size_t i = from; i < n; i++)
            times += said[i] == t;
        if (times) {
            logit = logit > 0 ? logit / (float)p->repetition_penalty
                              : logit * (float)p->repetition_penalty;
            logit -= (float)(p->presence_penalty + p->frequency_penalty * times);
        }
        if (logit > most) {
            most = logit;
            best = t;
        }
    }
    return best;
}

TEST(penalties_forget_what_lies_behind_their_window)
{
    static const float logits[VOCABULARY] = {4, 3.5f, 3, 2.5f, 2, 1, 0.5f, 0, -1, -2, -3, -4};
    for (uint64_t window = 1; window < 12; window++) {
        struct sampling_params p = {.top_p = 1,
                                    .repetition_penalty = 1.4,
                                    .presence_penalty = 0.3,
                                    .frequency_penalty = 0.6,
                                    .penalty_window = window};
        uint32_t said[40] = {3, 0, 7, 0, 0};
        struct sampler *s = NULL, *anew = NULL;
        assert_int_equal(sampler_create(&p, VOCABULARY, said, 5, &s, NULL), 0);
        for (size_t n = 5; n < 40; n++) {
            said[n] = plain_penalised(said, n, &p, logits);
            assert_int_equal(sampler_pick(s, logits), said[n]);
        }
        /* ... also of a sequence that is begun anew. */
        assert_int_equal(sampler_create(&p, VOCABULARY, said, 5, &anew, NULL), 0);
        for (size_t n = 5; n < 40; n++)
            sampler_accept(anew, said[n]);
        assert_int_equal(sampler_pick(anew, logits), plain_penalised(said, 40, &p, logits));
        sampler_destroy(&anew);
        sampler_destroy(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samplers_are_run_in_the_order_that_is_asked_for),
        cmocka_unit_test(a_temperature_of_0_leaves_the_likeliest_wherever_it_stands),
        cmocka_unit_test(steps_that_make_no_sense_are_refused),
        cmocka_unit_test(a_gap_ends_where_it_is_not_sure_what_stands_there),
        cmocka_unit_test(a_sampler_for_gaps_knows_texts_and_ends),
        cmocka_unit_test(penalties_forget_what_lies_behind_their_window),
    };
    return cmocka_run_group_tests_name("sampler steps", tests, NULL, NULL);
}
