/* What holding an answer to a grammar costs a token: answers drawn by lot (each allowed token as
 * likely) under usual schemas, expressions and grammars, over a vocabulary of 151 936 tokens like
 * those of large models: the time of the mask, of those alone that no answer has needed before, and
 * of accepting the token. Microseconds of processor time, of each token the least of some runs,
 * which all begin anew and draw the same answers: what else the box does in one of them, interrupts
 * above all, takes longer than a mask. An argument names a model's file, whose vocabulary it is
 * then; a second one narrows to the kinds that have it in their names. */
#include <jansson.h>
#include <time.h>

#include "common/doubles.h"
#include "model/grammar/automaton.h"
#include "model/model.h"
#include "tests/unit/model/grammar/grammar_kinds.h"
#include "tests/unit/model/grammar/made_vocabulary.h"

enum { ANSWERS = 60, RUNS = 7, MOST_TOKENS = 200, MOST_TIMES = 1 << 20, ASKED_US = 50 };

/* ---- times ---- */

struct times {
    double *us;
    size_t n, most; /* of this run; of those before */
};

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void time_add(struct times *t, double us)
{
    if (t->n == MOST_TIMES)
        return;
    t->us[t->n] = t->n < t->most && t->us[t->n] < us ? t->us[t->n] : us;
    t->most = ++t->n > t->most ? t->n : t->most;
}

static size_t times_above(const struct times *t)
{
    size_t above = 0;
    for (size_t i = 0; i < t->most; i++)
        above += t->us[i] > ASKED_US;
    return above;
}

static void times_print(const char *name, struct times *t)
{
    double sum = 0;
    size_t n = t->most;
    doubles_sort(t->us, n);
    for (size_t i = 0; i < n; i++)
        sum += t->us[i];
    if (n)
        printf("  %-16s %6zu: mean %5.1f, median %5.1f, 90 %% %5.1f, 99 %% %5.1f, most %5.1f; "
               "above %d: %zu\n",
               name, n, sum / (double)n, t->us[n / 2], t->us[n * 9 / 10], t->us[n * 99 / 100],
               t->us[n - 1], ASKED_US, times_above(t));
}

/* What is measured: masks, those of them that were found, and steps. */
struct measured {
    struct times masks, firsts, steps;
};

static bool measured_make(struct measured *m)
{
    *m = (struct measured){{malloc(MOST_TIMES * sizeof(double)), 0, 0},
                           {malloc(MOST_TIMES * sizeof(double)), 0, 0},
                           {malloc(MOST_TIMES * sizeof(double)), 0, 0}};
    return m->masks.us && m->firsts.us && m->steps.us;
}

static void measured_add(struct measured *sum, const struct measured *m)
{
    for (size_t i = 0; i < m->masks.most; i++)
        time_add(&sum->masks, m->masks.us[i]);
    for (size_t i = 0; i < m->firsts.most; i++)
        time_add(&sum->firsts, m->firsts.us[i]);
    for (size_t i = 0; i < m->steps.most; i++)
        time_add(&sum->steps, m->steps.us[i]);
}

static void measured_print(const char *name, struct measured *m)
{
    printf("%s\n", name);
    times_print("masks", &m->masks);
    times_print("first ones", &m->firsts);
    times_print("fits and accept", &m->steps);
}

/* ---- answers ---- */

/* Of a file with a tokenizer. */
static struct token_tree *model_tree(const char *path)
{
    const struct tokenizer *tokenizer;
    struct token_tree *t = NULL;
    struct model *m = NULL;
    struct err e = {0};
    int rc = model_open_text(path, &m, &e);
    rc = rc < 0 ? rc : model_tokenizer(m, &tokenizer, &e);
    rc = rc < 0 ? rc
                : token_tree_of_tokenizer(tokenizer, (uint32_t)tokenizer_vocabulary(tokenizer), &t,
                                          &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    if (m)
        model_close(&m);
    return rc < 0 ? NULL : t;
}

/* One of the allowed tokens, each as likely. */
static uint32_t token_draw(const uint64_t *mask, uint32_t vocabulary, uint64_t *state)
{
    uint32_t n = 0, words = vocabulary / 64 + 1;
    for (uint32_t i = 0; i < words; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    uint32_t left = (uint32_t)(random_unit(state) * n), i = 0;
    for (; left >= (uint32_t)__builtin_popcountll(mask[i]); i++)
        left -= (uint32_t)__builtin_popcountll(mask[i]);
    uint64_t word = mask[i];
    for (; left; left--)
        word &= word - 1;
    return i * 64 + (uint32_t)__builtin_ctzll(word);
}

/* One answer; false: it failed. */
static bool answer_draw(struct automaton *a, const struct token_tree *t, uint64_t *state,
                        struct measured *to)
{
    struct matcher *m = NULL;
    uint32_t end = t->vocabulary - 1; /* some token that no answer needs */
    struct err e = {0};
    bool ended = false;
    if (matcher_create(a, MOST_TOKENS, &end, 1, &m, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return false;
    }
    while (!ended) {
        double from = cpu_us();
        bool found = matcher_look_ahead(m);
        const uint64_t *mask = matcher_mask(m);
        double masked = cpu_us();
        if (!mask)
            break;
        time_add(&to->masks, masked - from);
        if (found)
            time_add(&to->firsts, masked - from);
        uint32_t token = token_draw(mask, t->vocabulary, state);
        double drawn = cpu_us();
        if (!matcher_fits(m, token))
            token = matcher_shortest(m);
        matcher_accept(m, token);
        time_add(&to->steps, cpu_us() - drawn);
        ended = token == end;
    }
    if (matcher_error(m, &e) < 0)
        fprintf(stderr, "%s\n", e.text);
    matcher_destroy(&m);
    return ended;
}

static bool kind_measure(const struct grammar_kind *kind, const struct token_tree *t,
                         struct measured *to)
{
    struct buffer wire = {0};
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    struct err e = {0};
    uint64_t state = 11;
    int rc = grammar_kind_make(kind, &wire, &e);
    rc = rc < 0 ? rc : grammar_read(wire.data, wire.size, &g, &e);
    rc = rc < 0 ? rc : automaton_create(&g, t, &a, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    bool fine = rc == 0;
    to->masks.n = to->firsts.n = to->steps.n = 0;
    for (int i = 0; fine && i < ANSWERS; i++)
        fine = answer_draw(a, t, &state, to);
    if (a)
        automaton_destroy(&a);
    buffer_free(&wire);
    return fine;
}

int main(int argc, char **argv)
{
    struct measured m, all;
    double from = cpu_us();
    struct token_tree *t = argc > 1 ? model_tree(argv[1]) : made_tree(VOCABULARY);
    bool fine = measured_make(&m) && measured_make(&all);
    if (!t || !fine)
        return 1;
    printf(
        "%u tokens, a prefix tree of %u nodes, made in %.0f ms; %d answers of at most %d tokens\n",
        t->vocabulary, t->n_nodes, (cpu_us() - from) / 1000, ANSWERS, MOST_TOKENS);
    for (size_t i = 0; i < GRAMMAR_KINDS; i++) {
        if (argc > 2 && !strstr(grammar_kinds[i].name, argv[2]))
            continue;
        m.masks.most = m.firsts.most = m.steps.most = 0;
        for (int run = 0; run < RUNS; run++)
            fine &= kind_measure(&grammar_kinds[i], t, &m);
        measured_add(&all, &m);
        measured_print(grammar_kinds[i].name, &m);
    }
    measured_print("all", &all);
    token_tree_destroy(&t);
    return fine ? 0 : 1;
}
