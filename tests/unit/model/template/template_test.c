/* The language of templates, piece by piece. The expected text is what jinja2 3.1 writes
 * (sandboxed, trim_blocks and lstrip_blocks). */
#include <string.h>

#include "model/template/template.h"
#include "tests/test.h"
#include "tests/unit/model/template/render.h"

TEST(errors_name_line_and_reason)
{
    static const struct {
        const char *source;
        int rc;
        const char *says;
    } wrong[] = {
        {"a\n{{ raise_exception('No ' ~ s) }}", HP_EINVAL, "No Hello World"},
        {"a\n\n{{ nope.x }}", HP_EINVAL, "line 3: 'nope' is undefined"},
        {"{{ nope() }}", HP_EINVAL, "line 1: 'nope' is undefined"},
        {"{{ 'a' + 1 }}", HP_EINVAL, "line 1: can only concatenate str (not \"int\") to str"},
        {"{{ a }}\n{{ 1 / 0 }}", HP_EINVAL, "line 2: division by zero"},
        {"{% for x in n %}{% endfor %}", HP_EINVAL, "line 1: 'NoneType' object is not iterable"},
        {"{% set d.q = 1 %}", HP_EINVAL, "line 1: cannot assign attribute on non-namespace object"},
        {"{{ l.append(4) }}", HP_EINVAL, "line 1: 'append' is undefined"},
        {"{{ [1, {}] | sort }}", HP_EINVAL, "line 1: int and dict have no order"},
        {"{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}", HP_EINVAL,
         "line 1: the macro m takes no such argument"},
        {"{{ range | tojson }}", HP_EINVAL,
         "line 1: Object of type function is not JSON serializable"},
        {"{{ 9223372036854775807 + 1 }}", HP_EUNSUPPORTED, "line 1: a whole number beyond 64 bits"},
        {"{{ a | no_such }}", HP_EUNSUPPORTED, "line 1: the filter \"no_such\" is not known"},
        {"\n{{ a is no_such }}", HP_EUNSUPPORTED, "line 2: the test \"no_such\" is not known"},
        {"{% include 'x' %}", HP_EUNSUPPORTED, "line 1: the tag \"include\" is not known here"},
        {"{% for x in l recursive %}{% endfor %}", HP_EUNSUPPORTED,
         "line 1: recursive loops are not supported"},
        {"{{ m(*l) }}", HP_EUNSUPPORTED, "line 1: arguments unpacked by * or ** are not supported"},
        {"{% if a %}\n\n{% endfor %}", HP_EUNSUPPORTED,
         "line 3: the tag \"endfor\" is not known here"},
        {"{% if a %}\nx", HP_EPARSE, "line 2: the template ends where {% elif %} is expected"},
        {"{{ a b }}", HP_EPARSE, "line 1: \"}}\" is expected where \"b\" stands"},
        {"{{ a", HP_EPARSE, "line 1: an expression is not closed by }}"},
        {"\n{% if a", HP_EPARSE, "line 2: a tag is not closed by %}"},
        {"{# a", HP_EPARSE, "line 1: a comment is not closed by #}"},
        {"{% raw %} {{ a }}", HP_EPARSE, "line 1: {% raw %} is not closed by {% endraw %}"},
        {"{{ 'a }}", HP_EPARSE, "line 1: a string is not closed"},
        {"{{ (a] }}", HP_EPARSE, "line 1: a bracket is closed that was not opened"},
        {"{{ a ? b }}", HP_EPARSE, "line 1: a character that means nothing in a tag"},
        {"{{ }}", HP_EPARSE, "line 1: an expression is expected where \"}}\" stands"},
        {"{% break %}", HP_EPARSE, "line 1: break outside of a loop"},
        {"{{ f(x=1, 2) }}", HP_EPARSE, "line 1: an argument without a name after one with a name"},
        {"a\xff", HP_EPARSE, "line 1: byte 1 of the template is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct buffer out = {0};
        struct err e = {0};
        buffer_append(&out, "kept", 4);
        int rc = render(wrong[i].source, values, NULL, &out, &e);
        if (rc != wrong[i].rc || e.code != rc || strcmp(e.text, wrong[i].says) != 0)
            fail_msg("%s: %d \"%s\", expected %d \"%s\"", wrong[i].source, rc,
                     rc < 0 ? e.text : buffer_cstr(&out), wrong[i].rc, wrong[i].says);
        assert_string_equal(buffer_cstr(&out), "kept");
        buffer_free(&out);
    }
}

TEST(what_does_not_end_is_stopped)
{
    static const struct {
        const char *source, *says;
    } endless[] = {
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
         "line 1: the template takes more than 200000 steps"},
        {"{% for a in range(9999) %}0123456789{% endfor %}",
         "line 1: the template writes more than 20000 bytes"},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
         "endfor %}",
         "line 1: a text is longer than 20000 bytes"},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% "
         "endfor %}",
         "line 1: a text is longer than 20000 bytes"},
        {"{{ 'ab' * 999999999 }}", "line 1: a repeated str is longer than 20000"},
        {"{{ [1] * 999999999 }}", "line 1: a repeated list is longer than 20000"},
        {"{{ range(100001) }}", "line 1: a range of more than 100000 numbers"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
         "line 1: expressions and calls are nested deeper than 600"},
        {"{{ 'a'.replace('', 'x' * 20000) }}", "line 1: a text is longer than 20000 bytes"},
    };
    struct template_limits limits = {.max_steps = 200000, .max_output_bytes = 20000};
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        struct buffer out = {0};
        struct err e = {0};
        int rc = render(endless[i].source, values, &limits, &out, &e);
        if (rc >= 0 || !strstr(e.text, endless[i].says))
            fail_msg("%s: %d \"%s\", expected \"%s\"", endless[i].source, rc, e.text,
                     endless[i].says);
        buffer_free(&out);
    }
}

