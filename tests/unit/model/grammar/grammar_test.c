/* What grammars allow, and what they refuse: regular expressions, choices, GBNF, calls of tools. */
#include "tests/unit/model/grammar/grammar_fixture.h"

static int made(struct buffer *out, const char *kind, const char *text, struct err *e)
{
    return strcmp(kind, "regular") == 0
               ? grammar_source_regular(text, strlen(text), "regex", out, e)
               : grammar_source_gbnf(text, strlen(text), "grammar", out, e);
}

static const struct {
    const char *kind, *text;
    const char *yes[4], *no[4];
} allowed[] = {
    {"regular", "a+b?", {"a", "aab", "aaa"}, {"", "b", "abb"}},
    {"regular", "^(?:yes|no)$", {"yes", "no"}, {"yesno", "ye"}},
    {"regular", "[^a-c]{2,3}", {"de", "xyz"}, {"d", "ab", "xyzw"}},
    {"regular", "\\d{3}-\\d{4}", {"123-4567"}, {"123-456", "1234567"}},
    {"regular", "[\\w.]+@x", {"a.b_9@x"}, {"@x", "a b@x"}},
    {"regular", "caf\\u00e9|日.", {"café", "日本", "日a"}, {"cafe", "日"}},
    {"regular", "(a*)*b", {"b", "aaab"}, {"a", "aa"}},
    {"regular", "a{2}{3}", {"aaaaaa"}, {"aaaaa", "aaaaaaa"}},
    {"regular", "\\ud83d\\ude00|[\\uD83D\\uDE01-\\u{1F603}]", {"😀", "😂"}, {"😄"}},
    {"regular", "x{,2}|\\.\\{", {"x{,2}", ".{"}, {"x", "xx"}},
    {"regular", "[]x]+?", {"]", "x]"}, {""}},
    {"gbnf", "root ::= \"a\" b* # c\nb ::= [0-9]\n", {"a", "a1", "a12"}, {"", "1", "ab"}},
    {"gbnf", "root ::= (\"x\" | \"y\"){2,3}", {"xy", "yyx"}, {"x", "xyxy"}},
    {"gbnf", "root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())"}},
    {"gbnf",
     "root ::= e\ne ::= t (\"+\" t)*\nt ::= \"1\" | \"[\" e \"]\"",
     {"1", "1+1", "[1+[1]]+1"},
     {"+", "[1", "1+"}},
    {"gbnf", "root ::= [^\\x00-\\x1F\"\\\\]+ \"\\n\"\n", {"ab\n", "é\n"}, {"\n", "a\"\n"}},
    {"gbnf", "root ::=\n  \"a\"\n  | \"b\" .?\n", {"a", "b", "bé"}, {"ab", ""}},
    {"regular",
     ".",
     {"\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}, /* about the halves of pairs */
     {"\xED\xA0\x80", "\xED\xBF\xBF", "\xF4\x90\x80\x80", "\xC0\x80"}},
    {"regular", "[^a]", {"\xED\x9F\xBF", "\xEE\x80\x80"}, {"\xED\xA0\x80", "\xED\xBF\xBF"}},
    {"gbnf", "root ::= .", {"\xED\x9F\xBF", "\xEE\x80\x80"}, {"\xED\xA0\x80", "\xED\xBF\xBF"}},
};

TEST(grammars_allow_what_they_say)
{
    struct token_tree *t = fixture_tree();
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        struct buffer wire = {0};
        struct err e = {0};
        int rc = made(&wire, allowed[i].kind, allowed[i].text, &e);
        if (rc < 0)
            fail_msg("%s: %s", allowed[i].text, e.text);
        struct automaton *a = fixture_automaton(&wire, t);
        for (int k = 0; k < 4 && allowed[i].yes[k]; k++)
            if (!fixture_allows(a, allowed[i].yes[k]))
                fail_msg("%s does not allow %s", allowed[i].text, allowed[i].yes[k]);
        for (int k = 0; k < 4 && allowed[i].no[k]; k++)
            if (fixture_allows(a, allowed[i].no[k]))
                fail_msg("%s allows %s", allowed[i].text, allowed[i].no[k]);
        for (uint64_t seed = 1; seed < 20; seed++) {
            char *text = fixture_text(a, t, 40, seed);
            if (!fixture_allows(a, text))
                fail_msg("%s does not allow what was drawn from it: %s", allowed[i].text, text);
            free(text);
        }
        automaton_destroy(&a);
        buffer_free(&wire);
    }
    token_tree_destroy(&t);
}

