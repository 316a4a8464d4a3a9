/* JSON schemas: what is drawn from them is JSON that they hold of; what is not known is refused. */
#include "tests/unit/model/grammar/grammar_fixture.h"

#define OBJECT(...) "{\"type\":\"object\",\"properties\":" __VA_ARGS__ "}"

static const struct {
    const char *schema;
    const char *yes[5], *no[5];
} allowed[] = {
    {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
     {"0", "-5", "120", "99", "-1"},
     {"-6", "121", "1.5", "01", "-0"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":100}",
     {"10", "99", "55"},
     {"9", "100", "5"}},
    {"{\"type\":\"integer\",\"minimum\":1000}", {"1000", "99999", "1001"}, {"999", "-1000", "0"}},
    {"{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":2}",
     {"0", "1", "0.51", "1.25"},
     {"2", "-0.5", "2.5"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.2,\"maximum\":0.8}",
     {"0.3", "0.7"},
     {"0.2", "1"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"éé\"", "\"a\\n\\\"\"", "\"\\u00e9b\""},
     {"\"a\"", "\"abcd\"", "\"ab", "\"\\ud800ab\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a+\\\"?$\"}", {"\"a\"", "\"aa\\\"\""}, {"\"\"", "\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\",\"maxLength\":3}",
     {"\"b\"", "\"abc\""},
     {"\"a\"", "\"\"", "\"aaab\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2024-02-28\""}, {"\"2024-02-30\"", "\"x\""}},
    {"{\"enum\":[\"a\",1,null,{\"b\":[true]}]}",
     {"\"a\"", "1", "null", "{\"b\":[true]}"},
     {"\"b\"", "2", "{}"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"const\":\"x\\ny\"}", {"\"x\\ny\""}, {"\"x\"", "\"xny\""}},
    {OBJECT("{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}},\"required\":[\"a\"]"),
     {"{\"a\":1}", "{ \"a\": 1, \"b\": null }", "{\n  \"a\":1\n}"},
     {"{}", "{\"b\":null}", "{\"a\":1,\"c\":1}", "{\"a\":1,}", "{\"a\":\"1\"}"}},
    {OBJECT("{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}"),
     {"{}", "{\"a\":null}", "{\"b\":null}", "{\"a\":null,\"b\":null}"},
     {"{\"b\":null,\"a\":null}", "{,\"a\":null}"}},
    {OBJECT("{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}"),
     {"{\"ab\":null}", "{\"abc\":1}", "{\"ab\":null,\"x\":2,\"a\":3}", "{\"\":1}"},
     {"{\"ab\":1}", "{\"x\":null}", "{\"\\u0061b\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
     {"[1]", "[1, 2]", "[ 1,2 ]"},
     {"[]", "[1,2,3]", "[1,]", "[\"1\"]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}}",
     {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
     {"[2]", "[1,3]", "[1,2,2]"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"boolean\"}]}",
     {"1", "true", "false"},
     {"null", "\"1\""}},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"null\"}},\"required\":"
     "[\"k\",\"x\"],\"type\":\"object\"},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":"
     "[\"k\"],\"type\":\"object\"}]}",
     {"{\"k\":\"a\",\"x\":null}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"b\",\"x\":null}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3}},"
     "\"required\":[\"a\"]},{\"properties\":{\"a\":{\"maximum\":4},\"b\":{\"type\":\"null\"}}}]}",
     {"{\"a\":3}", "{\"a\":4,\"b\":null}"},
     {"{\"a\":5}", "{\"a\":2}", "{}"}},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":"
     "{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/n\"}]}},\"required\":[\"v\",\"next\"],"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}"}},
    {"{\"type\":[\"string\",\"null\"],\"maxLength\":1}",
     {"null", "\"a\"", "\"\""},
     {"\"ab\"", "1"}},
    {"true", {"[1,{\"a\":[]}]", "-1.5e9", "\"\\/\""}, {"[1,]", "nul", "+1", ".5"}},
};

static struct automaton *schema_automaton(const char *text, const struct token_tree *t)
{
    struct buffer wire = {0};
    struct err e = {0};
    json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(schema);
    if (grammar_source_schema(schema, "schema", &wire, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    struct automaton *a = fixture_automaton(&wire, t);
    buffer_free(&wire);
    json_decref(schema);
    return a;
}

TEST(schemas_allow_what_they_hold_of)
{
    struct token_tree *t = fixture_tree();
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        struct automaton *a = schema_automaton(allowed[i].schema, t);
        for (int k = 0; k < 5 && allowed[i].yes[k]; k++)
            if (!fixture_allows(a, allowed[i].yes[k]))
                fail_msg("%s does not allow %s", allowed[i].schema, allowed[i].yes[k]);
        for (int k = 0; k < 5 && allowed[i].no[k]; k++)
            if (fixture_allows(a, allowed[i].no[k]))
                fail_msg("%s allows %s", allowed[i].schema, allowed[i].no[k]);
        for (uint64_t seed = 1; seed < 12; seed++) {
            char *text = fixture_text(a, t, 120, seed);
            json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
            if (!value || !fixture_allows(a, text))
                fail_msg("%s: what was drawn is %s", allowed[i].schema, text);
            json_decref(value);
            free(text);
        }
        automaton_destroy(&a);
    }
    token_tree_destroy(&t);
}

static const struct {
    const char *schema, *why;
    int code;
} refused[] = {
    {"{\"not\":{}}", "schema: \"not\" is not supported", HP_EUNSUPPORTED},
    {OBJECT("{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}"),
     "schema.properties.a: \"uniqueItems\" is not supported", HP_EUNSUPPORTED},
    {"{\"patternProperties\":{\"a\":{}}}", "\"patternProperties\"", HP_EUNSUPPORTED},
    {"{\"type\":\"number\",\"multipleOf\":0.1}", "\"multipleOf\"", HP_EUNSUPPORTED},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "schema: pattern: regular expression",
     HP_EUNSUPPORTED},
    {"{\"$ref\":\"http://x/y\"}", "outside of the schema", HP_EUNSUPPORTED},
    {"{\"$ref\":\"#/$defs/a\"}", "names nothing", HP_EINVAL},
    {"{\"$ref\":\"#\"}", "refers to itself", HP_EINVAL},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "refers to itself", HP_EINVAL},
    {"{\"anyOf\":[{\"$ref\":\"#\"}]}", "no end", HP_EINVAL},
    {OBJECT("{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]"), "no end", HP_EINVAL},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", "oneOf[0] and of oneOf[1]",
     HP_EUNSUPPORTED},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "two values of \"pattern\"",
     HP_EUNSUPPORTED},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no value is of this schema", HP_EINVAL},
    {"{\"type\":\"text\"}", "type \"text\" is none", HP_EINVAL},
    {"{\"minLength\":-1}", "minLength is a whole number", HP_EINVAL},
    {"{\"type\":\"string\",\"minLength\":9999999}", "minLength is at most", HP_ELIMIT},
    {"7", "a schema is an object", HP_EINVAL},
    {"{\"properties\":7}", "properties is an object", HP_EINVAL},
    {"{\"enum\":7}", "enum is a list", HP_EINVAL},
    {"false", "no value is of this schema", HP_EINVAL},
};

TEST(what_a_schema_says_and_is_not_known_is_refused_with_its_path)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct buffer wire = {0};
        struct err e = {0};
        json_t *schema = json_loads(refused[i].schema, JSON_DECODE_ANY, NULL);
        assert_non_null(schema);
        int rc = grammar_source_schema(schema, "schema", &wire, &e);
        if (rc != refused[i].code || !strstr(e.text, refused[i].why))
            fail_msg("%s: %d %s", refused[i].schema, rc, e.text);
        json_decref(schema);
        buffer_free(&wire);
    }
}

/* Each schema refers to the next twice: 2^30 paths, 30 schemas. */
static json_t *doubling(bool merged)
{
    json_t *defs = json_object(), *root;
    for (int i = 0; i < 30; i++) {
        char name[16], next[32];
        snprintf(name, sizeof name, "d%d", i);
        snprintf(next, sizeof next, "#/$defs/d%d", i + 1);
        json_object_set_new(
            defs, name,
            merged ? json_pack("{s:[{s:s},{s:s}]}", "allOf", "$ref", next, "$ref", next)
                   : json_pack("{s:s,s:{s:{s:s},s:{s:s}},s:[s,s]}", "type", "object", "properties",
                               "a", "$ref", next, "b", "$ref", next, "required", "a", "b"));
    }
    json_object_set_new(defs, "d30", json_pack("{s:s}", "type", "null"));
    root = json_pack("{s:s,s:o}", "$ref", "#/$defs/d0", "$defs", defs);
    assert_non_null(root);
    return root;
}

static json_t *deep(int n)
{
    json_t *at = json_pack("{s:s}", "type", "null");
    for (int i = 0; i < n; i++)
        at = json_pack("{s:s,s:o}", "type", "array", "items", at);
    return at;
}

static json_t *wide(int n)
{
    json_t *root = json_pack("{s:s,s:{}}", "type", "object", "properties");
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "property_%d", i);
        json_object_set_new(json_object_get(root, "properties"), name,
                            json_pack("{s:s,s:i}", "type", "string", "maxLength", 100 + i));
    }
    return root;
}

