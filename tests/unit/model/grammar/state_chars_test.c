/* Where characters lead from the states of grammars as people ask for them: what is said of a kind
 * of characters is so of each of them, byte by byte. */
#include <stdlib.h>

#include "model/grammar/state_chars.h"
#include "tests/test.h"
#include "tests/unit/model/grammar/grammar_kinds.h"

enum { MOST_STATES = 250, TRIES = 12, SEVERAL_STATES = -2, NO_STATE = -1 };

static const struct grammar_kind others[] = {
    {"ideographs of a range", KIND_REGULAR, "[\u4e00-\u4e07\u5000-\u9fa5]{1,6}[a-z]"},
    {"letters of several scripts", KIND_REGULAR,
     "[\u00e0-\u00ff\u0430-\u044fa-z]+ [\u3041-\u3096]*!"},
    {"kinds in parts", KIND_REGULAR, "([a-c]x|[d-f]y|[h-z]|i|[0-4]|[5-9])+"},
    {"whole kinds apart", KIND_REGULAR,
     "([a-fg-z]1|[A-Z]2|[0-9]3|[\xC2\x80-\u07ff]4|[\u0800-\uffff]5|[^\\x01-\uffff]6)+"},
    {"two of one beginning", KIND_GBNF,
     "root ::= (\"\u4e00\" \"a\" | [\u4e00-\u9fff] \"b\" | [^\\n] \"c\")+"},
    {"kinds with two rests", KIND_REGULAR, "([\ua000-\ucfff]1|[\ud000-\ud7ff]2|!)+"},
    {"all but one", KIND_REGULAR, "[^\u20ac]{2,9}[^\\n\xC2\x85]"},
};

/* The one state that is behind a character's bytes; a character may come by several ways. */
static int64_t char_walk(const struct grammar *g, uint32_t from, const uint8_t *bytes, int n)
{
    int64_t to = NO_STATE;
    for (uint32_t i = g->first[from]; i < g->first[from + 1]; i++) {
        const struct grammar_edge *e = &g->edges[i];
        if (e->kind != GRAMMAR_BYTES || g->least[e->to] == GRAMMAR_NEVER || *bytes < e->low ||
            *bytes > e->high)
            continue;
        int64_t end = n == 1 ? e->to : char_walk(g, e->to, bytes + 1, n - 1);
        if (end != NO_STATE)
            to = to == NO_STATE || to == end ? end : SEVERAL_STATES;
    }
    return to;
}

/* Whether something else may be done within a character than to read its next byte. */
static bool char_is_plain(const struct grammar *g, uint32_t from, const uint8_t *bytes, int n)
{
    bool plain = true;
    for (uint32_t i = g->first[from]; n > 1 && i < g->first[from + 1]; i++) {
        const struct grammar_edge *e = &g->edges[i];
        if (e->kind != GRAMMAR_BYTES || g->least[e->to] == GRAMMAR_NEVER || *bytes < e->low ||
            *bytes > e->high)
            continue;
        plain = plain && !g->ends[e->to];
        for (uint32_t k = g->first[e->to]; k < g->first[e->to + 1]; k++)
            plain = plain && g->edges[k].kind == GRAMMAR_BYTES;
        plain = plain && char_is_plain(g, e->to, bytes + 1, n - 1);
    }
    return plain;
}

static uint8_t byte_draw(uint8_t low, uint8_t high, uint64_t *random)
{
    uint64_t chance = random_next(random);
    return chance % 4 == 0   ? low
           : chance % 4 == 1 ? high
                             : (uint8_t)(low + chance / 4 % (high - low + 1u));
}

/* A character of a kind: how many bytes. What a kind has is found once. */
static int char_draw(int kind, uint8_t bytes[4], uint64_t *random)
{
    static uint8_t firsts[CHAR_KINDS][128], n_firsts[CHAR_KINDS];
    bool wide = kind >= CHAR_KIND_WIDE, known = n_firsts[kind];
    for (int i = 0; !known && i < (wide ? CHAR_LEADS : 128); i++)
        if ((wide ? char_leads[i].kind : char_kind_of((uint8_t)i)) == kind)
            firsts[kind][n_firsts[kind]++] = (uint8_t)i;
    uint8_t first = firsts[kind][random_next(random) % n_firsts[kind]];
    if (!wide) {
        bytes[0] = first;
        return 1;
    }
    const struct char_lead *lead = &char_leads[first];
    bytes[0] = byte_draw(lead->low, lead->high, random);
    bytes[1] = byte_draw(lead->rest.low, lead->rest.high, random);
    for (int i = 0; i < lead->rest.left; i++)
        bytes[2 + i] = byte_draw(0x80, 0xBF, random);
    return 2 + lead->rest.left;
}

static int64_t step_of(const struct state_chars *s, const struct state_steps *steps, int kind)
{
    int64_t to = NO_STATE;
    for (uint32_t i = steps->first; i < steps->first + steps->n; i++)
        if (s->steps[i].kinds >> kind & 1) {
            assert_true(to == NO_STATE); /* steps have no kind in common */
            to = s->steps[i].to;
        }
    return to;
}

/* How many kinds are clear of which some character may come. */
static int state_check(struct state_chars *s, uint32_t state, const char *name, uint64_t *random)
{
    struct state_steps steps = *state_chars_find(s, state);
    int clear = 0;
    for (int kind = 0; kind < CHAR_KINDS; kind++) {
        int64_t said = step_of(s, &steps, kind);
        if (steps.unclear >> kind & 1) {
            assert_true(said == NO_STATE);
            continue;
        }
        clear += said != NO_STATE;
        for (int i = 0; i < TRIES; i++) {
            uint8_t bytes[4];
            int n = char_draw(kind, bytes, random);
            if (char_walk(s->grammar, state, bytes, n) != said ||
                (said != NO_STATE && !char_is_plain(s->grammar, state, bytes, n)))
                fail_msg("%s: state %u, kind %d, a character of %d bytes from %02x on", name, state,
                         kind, n, bytes[0]);
        }
    }
    return clear;
}

static void grammar_check_chars(const struct grammar_kind *kind)
{
    struct buffer wire = {0};
    struct grammar *g = NULL;
    struct state_chars s;
    struct err e = {0};
    uint64_t random = 9;
    int clear = 0;
    if (grammar_kind_make(kind, &wire, &e) < 0)
        fail_msg("%s: %s", kind->name, e.text);
    assert_int_equal(grammar_read(wire.data, wire.size, &g, &e), 0);
    assert_true(state_chars_init(&s, g));
    uint32_t step = g->n_states / MOST_STATES + 1;
    for (uint32_t state = 0; state < g->n_states; state += step)
        clear += state_check(&s, state, kind->name, &random);
    assert_true(clear > 0);
    state_chars_fini(&s);
    grammar_destroy(&g);
    buffer_free(&wire);
}

TEST(characters_of_a_kind_lead_where_it_is_said_that_all_of_them_do)
{
    for (size_t i = 0; i < GRAMMAR_KINDS; i++)
        grammar_check_chars(&grammar_kinds[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        grammar_check_chars(&others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_of_a_kind_lead_where_it_is_said_that_all_of_them_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