TEST(deep_nesting_is_refused)
{
    static const char *const open[] = {
        "{{ ((", "{{ [[", "{{ --", "{{ not f([", "{% if a %}{% if a %}", "{{ a if a else "};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        struct buffer source = {0};
        struct err e = {0};
        struct chat_template *t = NULL;
        buffer_append(&source, open[i], strlen(open[i]));
        for (int k = 0; k < 5000; k++)
            buffer_append(&source, open[i] + 2 * (open[i][1] == '{'),
                          strlen(open[i]) - 2 * (size_t)(open[i][1] == '{'));
        if (open[i][1] == '{')
            buffer_printf(&source, " }}");
        int rc = template_compile(buffer_cstr(&source), source.size, &t, &e);
        if (rc != HP_ELIMIT)
            fail_msg("%s: %d %s", open[i], rc, e.text);
        buffer_free(&source);
    }
}

TEST(long_chains_run_or_are_refused)
{
    static const char *const links[] = {" + 'x'",   " ~ 'x'",  "|trim",   "[0:]",
                                        ".strip()", " == 'x'", " or 'x'", " and 'x'"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        for (int length = 50; length < 50000; length *= 30) {
            struct buffer source = {0}, out = {0};
            struct err e = {0};
            buffer_printf(&source, "{{ 'x'");
            for (int k = 0; k < length; k++)
                buffer_append(&source, links[i], strlen(links[i]));
            buffer_printf(&source, " }}");
            int rc = render(buffer_cstr(&source), "{}", NULL, &out, &e);
            if (rc != HP_ELIMIT && rc != 0)
                fail_msg("%s: %d %s", links[i], rc, e.text);
            assert_true(length > 50 || rc == 0);
            buffer_free(&source);
            buffer_free(&out);
        }
    }
}

TEST(the_clock_is_handed_in)
{
    struct template_limits limits = {.now_s = 1700000000};
    struct buffer out = {0};
    struct err e = {0};
    assert_int_equal(render("{{ strftime_now('%d %b %Y') }}", "{}", &limits, &out, &e), 0);
    assert_string_equal(buffer_cstr(&out), "14 Nov 2023");
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_line_and_reason),
        cmocka_unit_test(what_does_not_end_is_stopped),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_chains_run_or_are_refused),
        cmocka_unit_test(the_clock_is_handed_in),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