static const struct {
    const char *kind, *text, *why;
    int code;
} refused[] = {
    {"regular", "a(?=b)", "look-around", HP_EUNSUPPORTED},
    {"regular", "(a)\\1", "reference to a group", HP_EUNSUPPORTED},
    {"regular", "\\bword", "\\b", HP_EUNSUPPORTED},
    {"regular", "\\p{L}", "\\p", HP_EUNSUPPORTED},
    {"regular", "a**(", "no )", HP_EPARSE},
    {"regular", "[a", "no ]", HP_EPARSE},
    {"regular", "a{3,2}", "wrong way round", HP_EPARSE},
    {"regular", "a\\ud83d", "half of a surrogate pair", HP_EPARSE},
    {"regular", "\\u{dfff}", "half of a surrogate pair", HP_EPARSE},
    {"regular", "*", "nothing to repeat", HP_EPARSE},
    {"regular", "a)", "too many", HP_EPARSE},
    {"regular", "((a{1000}){1000}){1000}", "explodes", HP_ELIMIT},
    {"regular", "a{70000}", "repeats more than", HP_ELIMIT},
    {"regular", "[^\\u0000-\\uFFFF]{0}\\u{110000}", "escape", HP_EPARSE},
    {"gbnf", "root ::= \"a\" root", "has no end", HP_EINVAL},
    {"gbnf", "root ::= root \"a\" | \"b\"", "\"root\" of the grammar calls itself", HP_EINVAL},
    {"gbnf", "root ::= a\na ::= b a \"x\" | \"y\"\nb ::= \"z\"?", "calls itself", HP_EINVAL},
    {"gbnf", "root ::= missing", "no rule \"missing\"", HP_EINVAL},
    {"gbnf", "other ::= \"a\"", "no rule \"root\"", HP_EINVAL},
    {"gbnf", "root ::= \"a\nb\"", "line 1: a literal has no closing", HP_EPARSE},
    {"gbnf", "root ::= \"a\"\nroot ::= \"b\"", "line 2: this rule is there already", HP_EPARSE},
    {"gbnf", "root = \"a\"", "line 1: ::= is expected", HP_EPARSE},
    {"gbnf", "root ::= [z-a]", "a class has a range", HP_EPARSE},
    {"gbnf",
     "root ::= a a a a a a a a\na ::= b b b b b b b b\nb ::= c c c c c c c c\nc ::= d d d d d d d "
     "d\n"
     "d ::= e e e e e e e e\ne ::= f f f f f f f f\nf ::= g g g g g g g g\ng ::= \"12345678\"",
     "shortest text", HP_ELIMIT},
};

TEST(what_cannot_be_done_is_refused_by_name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct buffer wire = {0};
        struct err e = {0};
        int rc = made(&wire, refused[i].kind, refused[i].text, &e);
        if (rc != refused[i].code || !strstr(e.text, refused[i].why) ||
            (strncmp(e.text, "regex: ", 7) != 0 && strncmp(e.text, "grammar: ", 9) != 0))
            fail_msg("%s: %d %s", refused[i].text, rc, e.text);
        buffer_free(&wire);
    }
}

static char *repeated(const char *text, size_t n)
{
    size_t size = strlen(text);
    char *all = malloc(n * size + 1);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++)
        memcpy(all + i * size, text, size);
    all[n * size] = '\0';
    return all;
}