/* n values of either list, each of which is compared with all of the other, or of the same. */
static json_t *squared(const char *outer, const char *inner, int n)
{
    json_t *a = json_array(), *b = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(a, strcmp(outer, "oneOf") == 0 ? json_pack("{s:i}", inner, i)
                                                             : json_sprintf("a%d", i));
        json_array_append_new(b, json_sprintf("b%d", i));
    }
    return strcmp(outer, "oneOf") == 0
               ? json_pack("{s:o,s:o}", "oneOf", a, "x", b)
               : json_pack("{s:[{s:o},{s:o}]}", "allOf", inner, a, inner, b);
}

/* Each of a list's types is all of the members. */
static json_t *many_types(int n)
{
    json_t *root = wide(300), *types = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(types, json_string("object"));
    json_object_set_new(root, "type", types);
    return root;
}

/* Many ways to the same members, each written anew. */
static json_t *many_ways(int n)
{
    json_t *ways = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(ways, json_pack("{s:s,s:i}", "$ref", "#/$defs/x", "title", i));
    return json_pack("{s:{s:o},s:o}", "$defs", "x", wide(900), "anyOf", ways);
}

/* A pattern that is repeated in itself, and a length. */
static json_t *repeats(int n)
{
    struct buffer text = {0};
    buffer_printf(&text, "^a");
    for (int i = 0; i < n; i++)
        buffer_append(&text, "*", 1);
    json_t *root = json_pack("{s:s,s:s,s:i,s:i}", "type", "string", "pattern", buffer_cstr(&text),
                             "minLength", 3, "maxLength", 100);
    buffer_free(&text);
    return root;
}

