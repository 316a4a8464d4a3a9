#include "common/env.h"
#include "model/files/gguf.h"
#include "tests/test.h"
#include "tests/unit/model/tiny_gguf.h"

static volatile uint8_t touched;

/* Parses a copy of exactly that size, so that sanitizers see every byte beyond it; touches what was
 * accepted. */
static int parse_copy(const uint8_t *data, size_t size, struct err *e)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    if (size)
        memcpy(copy, data, size);
    struct gguf g;
    int rc = gguf_parse("f.gguf", copy, size, GGUF_WEIGHTS, &g, e);
    for (size_t i = 0; rc == 0 && i < g.n_weights; i++)
        touched ^= g.weights[i].data[0] ^ g.weights[i].data[g.weights[i].bytes - 1];
    for (size_t i = 0; rc == 0 && i < g.n_keys; i++)
        touched ^= (uint8_t)gguf_element_i64(&g.keys[i], g.keys[i].count - 1);
    if (rc == 0)
        gguf_free(&g);
    free(copy);
    return rc;
}

static void refuses(struct gguf_file *f, int code, const char *says)
{
    struct buffer file = {0};
    struct err e = {0};
    gguf_file_finish(f, &file);
    int rc = parse_copy(file.data, file.size, &e);
    if (rc != code || !strstr(e.text, says) || !strstr(e.text, "f.gguf"))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", code, says, rc, e.text);
    buffer_free(&file);
}

TEST(header_gives_keys_and_weights)
{
    struct gguf_file f = {0};
    put_key_u32(&f, "a.u32", 7);
    put_key_string(&f, "a.string", "text");
    put_key(&f, "a.array", GGUF_ARRAY);
    put_u32(&f.keys, GGUF_I32);
    put_u64(&f.keys, 2);
    put_u32(&f.keys, 5);
    put_u32(&f.keys, (uint32_t)-6);
    put_tensor(&f, "matrix", 3, 64, DTYPE_Q8_0);
    put_tensor(&f, "vector", 0, 5, DTYPE_F16);
    struct buffer file = {0};
    gguf_file_finish(&f, &file);
    struct gguf g;
    struct err e = {0};
    if (gguf_parse("f.gguf", file.data, file.size, GGUF_WEIGHTS, &g, &e) < 0)
        fail_msg("%s", e.text);
    uint64_t number = 0;
    struct gguf_string text;
    assert_int_equal(gguf_get_u64(&g, "f.gguf", "a.u32", NULL, &number, &e), 0);
    assert_int_equal(number, 7);
    assert_int_equal(gguf_get_string(&g, "f.gguf", "a.string", &text, &e), 0);
    assert_int_equal(text.size, 4);
    assert_int_equal(gguf_element_i64(gguf_find(&g, "a.array"), 1), -6);
    assert_int_equal(gguf_get_u64(&g, "f.gguf", "a.string", NULL, &number, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "a.string"));
    assert_int_equal(g.n_weights, 2);
    const struct weight *m = &g.weights[0];
    assert_string_equal(m->name, "matrix");
    assert_int_equal(m->shape[0], 3);
    assert_int_equal(m->shape[1], 64);
    assert_int_equal(m->bytes, 3 * 2 * 34);
    assert_ptr_equal(m->data, file.data + m->offset);
    assert_int_equal(g.weights[1].bytes, 10);
    gguf_free(&g);
    buffer_free(&file);
}