TEST(hostile_grammars_are_refused_soon)
{
    static const struct {
        const char *kind, *part;
        size_t n;
    } hostile[] = {
        {"regular", "(", 100000},     {"regular", "(a", 8000},
        {"regular", "a{9999}", 2000}, {"gbnf", "root ::= (", 20000},
        {"gbnf", "(", 100000},        {"gbnf", "a ::= [a-z]{65536}\n", 2},
        {"regular", "(.*)*", 3000},   {"regular", "[^a]|", 3000},
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        char *text = repeated(hostile[i].part, hostile[i].n);
        struct buffer wire = {0};
        struct err e = {0};
        uint64_t from = fixture_cpu_ms();
        int rc = made(&wire, hostile[i].kind, text, &e);
        uint64_t ms = fixture_cpu_ms() - from;
        if (ms > 1000) /* 50 at rest */
            fail_msg("%s took %llu ms", hostile[i].part, (unsigned long long)ms);
        if (rc < 0)
            assert_true(strlen(e.text) > 10);
        buffer_free(&wire);
        free(text);
    }
}

/* Each 'a' can be any of the stars'. */
TEST(what_would_backtrack_takes_no_time)
{
    const char pattern[] = "(a*)*(a*)*(a|a)*(aa|a)*b";
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    assert_int_equal(grammar_source_regular(pattern, sizeof pattern - 1, "regex", &wire, NULL), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    char *text = repeated("a", 20000);
    assert_false(fixture_allows(a, text));
    text[19999] = 'b';
    assert_true(fixture_allows(a, text));
    free(text);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
}

/* Every stack of returns is another: 2^n of them. */
TEST(a_grammar_that_is_too_ambiguous_fails_its_sequence)
{
    const char text[] = "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"";
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct matcher *m = NULL;
    struct err e = {0};
    uint32_t end = FIXTURE_END;
    assert_int_equal(grammar_source_gbnf(text, sizeof text - 1, "grammar", &wire, &e), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    assert_int_equal(matcher_create(a, 1000, &end, 1, &m, &e), 0);
    for (int i = 0; i < 40; i++)
        matcher_accept(m, 'a');
    assert_null(matcher_mask(m));
    assert_int_equal(matcher_error(m, &e), HP_ELIMIT);
    assert_non_null(strstr(e.text, "too ambiguous"));
    matcher_destroy(&m);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
}

/* Thousands of places at each character, and as many others at the next: within what is kept, but
 * others wait while they are found. */
TEST(a_grammar_that_takes_too_long_fails_its_sequence_and_not_the_others)
{
    const char pattern[] = "(.?){1200}(a|b)";
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct matcher *m = NULL, *other = NULL;
    struct err e = {0};
    uint32_t end = FIXTURE_END, n = 0;
    assert_int_equal(grammar_source_regular(pattern, sizeof pattern - 1, "regex", &wire, &e), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    assert_int_equal(matcher_create(a, 4000, &end, 1, &m, &e), 0);
    for (; n < 1000 && matcher_mask(m); n++)
        matcher_accept(m, 'c');
    assert_int_equal(matcher_error(m, &e), HP_ELIMIT);
    assert_true(n > 1 && n < 1000);
    assert_int_equal(matcher_create(a, 4000, &end, 1, &other, &e), 0);
    assert_non_null(matcher_mask(other));
    matcher_destroy(&other);
    matcher_destroy(&m);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
}

/* A text of two million bytes that forty bytes of rules say. */
TEST(a_shortest_text_that_is_far_too_long_is_not_looked_for)
{
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0}, text = {0};
    struct matcher *m = NULL;
    struct err e = {0};
    uint32_t end = FIXTURE_END;
    buffer_printf(&text, "root ::= r0\n");
    for (int i = 0; i < 21; i++)
        buffer_printf(&text, "r%d ::= r%d r%d\n", i, i + 1, i + 1);
    buffer_printf(&text, "r21 ::= [ab]\n");
    assert_int_equal(grammar_source_gbnf((const char *)text.data, text.size, "grammar", &wire, &e),
                     0);
    struct automaton *a = fixture_automaton(&wire, t);
    assert_int_equal(matcher_create(a, 100, &end, 1, &m, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "has 2097152 bytes"));
    assert_true(automaton_bytes(a) < 1 << 20);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
    buffer_free(&text);
}

/* Stacks share what they stand on, also while they are kept and all else is forgotten. */
TEST(deep_stacks_of_many_places_are_kept_as_one)
{
    const char text[] = "root ::= \"(\" root \")\" | .{0,200}";
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct matcher *m = NULL;
    struct err e = {0};
    uint32_t end = FIXTURE_END;
    assert_int_equal(grammar_source_gbnf(text, sizeof text - 1, "grammar", &wire, &e), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    automaton_keep(a, 0);
    assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &m, &e), 0);
    for (int i = 0; i < 4000; i++)
        matcher_accept(m, '(');
    for (int i = 0; i < 100; i++)
        matcher_accept(m, 'x');
    assert_int_equal(matcher_error(m, &e), 0);
    for (int i = 0; i < 4000; i++)
        matcher_accept(m, ')');
    assert_true(matcher_whole(m));
    matcher_destroy(&m);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
}

TEST(too_few_tokens_are_refused_with_the_number_it_takes)
{
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct matcher *m = NULL;
    struct err e = {0};
    uint32_t end = FIXTURE_END;
    assert_int_equal(grammar_source_regular("hello world!", 12, "regex", &wire, &e), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    assert_int_equal(matcher_create(a, 2, &end, 1, &m, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "max_tokens: 2 are too few; the shortest text that the grammar "
                                   "allows has 3 tokens"));
    assert_int_equal(matcher_create(a, 3, &end, 1, &m, &e), 0);
    matcher_destroy(&m);
    assert_int_equal(matcher_create(a, 3, NULL, 0, &m, &e), HP_EINVAL);
    automaton_destroy(&a);
    token_tree_destroy(&t);
    buffer_free(&wire);
}

/* All masks on the way of a text are those that byte by byte would give. */
static void assert_masks(struct automaton *a, const struct token_tree *t, const char *text)
{
    struct matcher *m = NULL;
    uint32_t end = FIXTURE_END;
    assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &m, NULL), 0);
    for (size_t i = 0; text[i]; i++) {
        const uint64_t *mask = matcher_mask(m);
        for (uint32_t token = 0; token < t->vocabulary;
             token += token < FIXTURE_PIECES ? 1 + token % 7 : 1) {
            if (token == end)
                continue;
            struct matcher *other = NULL; /* goes the same way, then this token's bytes */
            assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &other, NULL), 0);
            for (size_t k = 0; k < i; k++)
                matcher_accept(other, (uint8_t)text[k]);
            for (uint32_t k = t->offsets[token]; k < t->offsets[token + 1]; k++)
                matcher_accept(other, (uint8_t)t->bytes[k]);
            bool in_mask = mask[token / 64] >> token % 64 & 1;
            if (in_mask != (matcher_error(other, NULL) == 0))
                fail_msg("token %u behind %.*s", token, (int)i, text);
            matcher_destroy(&other);
        }
        matcher_accept(m, (uint8_t)text[i]);
    }
    matcher_destroy(&m);
}

