/* Templates against Jinja itself, in the environment that transformers renders chats in:
 * tests/unit/model/template/cases/templates.json, made by make_templates.py beside it. What Jinja
 * refuses is refused here; nothing is silently different. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/template/template.h"
#include "tests/test.h"

/* Cases that are refused here by name, where Jinja gives something. */
static bool may_be_refused(const char *source)
{
    static const char *const known[] = {"recursive", "**{'b'"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(source, known[i]))
            return true;
    return false;
}

static int check(const char *source, const char *expected, const json_t *variables)
{
    struct chat_template *t = NULL;
    struct buffer out = {0};
    struct err e = {0};
    int rc = template_compile(source, strlen(source), &t, &e);
    if (rc == 0)
        rc = template_render(t, variables, NULL, &out, &e);
    bool same = expected ? rc == 0 && strcmp(buffer_cstr(&out), expected) == 0 : rc < 0;
    same |= rc == HP_EUNSUPPORTED && may_be_refused(source);
    if (!same)
        print_error("%s\n  gives    %s\n  expected %s\n", source,
                    rc < 0 ? e.text : buffer_cstr(&out), expected ? expected : "(refused)");
    template_destroy(&t);
    buffer_free(&out);
    return !same;
}

TEST(small_templates_give_what_jinja_gives)
{
    json_t *root, *row;
    struct json_at at;
    struct err e = {0};
    size_t i;
    int bad = 0;
    if (json_load_at("tests/unit/model/template/cases/templates.json", &root, &at, &e) < 0)
        fail_msg("%s", e.text);
    json_t *cases = json_object_get(root, "cases"), *variables = json_object_get(root, "variables");
    json_array_foreach(cases, i, row) bad +=
        check(json_string_value(json_array_get(row, 0)), json_string_value(json_array_get(row, 1)),
              variables);
    assert_true(json_array_size(cases) > 400);
    json_decref(root);
    assert_int_equal(bad, 0);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_templates_give_what_jinja_gives)};
    return cmocka_run_group_tests_name("template_jinja", tests, NULL, NULL);
}