TEST(lying_tensors_are_refused_by_name)
{
    static const struct {
        const char *says;
        uint64_t dims[5], offset;
        uint32_t n_dims, type;
        int code;
    } cases[] = {
        {"tensor t: 400 bytes at offset 0 reach beyond", {100}, 0, 1, 0, HP_EPARSE},
        {"tensor t: 4 bytes at offset 18446744073709551584 reach beyond",
         {1},
         (uint64_t)-32,
         1,
         0,
         HP_EPARSE},
        {"tensor t: 128 bytes at offset 64 reach beyond", {32}, 64, 1, 0, HP_EPARSE},
        {"tensor t: offset 4 is not a multiple of 32", {1}, 4, 1, 0, HP_EPARSE},
        {"tensor t: dimension 0 is 0", {0}, 0, 1, 0, HP_EPARSE},
        {"tensor t: dimension 1 is 18446744073709551615", {2, (uint64_t)-1}, 0, 2, 0, HP_EPARSE},
        {"tensor t: dimension 1 is 4294967296",
         {(uint64_t)1 << 32, (uint64_t)1 << 32},
         0,
         2,
         0,
         HP_EPARSE},
        {"tensor t is too large", {(uint64_t)1 << 62}, 0, 1, 0, HP_EPARSE},
        {"tensor t has 0 dimensions", {0}, 0, 0, 0, HP_EPARSE},
        {"tensor t has 5 dimensions", {1, 1, 1, 1, 1}, 0, 5, 0, HP_EPARSE},
        {"tensor t has rows of 33 elements, not whole blocks of Q8_0", {33}, 0, 1, 8, HP_EPARSE},
        {"tensor t has rows of 100 elements, not whole blocks of Q5_K", {100}, 0, 1, 13, HP_EPARSE},
        {"tensor t has number format IQ2_S (GGUF type 22); known are F32, F16, BF16, Q8_0, Q4_0, "
         "Q6_K, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, IQ4_NL, IQ4_XS, MXFP4",
         {1},
         0,
         1,
         22,
         HP_EUNSUPPORTED},
        {"tensor t has number format unknown (GGUF type 4294967295)",
         {1},
         0,
         1,
         (uint32_t)-1,
         HP_EUNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_file f = {0};
        put_tensor_entry(&f, "t", cases[i].n_dims, cases[i].dims, cases[i].type, cases[i].offset);
        memset(buffer_extend(&f.data, 96), 0, 96);
        refuses(&f, cases[i].code, cases[i].says);
    }
}

static int parse_for(struct gguf_file *f, enum gguf_need need, struct buffer *file,
                     struct gguf *out, struct err *e)
{
    gguf_file_finish(f, file);
    return gguf_parse("f.gguf", file->data, file->size, need, out, e);
}

TEST(sizes_of_formats_that_are_not_computed_are_known)
{
    struct gguf_file f = {0};
    struct gguf g;
    struct err e = {0};
    struct buffer file = {0};
    put_tensor_entry(&f, "k", 2, (const uint64_t[]){512, 2}, 15,
                     0); /* Q8_K: 4 blocks of 292 bytes */
    put_tensor_entry(&f, "new", 1, (const uint64_t[]){7}, 4000, 1184); /* reaches to the next */
    put_tensor_entry(&f, "odd", 1, (const uint64_t[]){100}, 15,
                     1248); /* no whole block: to the next */
    put_tensor_entry(&f, "plain", 1, (const uint64_t[]){8}, 0, 1280);
    put_tensor_entry(&f, "last", 1, (const uint64_t[]){8}, 4001, 1312); /* to the end */
    memset(buffer_extend(&f.data, 1328), 0, 1328);
    if (parse_for(&f, GGUF_SIZES, &file, &g, &e) < 0)
        fail_msg("%s", e.text);
    static const struct {
        const char *name, *format;
        uint64_t bytes;
        bool computed;
    } expected[] = {{"k", "Q8_K", 1168, false},
                    {"new", "unknown", 64, false},
                    {"odd", "Q8_K", 32, false},
                    {"plain", "F32", 32, true},
                    {"last", "unknown", 16, false}};
    assert_int_equal(g.n_weights, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(g.weights[i].name, expected[i].name);
        assert_string_equal(g.weights[i].format, expected[i].format);
        assert_int_equal(g.weights[i].bytes, expected[i].bytes);
        assert_int_equal(g.weights[i].dtype != DTYPE_COUNT, expected[i].computed);
    }
    gguf_free(&g);
    assert_int_equal(gguf_parse("f.gguf", file.data, file.size, GGUF_WEIGHTS, &g, &e),
                     HP_EUNSUPPORTED);
    assert_int_equal(gguf_parse("f.gguf", file.data, file.size - 200, GGUF_SIZES, &g, &e),
                     HP_EPARSE);
    /* Keys alone need no tensor at all. */
    assert_int_equal(gguf_parse("f.gguf", file.data, 30, GGUF_KEYS, &g, &e), 0);
    assert_int_equal(g.n_weights, 0);
    gguf_free(&g);
    buffer_free(&file);
}

TEST(keys_of_any_length_and_lists_of_equal_values_are_read)
{
    struct gguf_file f = {0};
    struct gguf g;
    struct err e = {0};
    struct buffer file = {0};
    char name[3001];
    uint64_t v = 0;
    memset(name, 'k', 3000);
    name[3000] = 0;
    put_key_u32(&f, name, 7);
    for (uint32_t differs = 0; differs < 2; differs++) {
        put_key(&f, differs ? "heads2" : "heads", GGUF_ARRAY);
        put_u32(&f.keys, GGUF_U32);
        put_u64(&f.keys, 3);
        for (uint32_t i = 0; i < 3; i++)
            put_u32(&f.keys, 8 + i * differs);
    }
    assert_int_equal(parse_for(&f, GGUF_WEIGHTS, &file, &g, &e), 0);
    assert_int_equal(gguf_get_u64(&g, "f", name, NULL, &v, &e), 0);
    assert_int_equal(v, 7);
    assert_int_equal(gguf_get_same_u64(&g, "f", "heads", NULL, &v, &e), 0);
    assert_int_equal(v, 8);
    assert_int_equal(gguf_get_same_u64(&g, "f", "heads2", NULL, &v, &e), HP_EUNSUPPORTED);
    assert_non_null(
        strstr(e.text, "key heads2 differs from block to block (8, then 9 in block 1)"));
    gguf_free(&g);
    buffer_free(&file);
}

TEST(tensors_that_share_bytes_are_refused)
{
    struct gguf_file f = {0};
    put_tensor_entry(&f, "first", 1, (const uint64_t[]){16}, 0, 0);
    put_tensor_entry(&f, "second", 1, (const uint64_t[]){8}, 0, 32);
    memset(buffer_extend(&f.data, 64), 0, 64);
    refuses(&f, HP_EPARSE, "tensor second overlaps tensor first");
}

TEST(lying_counts_are_refused_before_memory_is_taken)
{
    struct gguf_file many_keys = {.n_keys = (uint64_t)1 << 60},
                     many_tensors = {.n_tensors = (uint64_t)-1};
    refuses(&many_keys, HP_EPARSE, "header says 1152921504606846976 keys");
    refuses(&many_tensors, HP_EPARSE, "header says 18446744073709551615 tensors");
    struct gguf_file strings = {0}, numbers = {0}, text = {0};
    put_key(&strings, "k", GGUF_ARRAY);
    put_u32(&strings.keys, GGUF_STRING);
    put_u64(&strings.keys, (uint64_t)1 << 61);
    refuses(&strings, HP_EPARSE,
            "key k: an array of 2305843009213693952 strings is longer than the file");
    put_key(&numbers, "k", GGUF_ARRAY);
    put_u32(&numbers.keys, GGUF_F64);
    put_u64(&numbers.keys, (uint64_t)1 << 61);
    refuses(&numbers, HP_EPARSE, "key k: a value of 2305843009213693952 elements");
    put_key(&text, "k", GGUF_STRING);
    put_u64(&text.keys, (uint64_t)-1);
    refuses(&text, HP_EPARSE, "key k: a string of 18446744073709551615 bytes");
}

TEST(malformed_headers_are_refused)
{
    struct gguf_file old = {.version = 1}, big = {.version = 0x03000000}, type = {0}, nested = {0},
                     twice = {0}, nameless = {0}, control = {0}, alignment = {0};
    refuses(&old, HP_EUNSUPPORTED, "GGUF version 1; known are 2 and 3");
    refuses(&big, HP_EUNSUPPORTED, "big-endian");
    put_key(&type, "k", 13);
    refuses(&type, HP_EPARSE, "key k: type 13");
    put_key(&nested, "k", GGUF_ARRAY);
    put_u32(&nested.keys, GGUF_ARRAY);
    put_u64(&nested.keys, 1);
    refuses(&nested, HP_EPARSE, "key k: an array of type 9");
    put_key_u32(&twice, "k", 1);
    put_key_u32(&twice, "k", 2);
    refuses(&twice, HP_EPARSE, "key k is there twice");
    put_key_u32(&nameless, "", 1);
    refuses(&nameless, HP_EPARSE, "key 0 has a name of 0 bytes");
    put_key_u32(&control, "a\nb", 1);
    refuses(&control, HP_EPARSE, "key 0 has a control character");
    put_key_u32(&alignment, "general.alignment", 24);
    refuses(&alignment, HP_EPARSE, "key general.alignment is 24");
}

TEST(every_truncation_is_refused)
{
    struct buffer file = {0};
    tiny_llama_make(&(struct tiny_llama){.dtype = DTYPE_BF16}, &file);
    struct err e = {0};
    assert_int_equal(parse_copy(file.data, file.size, &e), 0);
    for (size_t size = 0; size < file.size; size++) {
        e = (struct err){0};
        int rc = parse_copy(file.data, size, &e);
        if (rc != HP_EPARSE || !strstr(e.text, "f.gguf"))
            fail_msg("%zu of %zu bytes: %d \"%s\"", size, file.size, rc, e.text);
    }
    buffer_free(&file);
}

TEST(flipped_bits_never_reach_beyond_the_file)
{
    struct buffer file = {0};
    tiny_llama_make(&(struct tiny_llama){.dtype = DTYPE_Q8_0}, &file);
    struct gguf g;
    struct err e = {0};
    assert_int_equal(gguf_parse("f.gguf", file.data, file.size, GGUF_WEIGHTS, &g, &e), 0);
    uint64_t seed = 20260101, header = g.data_offset;
    gguf_free(&g);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 4000; round++) {
        uint8_t *copy = malloc(file.size);
        assert_non_null(copy);
        memcpy(copy, file.data, file.size);
        for (uint64_t flips = 1 + random_next(&seed) % 3; flips; flips--)
            copy[random_next(&seed) % header] ^= (uint8_t)(1u << random_next(&seed) % 8);
        e = (struct err){0};
        int rc = parse_copy(copy, file.size, &e);
        assert_true(rc == 0 ||
                    ((rc == HP_EPARSE || rc == HP_EUNSUPPORTED) && strstr(e.text, "f.gguf")));
        free(copy);
    }
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_gives_keys_and_weights),
        cmocka_unit_test(lying_tensors_are_refused_by_name),
        cmocka_unit_test(sizes_of_formats_that_are_not_computed_are_known),
        cmocka_unit_test(keys_of_any_length_and_lists_of_equal_values_are_read),
        cmocka_unit_test(tensors_that_share_bytes_are_refused),
        cmocka_unit_test(lying_counts_are_refused_before_memory_is_taken),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(flipped_bits_never_reach_beyond_the_file),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