/* Once for each token, and what is found then is what would be found later, and not found again. */
TEST(what_is_looked_for_ahead_is_the_mask_that_comes)
{
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct err e = {0};
    uint32_t end = FIXTURE_END;
    assert_int_equal(grammar_source_json("any", &wire, &e), 0);
    struct automaton *early = fixture_automaton(&wire, t), *late = fixture_automaton(&wire, t);
    for (uint64_t seed = 1; seed < 6; seed++) {
        struct matcher *ahead = NULL, *behind = NULL;
        char *text = fixture_text(late, t, 60, seed);
        assert_int_equal(matcher_create(early, 1 << 20, &end, 1, &ahead, &e), 0);
        assert_int_equal(matcher_create(late, 1 << 20, &end, 1, &behind, &e), 0);
        bool found = false;
        for (size_t i = 0; text[i]; i++) {
            found |= matcher_look_ahead(ahead);
            size_t bytes = automaton_bytes(early);
            assert_false(matcher_look_ahead(ahead));
            assert_memory_equal(matcher_mask(ahead), matcher_mask(behind), t->vocabulary / 8);
            assert_int_equal(automaton_bytes(early), bytes);
            matcher_accept(ahead, (uint8_t)text[i]);
            matcher_accept(behind, (uint8_t)text[i]);
        }
        assert_true(found || seed > 1);
        assert_int_equal(matcher_error(ahead, &e), 0);
        matcher_destroy(&ahead);
        matcher_destroy(&behind);
        free(text);
    }
    automaton_destroy(&early);
    automaton_destroy(&late);
    token_tree_destroy(&t);
    buffer_free(&wire);
}

