/* msgpack by tables: there and back, and what is refused on the way. */
#include <string.h>

#include "common/pack.h"
#include "tests/test.h"

struct row {
    uint64_t id;
    const char *name;
};
struct record {
    uint64_t count;
    double ratio;
    bool on;
    const char *text;
    struct pack_span bytes;
    struct pack_u32s ids;
    struct pack_list rows; /* struct row */
};
static const struct pack_field row_fields[] = {
    {.key = "id", .kind = PACK_U64, .offset = offsetof(struct row, id), .required = true},
    {.key = "name", .kind = PACK_TEXT, .offset = offsetof(struct row, name)},
    {0},
};
static const struct pack_field fields[] = {
    {.key = "count", .kind = PACK_U64, .offset = offsetof(struct record, count), .required = true},
    {.key = "ratio", .kind = PACK_F64, .offset = offsetof(struct record, ratio)},
    {.key = "on", .kind = PACK_BOOL, .offset = offsetof(struct record, on)},
    {.key = "text", .kind = PACK_TEXT, .offset = offsetof(struct record, text)},
    {.key = "bytes", .kind = PACK_BYTES, .offset = offsetof(struct record, bytes)},
    {.key = "ids", .kind = PACK_U32S, .offset = offsetof(struct record, ids)},
    {.key = "rows",
     .kind = PACK_LIST,
     .offset = offsetof(struct record, rows),
     .rows = row_fields,
     .row_size = sizeof(struct row),
     .max_rows = 3},
    {0},
};

static int decode(const void *bytes, size_t size, struct arena *arena, struct record *out,
                  struct err *e)
{
    *out = (struct record){0};
    return pack_decode(fields, bytes, size, arena, out, e);
}

TEST(every_kind_of_field_comes_back)
{
    struct arena arena = {0};
    struct buffer b = {0};
    struct err e = {0};
    struct record back;
    const uint32_t ids[] = {1, 0xFFFFFFFF, 7};
    struct row rows[] = {{1, "one"}, {UINT64_MAX, ""}};
    struct record r = {UINT64_MAX, -0.125,   true, "caf\xc3\xa9", {(const uint8_t *)"\0\1", 2},
                       {ids, 3},   {rows, 2}};
    pack_encode(fields, &r, &b);
    if (decode(b.data, b.size, &arena, &back, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(back.count == UINT64_MAX && back.ratio == -0.125 && back.on);
    assert_string_equal(back.text, "caf\xc3\xa9");
    assert_int_equal(back.bytes.size, 2);
    assert_memory_equal(back.bytes.data, "\0\1", 2);
    assert_int_equal(back.ids.count, 3);
    assert_memory_equal(back.ids.items, ids, sizeof ids);
    assert_int_equal(back.rows.count, 2);
    const struct row *again = back.rows.items;
    assert_true(again[0].id == 1 && again[1].id == UINT64_MAX);
    assert_string_equal(again[0].name, "one");
    assert_string_equal(again[1].name, "");
    buffer_free(&b);
    arena_free(&arena);
}

TEST(what_is_empty_is_left_out_and_comes_back_empty)
{
    struct arena arena = {0};
    struct buffer b = {0};
    struct record back;
    pack_encode(fields, &(struct record){0}, &b);
    assert_int_equal(b.size, 1 + 1 + 5 + 1); /* a map of "count" alone */
    assert_int_equal(decode(b.data, b.size, &arena, &back, NULL), 0);
    assert_string_equal(back.text, "");
    assert_int_equal(back.rows.count, 0);
    buffer_free(&b);
    arena_free(&arena);
}

TEST(text_that_is_not_utf8_is_cleaned_when_it_is_written)
{
    struct arena arena = {0};
    struct buffer b = {0};
    struct record back;
    pack_encode(fields, &(struct record){.text = "a\xFFz"}, &b);
    assert_int_equal(decode(b.data, b.size, &arena, &back, NULL), 0);
    assert_string_equal(back.text, "a?z");
    buffer_free(&b);
    arena_free(&arena);
}

TEST(what_is_malformed_is_refused_and_its_key_named)
{
#define BYTES(s) s, sizeof(s) - 1
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        {BYTES(""), ""},
        {BYTES("\x90"), ""},      /* a list */
        {BYTES("\x80"), "count"}, /* required, missing */
        {BYTES("\x81\xA5"
               "count"
               "\xA1x"),
         "count"}, /* text for a number */
        {BYTES("\x81\xA5"
               "count"
               "\xFF"),
         "count"}, /* -1 */
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA5"
               "count"
               "\x02"),
         "count"},
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA4"
               "text"
               "\xA1\xFF"),
         "text"},
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA4"
               "text"
               "\xA2x"),
         ""}, /* cut off */
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA3"
               "ids"
               "\xC4\x03"
               "abc"),
         "ids"}, /* not words */
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA4"
               "rows"
               "\x94\x81\xA2"
               "id"
               "\x01\x81\xA2"
               "id"
               "\x01\x81\xA2"
               "id"
               "\x01\x81\xA2"
               "id"
               "\x01"),
         "rows"}, /* four of three */
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA4"
               "rows"
               "\x91\x80"),
         "id"},
        {BYTES("\x82\xA5"
               "count"
               "\x01\xA4"
               "rows"
               "\xDD\xFF\xFF\xFF\xFF"),
         "whole msgpack value"},
        {BYTES("\x81\xA5"
               "count"
               "\x01\x01"),
         ""}, /* a byte after the end */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {0};
        struct record back;
        struct err e = {0};
        if (decode(cases[i].bytes, cases[i].size, &arena, &back, &e) != HP_EPARSE)
            fail_msg("case %zu is taken", i);
        if (!strstr(e.text, cases[i].says))
            fail_msg("case %zu: \"%s\" does not name %s", i, e.text, cases[i].says);
        arena_free(&arena);
    }
}

TEST(keys_that_nobody_knows_are_skipped_to_a_depth)
{
    struct arena arena = {0};
    struct record back;
    uint8_t bytes[200];
    static const uint8_t head[] = "\x82\xA5"
                                  "count"
                                  "\x05\xA1z";
    for (int depth = 10; depth <= 20; depth += 10) {
        size_t n = sizeof head - 1;
        memcpy(bytes, head, n);
        for (int i = 0; i < depth; i++)
            bytes[n++] = 0x91; /* a list of one */
        bytes[n++] = 0xC0;     /* nil */
        int rc = decode(bytes, n, &arena, &back, NULL);
        assert_int_equal(rc, depth == 10 ? 0 : HP_EPARSE);
        if (rc == 0)
            assert_int_equal(back.count, 5);
    }
    arena_free(&arena);
}

TEST(every_truncation_is_refused)
{
    struct arena arena = {0};
    struct buffer b = {0};
    struct record back;
    struct row rows[] = {{1, "one"}, {2, "two"}};
    pack_encode(fields, &(struct record){.count = 3, .text = "text", .rows = {rows, 2}}, &b);
    for (size_t n = 0; n < b.size; n++)
        assert_int_equal(decode(b.data, n, &arena, &back, NULL), HP_EPARSE);
    assert_int_equal(decode(b.data, b.size, &arena, &back, NULL), 0);
    buffer_free(&b);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_field_comes_back),
        cmocka_unit_test(what_is_empty_is_left_out_and_comes_back_empty),
        cmocka_unit_test(text_that_is_not_utf8_is_cleaned_when_it_is_written),
        cmocka_unit_test(what_is_malformed_is_refused_and_its_key_named),
        cmocka_unit_test(keys_that_nobody_knows_are_skipped_to_a_depth),
        cmocka_unit_test(every_truncation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
