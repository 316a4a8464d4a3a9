/* Lists: columns that know their header, key and format. */
#include <stdlib.h>
#include <string.h>

#include "hpctl/table.h"
#include "tests/test.h"

static void cell_star(struct buffer *cell, const json_t *row)
{
    buffer_printf(cell, "%s*", json_string_value(json_object_get(row, "name")));
}

static const struct table_column columns[] = {
    {"NAME", "name", NULL},         {">SIZE", "bytes", cell_bytes},
    {">N", "items", cell_count},    {"STAR", NULL, cell_star},
    {"ID", "id", cell_id},          {">TOOK", "took_s", cell_seconds},
    {">SPEED", "speed", cell_rate}, {0},
};

static char *written(struct table **t, const char *when_empty)
{
    struct buffer out = {0};
    struct err e = {0};
    if (table_write(*t, when_empty, &out, &e) < 0)
        fail_msg("%s", e.text);
    char *text = strdup(buffer_cstr(&out));
    buffer_free(&out);
    table_discard(t);
    return text;
}

TEST(rows_are_written_by_the_columns_keys_and_formats)
{
    struct table *t = table_create(columns);
    json_t *row =
        json_pack("{s:s, s:i, s:[i,i], s:s, s:f, s:f}", "name", "a", "bytes", 1500, "items", 1, 2,
                  "id", "0123456789abcdef0123", "took_s", 0.25, "speed", 2e9);
    json_t *bare = json_pack("{s:s}", "name", "longer");
    table_row(t, row);
    table_row(t, bare);
    char *text = written(&t, NULL);
    assert_string_equal(text, "NAME      SIZE  N  STAR     ID                    TOOK     SPEED\n"
                              "a       1.5 kB  2  a*       0123456789abcdef  250.0 ms  2.0 GB/s\n"
                              "longer     0 B  0  longer*  -                        -     0 B/s\n");
    free(text);
    json_decref(row);
    json_decref(bare);
}

TEST(no_rows_say_so_and_print_no_header)
{
    struct table *t = table_create(columns);
    char *text = written(&t, "nothing is there");
    assert_string_equal(text, "nothing is there\n");
    free(text);
    t = table_create(columns);
    text = written(&t, NULL);
    assert_string_equal(text, "");
    free(text);
}

/* One buffer a cell: a row of many formatted columns was once written from a ring of eight. */
TEST(a_row_of_thirty_formatted_cells_keeps_each)
{
    enum { N = 30 };
    static struct table_column many[N + 1];
    char expected[1000] = "";
    for (int i = 0; i < N; i++)
        many[i] = (struct table_column){"C", NULL, NULL};
    struct table *t = table_create(many);
    for (int i = 0; i < N; i++) {
        table_cell(t, "%d-%s", i, "x");
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%d-x%s", i,
                 i + 1 < N ? "  " : "\n");
    }
    char *text = written(&t, NULL);
    assert_string_equal(strchr(text, '\n') + 1, expected);
    free(text);
}

TEST(widths_count_characters_and_numbers_stand_right)
{
    static const struct table_column two[] = {{"É", NULL, NULL}, {">N", NULL, NULL}, {0}};
    struct table *t = table_create(two);
    table_cell(t, "é");
    table_cell(t, "1");
    table_cell(t, "ab");
    table_cell(t, "100");
    char *text = written(&t, NULL);
    assert_string_equal(text, "É     N\né     1\nab  100\n");
    free(text);
}

TEST(cells_of_any_length_are_whole)
{
    static const struct table_column one[] = {{"TEXT", NULL, NULL}, {0}};
    char lengthy[3000];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    struct table *t = table_create(one);
    table_cell(t, "%s", lengthy);
    char *text = written(&t, NULL);
    assert_int_equal(strlen(text), strlen("TEXT") + 1 + strlen(lengthy) + 1 + 0);
    free(text);
}

TEST(texts_are_broken_between_words_so_that_lines_fit)
{
    static const struct table_column four[] = {
        {"", NULL, NULL}, {"~CHECK", NULL, NULL}, {"~WHAT", NULL, NULL}, {">N", NULL, NULL}, {0}};
    struct table *t = table_create(four);
    table_cell(t, "✓");
    table_cell(t, "  processor of a box");
    table_cell(t, "one two three four fünf sechs seven");
    table_cell(t, "7");
    table_cell(t, "!");
    table_cell(t, "disk");
    table_cell(t, "/a/path/that/has/no/word/to/break/at");
    table_cell(t, "%s", "");
    table_break(t, 45);
    char *text = written(&t, NULL);
    assert_string_equal(text, "   CHECK               WHAT                 N\n"
                              "✓    processor of a    one two three four   7\n"
                              "   box                 fünf sechs seven\n"
                              "!  disk                /a/path/that/has/no\n"
                              "                       /word/to/break/at\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_written_by_the_columns_keys_and_formats),
        cmocka_unit_test(no_rows_say_so_and_print_no_header),
        cmocka_unit_test(a_row_of_thirty_formatted_cells_keeps_each),
        cmocka_unit_test(widths_count_characters_and_numbers_stand_right),
        cmocka_unit_test(cells_of_any_length_are_whole),
        cmocka_unit_test(texts_are_broken_between_words_so_that_lines_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