/* NULL: any JSON. Runs of characters that are alike, without an end, with a count, up to others,
 * and such as are alike but for some of their kind. */
TEST(a_mask_allows_a_token_where_its_bytes_are_allowed_and_no_other)
{
    static const char *const patterns[] = {
        NULL,
        "\"[^\"\\\\]{0,21}\"",
        "([a-z]{2,6}(-[0-9]+)?,)*",
        "[^x]*x",
        "(.{0,3}[a-z ]{1,4})*!",
        "[\\x20-\\x7E]{0,5}[^\\x00-\\x7F]{0,3}[A-Za-z0-9_.]*=",
        "[a-zé]+[0-9]",
        "([a-z][a-z0-9]*,)*", /* what may not come first may come later */
        "\"([^\"\\\\i]|i([^\"\\\\d]|d[^\"\\\\]))[^\"\\\\]*\"", /* any but some */
        "([^i\"]|i[^d\"]|id[^\"a-f])[^\"]*\"[a-z]",
        "([a-z0-9]+[. -])*[a-z]{2,9}@", /* what leads into a run, and not round */
        "(.[a-e]{0,4}[^\"]{0,7}\")*",
        "[^x][abg]{0,18}!",
    };
    struct token_tree *trees[] = {fixture_tree(), fixture_dense_tree()};
    for (size_t p = 0; p < 2 * (sizeof patterns / sizeof *patterns); p++) {
        const struct token_tree *t = trees[p % 2];
        struct buffer wire = {0};
        const char *pattern = patterns[p / 2];
        assert_int_equal(pattern ? grammar_source_regular(pattern, strlen(pattern), "", &wire, NULL)
                                 : grammar_source_json("response_format", &wire, NULL),
                         0);
        struct automaton *a = fixture_automaton(&wire, t);
        for (uint64_t seed = 1; seed < (p % 2 ? 3 : 5); seed++) {
            char *text = fixture_text(a, t, p % 2 ? 6 : 60, seed);
            assert_masks(a, t, text);
            free(text);
        }
        automaton_destroy(&a);
        buffer_free(&wire);
    }
    token_tree_destroy(&trees[0]);
    token_tree_destroy(&trees[1]);
}

#define CALL "{\"name\": \"f\", \"arguments\": {}}"

/* Marks of three families; what reasons does so between <t> and </t>. */
static const struct grammar_call call_of_f = {.begin = "{\"name\": \"f\", \"arguments\": ",
                                              .end = "}"};
static struct grammar_calls calls_of(char family, bool required, bool parallel, char reasons)
{
    struct grammar_calls c = {.trigger = "<call>",
                              .open = family == 'm' ? "[" : "",
                              .between = family == 'm'   ? ", "
                                         : family == 'l' ? "; "
                                                         : NULL,
                              .close = family == 'm'   ? "]"
                                       : family == 'h' ? "</call>"
                                                       : "",
                              .calls = &call_of_f,
                              .n_calls = 1,
                              .whole = family == 'l',
                              .required = required,
                              .parallel = parallel,
                              .reasoning_begin = reasons ? "<t>" : NULL,
                              .reasoning_end = reasons ? "</t>" : NULL,
                              .reasoning_begun = reasons == 'b'};
    return c;
}

