/* Words at the right edge, on a terminal of our own: it obeys what the wrapping sends, and shows
 * rows. */
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "hpctl/word_wrap.h"
#include "tests/test.h"

enum { ROWS = 12, ROW_BYTES = 400 };

/* Of a real one: it breaks a line only when a character comes that has no room. */
struct screen {
    size_t columns, row, column;
    char cells[ROWS][80][8]; /* a wide character's second column is empty */
};

static size_t screen_escape(struct screen *s, const char *text)
{
    unsigned column;
    size_t n = strcspn(text, "GKm") + 1;
    if (sscanf(text, "\033[%uG", &column) == 1 && text[n - 1] == 'G')
        s->column = column - 1;
    else if (strncmp(text, "\033[K", 3) == 0)
        for (size_t i = s->column; i < s->columns; i++)
            s->cells[s->row][i][0] = '\0';
    return n;
}

static void screen_put(struct screen *s, const char *text, size_t n, size_t wide)
{
    if (s->column + wide > s->columns) {
        s->row++;
        s->column = 0;
    }
    assert_true(s->row < ROWS);
    memcpy(s->cells[s->row][s->column], text, n);
    s->cells[s->row][s->column][n] = '\0';
    s->column += wide;
}

static void screen_show(struct screen *s, const char *text, size_t n)
{
    for (size_t at = 0, took; at < n; at += took) {
        utf8proc_int32_t c;
        took = (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text + at, -1, &c);
        if (c == '\033')
            took = screen_escape(s, text + at);
        else if (c == '\n')
            s->row++, s->column = 0;
        else
            screen_put(s, text + at, took, (size_t)utf8proc_charwidth(c));
    }
}

/* Rows as they are read, without spaces at their ends. */
static void screen_read(const struct screen *s, char *out)
{
    *out = '\0';
    for (size_t r = 0; r <= s->row; r++) {
        char line[ROW_BYTES] = "";
        for (size_t i = 0; i < s->columns; i++)
            strcat(line, s->cells[r][i]);
        while (*line && line[strlen(line) - 1] == ' ')
            line[strlen(line) - 1] = '\0';
        sprintf(out + strlen(out), "%s%s", r ? "|" : "", line);
    }
}

static const struct {
    const char *text, *rows;
    bool keeps;
} cases[] = {
    {"one two three four five", "one two|three four|five", false},
    {"one two three four five", "one two th|ree four f|ive", true},
    {"0123456789 fits\nnext", "0123456789|fits|next", false},
    {"0123456789 \nnext", "0123456789|next", false},
    {"0123456789\nnext", "0123456789|next", false},
    {"a 0123456789abcdef b", "a|0123456789|abcdef b", false},
    {"ab \033[0m\033[1mstrong\033[0m words", "ab strong|words", false},
    {"go to caf\xC3\xA9s now", "go to|caf\xC3\xA9s now", false},
    /* Chinese: a line ends between any two characters, and none is cut in half. */
    {"\xE4\xB8\x80\xE4\xB8\x80\xE4\xB8\x80\xE4\xB8\x80 \xE4\xB8\x80\xE4\xB8\x80",
     "\xE4\xB8\x80\xE4\xB8\x80\xE4\xB8\x80\xE4\xB8\x80|\xE4\xB8\x80\xE4\xB8\x80", false},
    {"word \xE4\xB8\x80\xE4\xB8\x80\xE4\xB8\x80\xE4\xB8\x80",
     "word \xE4\xB8\x80\xE4\xB8\x80|\xE4\xB8\x80\xE4\xB8\x80", false},
    {"   in line", "   in line", false},
    {"", "", false},
};

static size_t character_bytes(const char *text)
{
    if (*text == '\033')
        return strcspn(text, "m") + 1;
    size_t n = 1;
    while (((unsigned char)text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

TEST(no_word_that_fits_a_line_is_broken_whatever_pieces_it_comes_in)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= strlen(cases[i].text) + 1; piece++) {
            struct word_wrap w = {0};
            struct screen s = {.columns = 10};
            const char *text = cases[i].text;
            for (size_t at = 0, n; text[at]; at += n) {
                struct buffer out = {0};
                n = 0;
                for (size_t k = 0; k < piece && text[at + n]; k++)
                    n += character_bytes(text + at + n);
                word_wrap_take(&w, text + at, n, s.columns, cases[i].keeps, &out);
                screen_show(&s, buffer_cstr(&out), out.size);
                assert_int_equal(w.column, s.column);
                buffer_free(&out);
            }
            char rows[ROWS * ROW_BYTES];
            screen_read(&s, rows);
            assert_string_equal(rows, cases[i].rows);
            word_wrap_free(&w);
        }
}

TEST(a_word_that_is_moved_keeps_its_colours)
{
    static const char text[] = "\033[0m\033[1mone\033[0m two\033[0m\033[36mthree\033[0m";
    struct word_wrap w = {0};
    struct buffer out = {0};
    word_wrap_take(&w, text, strlen(text), 10, false, &out);
    assert_non_null(strstr(buffer_cstr(&out), "\033[5G\033[K\n\033[0mtwo\033[0m\033[36mthr"));
    buffer_free(&out);
    word_wrap_free(&w);
}

TEST(a_terminal_that_says_no_width_gets_the_text_as_it_is)
{
    struct word_wrap w = {0};
    struct buffer out = {0};
    word_wrap_take(&w, "one two three four", 18, 0, false, &out);
    assert_string_equal(buffer_cstr(&out), "one two three four");
    buffer_free(&out);
    word_wrap_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_word_that_fits_a_line_is_broken_whatever_pieces_it_comes_in),
        cmocka_unit_test(a_word_that_is_moved_keeps_its_colours),
        cmocka_unit_test(a_terminal_that_says_no_width_gets_the_text_as_it_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
