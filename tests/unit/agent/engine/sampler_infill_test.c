/* llama-server's sampler "infill": which candidates are left. That a sampler draws from them is
 * sampler_steps_test.c's. */
#include <stdio.h>
#include <string.h>

#include "agent/engine/sampler_infill.h"
#include "agent/engine/sampler_kernels.h"
#include "model/grammar/token_tree.h"
#include "tests/test.h"

enum { A, AB, ABC, B, END, SPECIAL, LONGER_SPECIAL, C, D, E, F, OTHER_END, VOCABULARY };

static struct token_tree *tree(void)
{
    static const char *const words[VOCABULARY] = {
        [A] = "a",
        [AB] = "ab",
        [ABC] = "abc",
        [B] = "b",
        [SPECIAL] = "\xFF<x",
        [LONGER_SPECIAL] = "\xFF<xy",
        [C] = "c",
        [D] = "d",
        [E] = "e",
        [F] = "f",
    };
    struct token_text texts[VOCABULARY] = {{0}};
    struct token_tree *t = NULL;
    for (int i = 0; i < VOCABULARY; i++)
        if (words[i])
            texts[i] = (struct token_text){words[i], (uint32_t)strlen(words[i])};
    assert_int_equal(token_tree_make(texts, VOCABULARY, &t, NULL), 0);
    return t;
}

struct weighed {
    uint32_t token;
    float weight;
};

static const uint32_t ends[] = {END, OTHER_END};

/* By llama.cpp's own steps, worked out by hand; each row ends with a token without a weight. What
 * joined another one changes what stays, and not how much it weighs in the draw. */
static const struct {
    struct weighed given[8], left[8];
    size_t n_ends;
} cases[] = {
    {{{A, .5f}, {END, .3f}}, {{END, .3f}}, 2}, /* 3 * .3 * 2 > .5: it ends */
    {{{A, .5f}, {END, .05f}}, {{A, .5f}, {END, .05f}}, 2},
    {{{A, .5f}, {B, .4f}, {END, .01f}, {OTHER_END, .001f}},
     {{A, .5f}, {B, .4f}, {END, .01f}, {OTHER_END, .001f}},
     2},                                               /* 3 * .011 * 4 < .9 */
    {{{AB, .4f}, {A, .3f}, {B, .3f}}, {{AB, .4f}}, 2}, /* "a" begins "ab"; "b" has less than half */
    {{{A, .4f}, {AB, .3f}, {ABC, .1f}, {B, .2f}}, {{A, .4f}}, 2},
    {{{SPECIAL, .5f}, {LONGER_SPECIAL, .5f}}, {{SPECIAL, .5f}, {LONGER_SPECIAL, .5f}}, 2},
    {{{B, .17f}, {C, .17f}, {D, .17f}, {E, .17f}, {F, .16f}, {A, .16f}},
     {{END, 1}},
     2}, /* unsure */
    {{{B, .18f}, {C, .17f}, {D, .17f}, {E, .17f}, {F, .16f}, {A, .15f}}, {{B, .18f}}, 0},
    {{{F, 1}}, {{F, 1}}, 2},
    {{{END, 1}}, {{END, 1}}, 2},
};

TEST(candidates_are_cut_and_joined_as_llama_server_does)
{
    struct token_tree *t = tree();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t c[8];
        size_t n = 0;
        for (; n < 8 && cases[i].given[n].weight > 0; n++) /* from the lightest on */
            for (size_t k = n + 1; k-- > 0;)
                c[k] = k ? c[k - 1]
                         : sampler_candidate(cases[i].given[n].weight, cases[i].given[n].token);
        const struct infill_vocabulary v = {t, ends, cases[i].n_ends};
        n = sampler_infill_cut(&v, c, n);
        for (size_t k = 0; k < 8; k++) {
            const struct weighed *w = &cases[i].left[k];
            if ((k < n) != (w->weight > 0))
                fail_msg("case %zu: %zu are left", i, n);
            if (k >= n)
                break;
            float weight = sampler_candidate_weight(c[k]);
            if (sampler_candidate_token(c[k]) != w->token || weight < w->weight * .999f ||
                weight > w->weight * 1.001f)
                fail_msg("case %zu: %u with %g in place %zu", i, sampler_candidate_token(c[k]),
                         (double)weight, k);
        }
    }
    token_tree_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_are_cut_and_joined_as_llama_server_does),
    };
    return cmocka_run_group_tests_name("sampler_infill", tests, NULL, NULL);
}
