/* Templates that would run for minutes or hours by one method each: all end by name within about a
 * second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "model/template/template.h"
#include "tests/share.h"
#include "tests/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* gcc's words */
#define WITH_CHECKED_READS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) /* clang's */
#define WITH_CHECKED_READS
#endif
#endif

#define LOOP(body)                                                                                 \
    "{% for i in range(99999) %}{% for j in range(99999) %}{% if " body                            \
    " %}{% endif %}{% endfor %}{% endfor %}"

TEST(a_hostile_template_ends_within_its_time)
{
    static const char *const sources[] = {
        LOOP("a.rfind('a' * 4000000 ~ 'b')"),
        LOOP("a.find('a' * 4000000 ~ 'b')"),
        LOOP("a.startswith(a)"),
        LOOP("a.startswith((a, b, a, b, a))"),
        LOOP("a.lower()"),
        LOOP("a.isalpha()"),
        LOOP("a.strip('b')"),
        LOOP("a.strip(a)"),
#ifndef WITH_CHECKED_READS /* a sanitizer that looks at all of a haystack at every call of memmem  \
                              makes it quadratic */
        LOOP("a.replace('aa', 'b')"),
        LOOP("a.count('a')"),
#endif
        LOOP("'{}'.format(a)"),
        LOOP("a.center(5000000)"),
        LOOP("b in [a, a, a, a]"),
        LOOP("a[17]"),
        LOOP("a | escape"),
        LOOP("[a, b] | join | length"),
        LOOP("{a: 1, b: 2}[a]"),
        LOOP("','.join([a, b])"),
    };
    char *letters = malloc(4 << 20);
    memset(letters, 'a', 4 << 20);
    json_t *variables = json_object();
    json_object_set_new(variables, "a", json_stringn(letters, 4 << 20));
    letters[(4 << 20) - 1] = 'c';
    json_object_set_new(variables, "b", json_stringn(letters, 4 << 20));
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i += (size_t)test_stride()) {
        struct chat_template *t = NULL;
        struct buffer out = {0};
        struct err e = {0};
        assert_int_equal(template_compile(sources[i], strlen(sources[i]), &t, &e), 0);
        clock_t before = clock();
        int rc = template_render(t, variables, NULL, &out, &e);
        double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
        if (rc != HP_ELIMIT || seconds > 1.5 * env_time_scale())
            fail_msg("%s: %d \"%s\" after %.2f s", sources[i], rc, e.text, seconds);
        template_destroy(&t);
        buffer_free(&out);
    }
    json_decref(variables);
    free(letters);
}

/* What people send: a large document that a template cuts, cleans and copies. */
TEST(a_large_message_is_rendered)
{
    static const char source[] = "{% for m in messages %}<|{{ m.role }}|>{% set c = m.content | "
                                 "trim %}{% if '</think>' in c %}"
                                 "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ "
                                 "c.strip() + '\\n' }}{% endfor %}";
    enum { SIZE = 8 << 20 };
    char *text = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        text[i] = "the quick brown fox \n"[i % 21];
    struct chat_template *t = NULL;
    struct buffer out = {0};
    struct err e = {0};
    json_t *variables =
        json_pack("{s:[{s:s, s:s%}]}", "messages", "role", "user", "content", text, (size_t)SIZE);
    assert_non_null(variables);
    assert_int_equal(template_compile(source, sizeof source - 1, &t, &e), 0);
    if (template_render(t, variables, NULL, &out, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(out.size > SIZE - 64);
    template_destroy(&t);
    buffer_free(&out);
    json_decref(variables);
    free(text);
}

/* Each turn looks at the rest of the messages: copies of lists took hundreds of MiB. */
TEST(two_thousand_messages_with_slices_are_rendered)
{
    static const char source[] =
        "{% for m in messages %}{% for n in messages[loop.index0:] %}{% if loop.index > 3 %}{% "
        "break %}{% endif %}"
        "{% endfor %}{% set rest = messages[loop.index:] %}{{ m.role }}{% endfor %}";
    struct chat_template *t = NULL;
    struct buffer out = {0};
    struct err e = {0};
    json_t *messages = json_array();
    for (int i = 0; i < 4000; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "Hi"));
    json_t *variables = json_pack("{s:o}", "messages", messages);
    assert_int_equal(template_compile(source, sizeof source - 1, &t, &e), 0);
    if (template_render(t, variables, NULL, &out, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(out.size, 4000 * 4);
    template_destroy(&t);
    buffer_free(&out);
    json_decref(variables);
}

/* Templates that look for the message before this one go through all of them, again and again. */
TEST(two_thousand_messages_with_loops_over_all_before_are_rendered)
{
    static const char source[] =
        "{% for m in messages %}{% set ns = namespace(last=-1) %}{% for i in range(loop.index0 - "
        "1, -1, -1) %}"
        "{% if loop.first %}{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }} {% endfor %}";
    struct chat_template *t = NULL;
    struct buffer out = {0};
    struct err e = {0};
    json_t *messages = json_array();
    for (int i = 0; i < 2000; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "Hi"));
    json_t *variables = json_pack("{s:o}", "messages", messages);
    assert_int_equal(template_compile(source, sizeof source - 1, &t, &e), 0);
    if (template_render(t, variables, NULL, &out, &e) < 0)
        fail_msg("%s", e.text);
    assert_non_null(strstr(buffer_cstr(&out), " 1997 1998 "));
    template_destroy(&t);
    buffer_free(&out);
    json_decref(variables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_template_ends_within_its_time),
        cmocka_unit_test(a_large_message_is_rendered),
        cmocka_unit_test(two_thousand_messages_with_slices_are_rendered),
        cmocka_unit_test(two_thousand_messages_with_loops_over_all_before_are_rendered),
    };
    return cmocka_run_group_tests_name("template_time", tests, NULL, NULL);
}