TEST(calls_of_tools_stand_where_they_may)
{
    static const struct {
        char family;
        bool required, parallel;
        char reasons; /* 0, 'r' easons, has 'b' egun */
        const char *text;
        bool allowed;
    } cases[] = {
        {'h', false, false, 0, "Hello <ca", true},
        {'h', false, false, 0, "<<call>" CALL "</call>", true},
        {'h', false, false, 0, "\xFF<call>\n" CALL "\n\xFF</call>", true},
        {'h', false, false, 0, "<call>", false},
        {'h', false, false, 0, "<call>{\"name\": \"g\"", false},
        {'h', false, false, 0, "x<call>" CALL "</call> and", false},
        {'h', false, true, 0, "x<call>" CALL "</call> and", true},
        {'h', false, true, 'r', "<t> <call> </t>x<call>" CALL "</call>", true},
        {'h', false, true, 'r', "<t> </t>x<call>y", false},
        {'h', false, true, 'b', "<call> ", true},
        {'h', true, false, 0, "Hello", false},
        {'h', true, false, 0, "", false},
        {'h', true, false, 0, "<call>" CALL "</call>", true},
        {'h', true, false, 0, "<call>" CALL "</call><call>" CALL "</call>", false},
        {'h', true, true, 0, "<call>" CALL "</call>\n<call>" CALL "</call>", true},
        {'h', true, true, 0, "<call>" CALL "</call> and", false},
        {'h', true, true, 'r', "<call>" CALL "</call>", true},
        {'h', true, true, 'r', "<t>x</u></t>\n<call>" CALL "</call>", true},
        {'h', true, true, 'r', "<t>x</u>", false},
        {'h', true, true, 'b', "<call></t><call>" CALL "</call>", true},
        {'h', true, true, 'b', "<call>" CALL "</call>", false},
        {'m', true, true, 0, "<call> [" CALL ", " CALL "]", true},
        {'m', true, false, 0, "<call>[" CALL "]", true},
        {'m', true, false, 0, "<call>[" CALL ", " CALL "]", false},
        {'m', false, false, 0, "Text. <call>[" CALL "]", true},
        {'m', false, false, 0, "Text. <call>" CALL, false},
        {'l', true, true, 0, CALL "; " CALL, true},
        {'l', true, true, 0, "\xFF<call>" CALL, true},
        {'l', true, true, 0, "x", false},
        {'l', true, false, 0, CALL "; " CALL, false},
        {'l', false, true, 0, "x " CALL, true},
        {'l', false, true, 0, " <cal {", true},
        {'l', false, true, 0, "", true},
        {'l', false, true, 0, "\n" CALL "; " CALL, true},
        {'l', false, true, 0, "{\"name\": \"g\"", false},
        {'l', false, true, 0, " <call>x", false},
        {'l', false, true, 'r', "<t>x</t>x", true},
        {'l', false, true, 'r', "<t>x</t>{x", false},
        {'l', false, true, 'r', "<t>x", true},
        {'l', false, true, 'b', "{x", true},
        {'l', false, true, 'b', "{x</t>" CALL, true},
        {'l', false, true, 'b', "{x</t>{x", false},
    };
    struct token_tree *t = fixture_tree();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar_calls calls =
            calls_of(cases[i].family, cases[i].required, cases[i].parallel, cases[i].reasons);
        struct buffer wire = {0};
        assert_int_equal(grammar_source_calls(&calls, "tools", &wire, NULL), 0);
        struct automaton *a = fixture_automaton(&wire, t);
        if (fixture_allows(a, cases[i].text) != cases[i].allowed)
            fail_msg("case %zu: %s", i, cases[i].text);
        automaton_destroy(&a);
        buffer_free(&wire);
    }
    token_tree_destroy(&t);
}

