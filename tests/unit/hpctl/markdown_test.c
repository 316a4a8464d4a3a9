/* Markdown on a terminal: the same whatever pieces it comes in. */
#include <string.h>

#include "common/bytes.h"
#include "hpctl/markdown.h"
#include "tests/test.h"

#define PLAIN "\033[0m"
#define BOLD PLAIN "\033[1m"
#define DIM PLAIN "\033[2m"
#define CODE PLAIN "\033[36m"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"plain, and 2 * 3 = 6\n", "plain, and 2 * 3 = 6\n"},
    {"so **much** is", "so " BOLD "much" PLAIN " is"},
    {"call `f(**x)` now", "call " CODE "f(**x)" PLAIN " now"},
    {"# One\ntwo", BOLD "# One" PLAIN "\ntwo"},
    {"a # b\n#c", "a # b\n#c"},
    {"####### seven", "####### seven"},
    {"```c\nint **p; # `x`\n```\nout", DIM "```c\nint **p; # `x`\n```" PLAIN "\nout"},
    {"**left open\nnext", BOLD "left open" PLAIN "\nnext"},
    {"*one* and ***three***", "*one* and ***three***"},
    {"ends with **", "ends with " BOLD PLAIN},
    {"* item\n  * item", "* item\n  * item"},
    {"``two``", "``two``"},
    {"", ""},
};

TEST(texts_look_the_same_whole_and_in_pieces)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= strlen(cases[i].text) + 1; piece++) {
            struct markdown m = {0};
            struct buffer out = {0};
            size_t n = strlen(cases[i].text);
            for (size_t at = 0; at < n; at += piece)
                markdown_take(&m, cases[i].text + at, n - at < piece ? n - at : piece, &out);
            markdown_end(&m, &out);
            assert_string_equal(out.size ? buffer_cstr(&out) : "", cases[i].shown);
            buffer_free(&out);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_look_the_same_whole_and_in_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
