/* What is sampled under a grammar: allowed, whole within its tokens, and the same when it is begun
 * anew with the tokens said so far. */
#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "agent/engine/grammar_shelf.h"
#include "agent/engine/look_ahead.h"
#include "agent/engine/sampler.h"
#include "tests/unit/model/grammar/grammar_fixture.h"

enum { MOST = 30 };

static const struct sampling_params kinds[] = {
    {.top_p = 1, .repetition_penalty = 1},
    {.temperature = 2, .top_p = 1, .repetition_penalty = 1, .seed = 7},
    {.temperature = 0.7, .top_p = 0.5, .repetition_penalty = 1.3, .top_k = 3, .seed = 8},
    {.temperature = 1, .top_p = 1, .min_p = 0.9, .repetition_penalty = 1, .seed = 9},
};

static struct sampler *sampler_of(const struct sampling_params *kind, const struct buffer *wire,
                                  struct automaton *a, const uint32_t *said, size_t n_said)
{
    struct sampling_params p = *kind;
    struct sampler *s = NULL;
    uint32_t end = FIXTURE_END;
    p.grammar = (struct pack_span){wire->data, wire->size};
    struct token_tree *t = fixture_tree();
    assert_int_equal(sampler_create(&p, (int)t->vocabulary, NULL, 0, &s, NULL), 0);
    token_tree_destroy(&t);
    assert_int_equal(sampler_expect(s, MOST, &end, 1, NULL), 0);
    for (size_t i = 0; i < n_said; i++)
        sampler_accept(s, said[i]);
    assert_int_equal(sampler_constrain(s, a, NULL), 0);
    return s;
}

TEST(what_is_sampled_is_allowed_and_goes_on_where_it_was)
{
    const char pattern[] = "[ab]{3,}-[0-9]+;";
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    float *logits = calloc(t->vocabulary, sizeof *logits);
    assert_int_equal(grammar_source_regular(pattern, sizeof pattern - 1, "regex", &wire, NULL), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    for (uint32_t i = 0; i < t->vocabulary; i++)
        logits[i] = i == 'z' ? 50 : i == '?' ? NAN : (float)sin(i);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint32_t said[MOST] = {0};
        size_t n = 0;
        struct sampler *s = sampler_of(&kinds[k], &wire, a, NULL, 0);
        do {
            struct sampler *anew = sampler_of(&kinds[k], &wire, a, said, n);
            assert_true(n < MOST);
            said[n] = sampler_pick(s, logits);
            assert_int_equal(sampler_pick(anew, logits), said[n]);
            sampler_destroy(&anew);
        } while (said[n++] != FIXTURE_END);
        struct matcher *m = NULL;
        uint32_t end = FIXTURE_END;
        assert_int_equal(matcher_create(a, MOST, &end, 1, &m, NULL), 0);
        for (size_t i = 0; i < n; i++)
            matcher_accept(m, said[i]);
        assert_int_equal(matcher_error(m, NULL), 0);
        assert_true(matcher_whole(m));
        matcher_destroy(&m);
        sampler_destroy(&s);
    }
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
    free(logits);
}