TEST(schemas_of_calls_that_nothing_fits_are_refused_unless_lenient)
{
    struct grammar_call two[] = {call_of_f, call_of_f};
    struct grammar_calls calls = calls_of('h', true, true, 0);
    json_t *schema = json_pack("{s:{}}", "not");
    struct buffer wire = {0};
    struct err e = {0};
    two[1].schema = schema;
    two[1].place = 1;
    calls.calls = two;
    calls.n_calls = 2;
    assert_int_equal(grammar_source_calls(&calls, "tools", &wire, &e), HP_EUNSUPPORTED);
    if (!strstr(e.text, "tools[1].parameters: \"not\""))
        fail_msg("%s", e.text);
    two[1].lenient = true;
    assert_int_equal(grammar_source_calls(&calls, "tools", &wire, &e), 0);
    calls.n_calls = 0;
    assert_int_equal(grammar_source_calls(&calls, "tools", &wire, &e), HP_ELIMIT);
    buffer_free(&wire);
    json_decref(schema);
}

TEST(choices_allow_their_texts)
{
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    struct err e = {0};
    json_t *texts = json_pack("[s,s,s]", "yes", "no", "yes, but");
    assert_int_equal(grammar_source_choices(texts, "guided_choice", &wire, &e), 0);
    struct automaton *a = fixture_automaton(&wire, t);
    assert_true(fixture_allows(a, "yes") && fixture_allows(a, "yes, but"));
    assert_false(fixture_allows(a, "yes, ") || fixture_allows(a, "maybe"));
    automaton_destroy(&a);
    buffer_free(&wire);
    json_array_clear(texts);
    assert_int_equal(grammar_source_choices(texts, "guided_choice", &wire, &e), HP_EINVAL);
    json_decref(texts);
    token_tree_destroy(&t);
}

/* Bytes of a peer: each cut and each flipped bit is refused, or is a grammar. */
TEST(a_damaged_grammar_is_refused_or_harmless)
{
    struct token_tree *t = fixture_tree();
    struct buffer wire = {0};
    assert_int_equal(grammar_source_json("response_format", &wire, NULL), 0);
    for (size_t i = 0; i < wire.size; i += 7) {
        struct grammar *g = NULL;
        struct automaton *a = NULL;
        struct matcher *m = NULL;
        struct err e = {0};
        uint32_t end = FIXTURE_END;
        assert_true(grammar_read(wire.data, i, &g, &e) < 0);
        wire.data[i] ^= (uint8_t)(1 << i % 8);
        if (grammar_read(wire.data, wire.size, &g, &e) == 0) {
            assert_int_equal(automaton_create(&g, t, &a, &e), 0);
            if (matcher_create(a, 100, &end, 1, &m, &e) == 0)
                matcher_mask(m);
            matcher_destroy(&m);
            automaton_destroy(&a);
        }
        wire.data[i] ^= (uint8_t)(1 << i % 8);
    }
    buffer_free(&wire);
    token_tree_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_allow_what_they_say),
        cmocka_unit_test(what_is_looked_for_ahead_is_the_mask_that_comes),
        cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
        cmocka_unit_test(hostile_grammars_are_refused_soon),
        cmocka_unit_test(what_would_backtrack_takes_no_time),
        cmocka_unit_test(a_grammar_that_is_too_ambiguous_fails_its_sequence),
        cmocka_unit_test(a_grammar_that_takes_too_long_fails_its_sequence_and_not_the_others),
        cmocka_unit_test(a_shortest_text_that_is_far_too_long_is_not_looked_for),
        cmocka_unit_test(deep_stacks_of_many_places_are_kept_as_one),
        cmocka_unit_test(too_few_tokens_are_refused_with_the_number_it_takes),
        cmocka_unit_test(a_mask_allows_a_token_where_its_bytes_are_allowed_and_no_other),
        cmocka_unit_test(calls_of_tools_stand_where_they_may),
        cmocka_unit_test(schemas_of_calls_that_nothing_fits_are_refused_unless_lenient),
        cmocka_unit_test(choices_allow_their_texts),
        cmocka_unit_test(a_damaged_grammar_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