TEST(schemas_that_explode_are_refused_soon)
{
    json_t *hostile[] = {doubling(false),
                         doubling(true),
                         deep(1000),
                         wide(900),
                         wide(5000),
                         squared("oneOf", "const", 5000),
                         squared("allOf", "enum", 5000),
                         squared("allOf", "required", 5000),
                         many_types(100000),
                         many_ways(3000),
                         repeats(16000)};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct buffer wire = {0};
        struct err e = {0};
        uint64_t from = fixture_cpu_ms();
        int rc = grammar_source_schema(hostile[i], "schema", &wire, &e);
        uint64_t ms = fixture_cpu_ms() - from;
        if (ms > 1000 || rc == 0) /* 50 at rest */
            fail_msg("%zu: %d %s after %llu ms", i, rc, e.text, (unsigned long long)ms);
        json_decref(hostile[i]);
        buffer_free(&wire);
    }
}

/* A stack of 20 000 arrays; and so many strings that what is kept is forgotten on the way. */
TEST(deep_texts_and_many_of_them_stay_within_memory)
{
    struct token_tree *t = fixture_tree();
    struct automaton *a = schema_automaton("true", t);
    struct matcher *m = NULL;
    uint32_t end = FIXTURE_END;
    assert_int_equal(matcher_create(a, 1 << 20, &end, 1, &m, NULL), 0);
    for (int i = 0; i < 200000; i++)
        matcher_accept(m, i % 5 == 3 ? '1' : i % 5 == 4 ? ',' : '[');
    assert_non_null(matcher_mask(m));
    assert_true(matcher_fits(m, '1'));
    assert_true(automaton_bytes(a) < 3 * (AUTOMATON_KEPT_BYTES + AUTOMATON_MASK_BYTES));
    matcher_destroy(&m);
    automaton_destroy(&a);
    token_tree_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_allow_what_they_hold_of),
        cmocka_unit_test(what_a_schema_says_and_is_not_known_is_refused_with_its_path),
        cmocka_unit_test(schemas_that_explode_are_refused_soon),
        cmocka_unit_test(deep_texts_and_many_of_them_stay_within_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
