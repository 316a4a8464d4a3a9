#include <string.h>

#include "common/svg.h"
#include "tests/test.h"

static const struct svg_font font = {.size = 10, .colour = SVG_INK};

TEST(texts_are_cut_between_characters_where_they_do_not_fit)
{
    static const struct {
        const char *text;
        double width;
        const char *shown; /* NULL: nothing is */
    } cases[] = {
        {"abc", 100, ">abc</text>"},  {"a<b", 100, ">a&lt;b</text>"}, {"abcdef", 25, ">ab…</text>"},
        {"ööööö", 35, ">öö…</text>"}, {"abcdef", 12, NULL},           {"abcdef", -5, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer out = {0};
        svg_text_fit(&out, 1, 2, &font, cases[i].width, cases[i].text);
        if (cases[i].shown ? !strstr(buffer_cstr(&out), cases[i].shown) : out.size > 0)
            fail_msg("\"%s\" in %g: %s", cases[i].text, cases[i].width, buffer_cstr(&out));
        buffer_free(&out);
    }
}

TEST(a_cut_text_tells_the_whole_of_it_to_who_asks)
{
    struct buffer out = {0};
    svg_text_fit(&out, 1, 2, &font, 25, "a & b, c");
    assert_non_null(strstr(buffer_cstr(&out), "<title>a &amp; b, c</title>"));
    buffer_free(&out);
}

TEST(widths_grow_with_letters_size_and_weight)
{
    struct svg_font large = {.size = 20, .colour = SVG_INK},
                    bold = {.size = 10, .colour = SVG_INK, .bold = true};
    double width = svg_text_width("abc", &font);
    assert_true(width > 0 && svg_text_width("abcd", &font) > width);
    assert_true(svg_text_width("abc", &large) == 2 * width);
    assert_true(svg_text_width("abc", &bold) > width);
    assert_true(svg_text_width("", &font) == 0);
    assert_true(svg_text_width("\xff", &font) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_between_characters_where_they_do_not_fit),
        cmocka_unit_test(a_cut_text_tells_the_whole_of_it_to_who_asks),
        cmocka_unit_test(widths_grow_with_letters_size_and_weight),
    };
    return cmocka_run_group_tests_name("svg", tests, NULL, NULL);
}
