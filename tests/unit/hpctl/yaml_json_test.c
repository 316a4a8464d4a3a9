/* Files that people write: YAML or JSON, one document, whatever stands in it. */
#include "common/bytes.h"
#include "common/fs.h"
#include "hpctl/yaml_json.h"
#include "tests/test.h"
#include "tests/unit/folder.h"

static int text_load(const char *folder, const char *text, size_t size, json_t **out, struct err *e)
{
    char path[300];
    snprintf(path, sizeof path, "%s/file.yaml", folder);
    assert_int_equal(fs_file_write(path, text, size, 0644, NULL), 0);
    return yaml_json_load(path, out, e);
}

TEST(yaml_and_json_say_the_same)
{
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"a: 1\nb: [x, 'y', \"z\"]\n", "{\"a\":1,\"b\":[\"x\",\"y\",\"z\"]}"},
        {"{\"a\": 1, \"b\": [true, null, -2.5]}", "{\"a\":1,\"b\":[true,null,-2.5]}"},
        {"---\na: 007\nb: 1e3\nc: '1'\nd: 1-2\ne: .inf\nf: ~\n...\n",
         "{\"a\":7,\"b\":1000.0,\"c\":\"1\",\"d\":\"1-2\",\"e\":\".inf\",\"f\":null}"},
        {"a:\n  - b: 1\n    c: 2\n  -\n", "{\"a\":[{\"b\":1,\"c\":2},null]}"},
        {"a: 99999999999999999999\nb: 1e999\n", "{\"a\":1e20,\"b\":\"1e999\"}"},
        {"\xef\xbb\xbf{\"a\": \"\\u00e9\"}\n# behind it\n", "{\"a\":\"\xc3\xa9\"}"},
    };
    char folder[256];
    test_folder_make(folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *read, *wanted = json_loads(cases[i].json, 0, NULL);
        struct err e = {0};
        if (text_load(folder, cases[i].text, strlen(cases[i].text), &read, &e) < 0)
            fail_msg("case %zu: %s", i, e.text);
        if (!json_equal(read, wanted))
            fail_msg("case %zu: %s", i, json_dumps(read, 0));
        json_decref(read);
        json_decref(wanted);
    }
    test_folder_remove(folder);
}

TEST(what_is_not_taken_is_refused_by_line)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "the file is empty"},
        {"# nothing\n", "the file is empty"},
        {"a: &x 1\nb: *x\n", "line 1, column 4: anchors"},
        {"a: 1\nb: *x\n", "line 2, column 4: anchors"},
        {"a: &x [1]\n", "line 1, column 4: anchors"},
        {"a: !!str 5\n", "line 1, column 4: tags"},
        {"a: !!python/object:os.system {}\n", "line 1, column 4: tags"},
        {"!x\na: 1\n", "line 1, column 1: tags"},
        {"a: 1\na: 2\n", "line 2, column 1: this key stands here twice"},
        {"? [a]\n: 1\n", "line 1, column 3: a key is text"},
        {"\"a\\0b\": 1\n", "a key is text"},
        {"a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins here"},
        {"{\"a\": 1} {\"b\": 2}", "line 1"},
        {"{\"a\": 1}\n]", "line 2"},
        {"a: [1, 2\n", "line 2"},
        {"a:\n\tb: 1\n", "line 2"},
        {"%YAML 9.9\n---\na: 1\n", "line 1"},
        {"a: \xff\n", "line 1"},
    };
    char folder[256];
    test_folder_make(folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *read;
        struct err e = {0};
        if (text_load(folder, cases[i].text, strlen(cases[i].text), &read, &e) != HP_EPARSE)
            fail_msg("case %zu is read", i);
        if (!strstr(e.text, cases[i].said) || !strstr(e.text, "file.yaml: "))
            fail_msg("case %zu: %s", i, e.text);
        assert_null(read);
    }
    test_folder_remove(folder);
}

TEST(depth_and_width_are_bounded)
{
    static const char *const opens[] = {"[", "{a: ", "- ", "{\"a\":["};
    char folder[256];
    test_folder_make(folder);
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
        struct buffer text = {0};
        json_t *read;
        struct err e = {0};
        for (int k = 0; k < 200000; k++)
            buffer_append(&text, opens[i], strlen(opens[i]));
        assert_int_equal(text_load(folder, (const char *)text.data, text.size, &read, &e),
                         HP_EPARSE);
        assert_non_null(strstr(e.text, "nested too deep"));
        buffer_free(&text);
    }
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_and_json_say_the_same),
        cmocka_unit_test(what_is_not_taken_is_refused_by_line),
        cmocka_unit_test(depth_and_width_are_bounded),
    };
    return cmocka_run_group_tests_name("yaml_json", tests, NULL, NULL);
}