/* Nothing that is allowed has a likelihood: the shortest end is said. */
TEST(logits_that_rule_out_all_that_is_allowed_do_not_matter)
{
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    float *logits = calloc(t->vocabulary, sizeof *logits);
    for (uint32_t i = 0; i < t->vocabulary; i++)
        logits[i] = -INFINITY;
    assert_int_equal(grammar_source_regular("xy", 2, "regex", &wire, NULL), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    struct sampler *s = sampler_of(&kinds[1], &wire, a, NULL, 0);
    assert_int_equal(sampler_pick(s, logits), 'x');
    assert_int_equal(sampler_pick(s, logits), 'y');
    assert_int_equal(sampler_pick(s, logits), FIXTURE_END);
    sampler_destroy(&s);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
    free(logits);
}

/* Until nothing is lacking: one that was taken back before its turn is given again. */
static void looked_after(struct look_ahead *l, struct sampler *const *list, size_t n)
{
    uint64_t until = env_now_ns(&env_real) + (uint64_t)(60e9 * env_time_scale());
    bool lacking = true;
    while (lacking) {
        assert_true(env_now_ns(&env_real) < until);
        for (size_t i = 0; i < n; i++)
            look_ahead_add(l, list[i]);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        look_ahead_stop(l);
        lacking = false;
        for (size_t i = 0; i < n; i++)
            lacking |= sampler_lacks(list[i]);
    }
}

TEST(samplers_that_are_looked_after_lack_nothing_and_pick_the_same)
{
    enum { SAMPLERS = 3 };
    const char pattern[] = "[ab]{3,}-[0-9]+;";
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct sampler *early[SAMPLERS], *late[SAMPLERS];
    struct look_ahead *l = NULL;
    float *logits = calloc(t->vocabulary, sizeof *logits);
    assert_int_equal(grammar_source_regular(pattern, sizeof pattern - 1, "regex", &wire, NULL), 0);
    struct automaton *ahead = fixture_automaton(&wire, t), *behind = fixture_automaton(&wire, t);
    assert_int_equal(look_ahead_create(&l, NULL), 0);
    look_ahead_stop(l); /* of none */
    for (int i = 0; i < SAMPLERS; i++) {
        early[i] = sampler_of(&kinds[1 + i], &wire, ahead, NULL, 0);
        late[i] = sampler_of(&kinds[1 + i], &wire, behind, NULL, 0);
    }
    assert_true(sampler_lacks(early[0]));
    for (int n = 0; n < 8; n++) {
        looked_after(l, early, SAMPLERS);
        for (uint32_t i = 0; i < t->vocabulary; i++)
            logits[i] = (float)sin((double)i * (n + 1));
        for (int i = 0; i < SAMPLERS; i++)
            assert_int_equal(sampler_pick(early[i], logits), sampler_pick(late[i], logits));
    }
    for (int i = 0; i < SAMPLERS; i++)
        look_ahead_add(l, early[i]); /* it ends while some may wait */
    look_ahead_destroy(&l);
    for (int i = 0; i < SAMPLERS; i++) {
        sampler_destroy(&early[i]);
        sampler_destroy(&late[i]);
    }
    automaton_destroy(&ahead);
    automaton_destroy(&behind);
    token_tree_destroy(&t);
    buffer_free(&wire);
    free(logits);
}

/* The tree is made without being asked for; what was made is told, and found at once. */
static void shelf_made(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

TEST(the_tree_of_a_vocabulary_is_made_before_a_grammar_comes)
{
    static const char model[] = "examples/demo-model/demo-q8_0.gguf";
    struct buffer wire = {0};
    struct automaton *a = NULL, *same = NULL;
    atomic_int made = 0;
    assert_int_equal(grammar_source_regular("x{3}", 4, "regex", &wire, NULL), 0);
    struct pack_span grammar = {wire.data, wire.size};
    struct grammar_shelf *s = grammar_shelf_create(model, 300, shelf_made, &made);
    uint64_t until = env_now_ns(&env_real) + (uint64_t)(60e9 * env_time_scale());
    while (!atomic_load(&made) && env_now_ns(&env_real) < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(atomic_load(&made), 1);
    assert_true(grammar_shelf_ready(s));
    assert_int_equal(grammar_shelf_find(s, grammar, &a, NULL), 0);
    assert_int_equal(grammar_shelf_find(s, grammar, &same, NULL), 0);
    assert_ptr_equal(a, same);
    grammar_shelf_destroy(&s);
    /* One that nobody waited for, and one that is asked at once. */
    s = grammar_shelf_create(model, 300, NULL, NULL);
    grammar_shelf_destroy(&s);
    s = grammar_shelf_create(model, 300, NULL, NULL);
    assert_int_equal(grammar_shelf_find(s, grammar, &a, NULL), 0);
    grammar_shelf_destroy(&s);
    buffer_free(&wire);
}

TEST(a_model_that_cannot_be_read_refuses_grammars_by_what_is_wrong)
{
    struct buffer wire = {0};
    struct automaton *a = NULL;
    struct err e = {0};
    assert_int_equal(grammar_source_regular("xy", 2, "regex", &wire, NULL), 0);
    struct grammar_shelf *s = grammar_shelf_create("/nowhere/model.gguf", 300, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        assert_true(grammar_shelf_find(s, (struct pack_span){wire.data, wire.size}, &a, &e) < 0);
        assert_non_null(strstr(e.text, "the model's file"));
        assert_null(strstr(e.text, "/nowhere"));
    }
    grammar_shelf_destroy(&s);
    buffer_free(&wire);
}

TEST(a_stage_without_a_tokenizer_refuses_grammars)
{
    struct buffer wire = {0};
    struct automaton *a = NULL;
    struct err e = {0};
    assert_int_equal(grammar_source_regular("xy", 2, "regex", &wire, NULL), 0);
    struct grammar_shelf *s = grammar_shelf_create(NULL, 300, NULL, NULL);
    assert_int_equal(grammar_shelf_find(s, (struct pack_span){wire.data, wire.size}, &a, &e),
                     HP_EUNSUPPORTED);
    grammar_shelf_destroy(&s);
    buffer_free(&wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sampled_is_allowed_and_goes_on_where_it_was),
        cmocka_unit_test(logits_that_rule_out_all_that_is_allowed_do_not_matter),
        cmocka_unit_test(samplers_that_are_looked_after_lack_nothing_and_pick_the_same),
        cmocka_unit_test(the_tree_of_a_vocabulary_is_made_before_a_grammar_comes),
        cmocka_unit_test(a_model_that_cannot_be_read_refuses_grammars_by_what_is_wrong),
        cmocka_unit_test(a_stage_without_a_tokenizer_refuses_grammars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
