#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "tests/test.h"

static json_t *root;
static struct json_at at;

static void read_text(const char *text)
{
    struct err e = {0};
    if (json_parse_at("f.json", text, strlen(text), &root, &at, &e) < 0)
        fail_msg("%s", e.text);
}

TEST(a_nul_in_a_strangers_file_is_refused_where_it_is_read)
{
    static const char text[] = "{\"odd\": \"\\u0000\", \"n\": 1e400, \"big\": "
                               "1000000000000000000000000000000, \"good\": \"a\"}";
    static const char fine[] = "{\"odd\": \"a\\u0000b\", \"big\": "
                               "1000000000000000000000000000000, \"good\": \"a\"}";
    struct err e = {0};
    const char *out;
    assert_int_equal(json_parse_at("f", fine, sizeof fine - 1, &root, &at, &e), HP_EPARSE);
    assert_int_equal(json_parse_wide_at("f", text, sizeof text - 1, &root, &at, &e), HP_EPARSE);
    assert_int_equal(json_parse_wide_at("f", fine, sizeof fine - 1, &root, &at, &e), 0);
    assert_int_equal(json_get_string(&at, "good", &out, &e), 0);
    assert_int_equal(json_get_string(&at, "odd", &out, &e), HP_EPARSE);
    assert_string_equal(e.text, "f: $.odd: has a NUL");
    json_decref(root);
}

TEST(what_is_not_valid_names_file_line_and_column)
{
    static const char *const texts[] = {"", "{", "{\"a\": 1, \"a\": 2}", "[1,]",
                                        "{\"a\": \"\xFF\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err e = {0};
        assert_int_equal(json_parse_at("f.json", texts[i], strlen(texts[i]), &root, &at, &e),
                         HP_EPARSE);
        assert_memory_equal(e.text, "f.json:1:", 9);
    }
}

TEST(complaints_name_the_path_and_the_value)
{
    struct err e = {0};
    struct json_at list, item, member;
    const char *text;
    double number;
    uint64_t whole;
    bool on;
    read_text("{\"list\": [{\"x\": -4, \"s\": 5, \"half\": 0.5, \"big\": 1e30}]}");
    assert_int_equal(json_get(&at, "list", &list, &e), 0);
    item = json_item(&list, 0);
    assert_int_equal(json_get_number_min(&item, "x", 0, &number, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "f.json: $.list[0].x: "));
    assert_non_null(strstr(e.text, "-4"));
    assert_int_equal(json_get_string(&item, "s", &text, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "$.list[0].s"));
    assert_int_equal(json_get_u64(&item, "half", &whole, &e), HP_EPARSE);
    assert_int_equal(json_get_u64(&item, "big", &whole, &e), HP_EPARSE);
    assert_int_equal(json_get(&item, "none", &member, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "none"));
    assert_int_equal(json_opt_bool(&item, "x", true, &on, &e), HP_EPARSE);
    assert_int_equal(json_as_object(&list, &e), HP_EPARSE);
    json_decref(root);
}

TEST(what_may_be_missing_has_its_fallback_and_null_is_missing)
{
    const char *text;
    double number;
    uint64_t whole;
    bool on;
    struct json_at member;
    read_text("{\"n\": null, \"whole\": 2.1e9}");
    assert_false(json_find(&at, "n", &member));
    assert_int_equal(json_opt_string(&at, "n", "else", &text, NULL), 0);
    assert_string_equal(text, "else");
    assert_int_equal(json_opt_number_min(&at, "m", 0, 7, &number, NULL), 0);
    assert_true(number == 7);
    assert_int_equal(json_opt_u64(&at, "m", 8, &whole, NULL), 0);
    assert_int_equal(whole, 8);
    assert_int_equal(json_opt_bool(&at, "m", true, &on, NULL), 0);
    assert_true(on);
    assert_int_equal(json_get_u64(&at, "whole", &whole, NULL), 0);
    assert_int_equal(whole, 2100000000);
    json_decref(root);
}

TEST(numbers_beyond_64_bits_are_read_where_others_write_them)
{
    static const char text[] = "{\"limit\": 1000000000000000019884624838656, \"n\": 3}";
    uint64_t n;
    assert_int_equal(json_parse_at("f", text, sizeof text - 1, &root, &at, NULL), HP_EPARSE);
    assert_int_equal(json_parse_wide_at("f", text, sizeof text - 1, &root, &at, NULL), 0);
    assert_int_equal(json_get_u64(&at, "n", &n, NULL), 0);
    assert_int_equal(n, 3);
    json_decref(root);
}

TEST(nesting_is_bounded)
{
    static char deep[20001];
    memset(deep, '[', 10000);
    memset(deep + 10000, ']', 10000);
    assert_int_equal(json_parse_at("f", deep, 20000, &root, &at, NULL), HP_EPARSE);
}

TEST(a_format_is_checked)
{
    struct err e = {0};
    read_text("{\"format\": \"hp-plan/2\"}");
    assert_int_equal(json_expect_format(&at, "hp-plan/2", &e), 0);
    assert_int_equal(json_expect_format(&at, "hp-plan/1", &e), HP_EPARSE);
    json_decref(root);
}

TEST(secrets_are_their_owners_alone_and_other_files_are_not)
{
    char path[] = "/tmp/hp-json-XXXXXX";
    struct stat st;
    mode_t before = umask(022);
    close(mkstemp(path));
    json_t *o = json_pack("{s:i}", "a", 1);
    assert_int_equal(json_save(o, path, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(json_save_private(o, path, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    json_decref(o);
    assert_int_equal(json_load_at(path, &root, &at, NULL), 0);
    json_decref(root);
    unlink(path);
    umask(before);
    assert_int_equal(json_load_at(path, &root, &at, NULL), HP_ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_valid_names_file_line_and_column),
        cmocka_unit_test(a_nul_in_a_strangers_file_is_refused_where_it_is_read),
        cmocka_unit_test(complaints_name_the_path_and_the_value),
        cmocka_unit_test(what_may_be_missing_has_its_fallback_and_null_is_missing),
        cmocka_unit_test(numbers_beyond_64_bits_are_read_where_others_write_them),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(a_format_is_checked),
        cmocka_unit_test(secrets_are_their_owners_alone_and_other_files_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
