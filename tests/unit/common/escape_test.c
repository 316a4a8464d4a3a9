#include "common/escape.h"
#include "common/json.h"
#include "tests/test.h"

TEST(xml_texts_hold_no_markup_and_no_control_characters)
{
    struct buffer b = {0};
    escape_xml(&b, "a <b c=\"d\"> & 'e'\x01\n\xC3\xA9");
    assert_string_equal(buffer_cstr(&b), "a &lt;b c=&quot;d&quot;&gt; &amp; &#39;e&#39;\xC3\xA9");
    buffer_free(&b);
}

TEST(json_strings_are_read_back_as_they_were)
{
    static const char *const texts[] = {
        "",         "plain", "\"quoted\" \\ back", "a\tb\nc\x01\x1F", "\xC3\xA9\xF0\x9F\x98\x80",
        "</script>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buffer b = {0};
        escape_json(&b, texts[i]);
        json_t *read = json_loadb((const char *)b.data, b.size, JSON_DECODE_ANY, NULL);
        assert_true(json_is_string(read));
        assert_string_equal(json_string_value(read), texts[i]);
        json_decref(read);
        buffer_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xml_texts_hold_no_markup_and_no_control_characters),
        cmocka_unit_test(json_strings_are_read_back_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
