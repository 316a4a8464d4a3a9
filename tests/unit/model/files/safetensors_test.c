#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/env.h"
#include "model/files/safetensors.h"
#include "tests/test.h"

static void make_file(struct buffer *out, const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    buffer_append(out, &length, sizeof length);
    buffer_append(out, header, length);
    if (data_bytes)
        memset(buffer_extend(out, data_bytes), 1, data_bytes);
}

static volatile uint8_t touched;

/* Parses a copy of exactly that size, so that sanitizers see every byte beyond it; touches what was
 * accepted. */
static int parse_copy(const uint8_t *data, size_t size, struct err *e)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    if (size)
        memcpy(copy, data, size);
    struct arena arena = {0};
    struct safetensors s;
    int rc = safetensors_parse("f.safetensors", 0, copy, size, &arena, &s, e);
    for (size_t i = 0; rc == 0 && i < s.n_weights; i++)
        touched ^= s.weights[i].data[0] ^ s.weights[i].data[s.weights[i].bytes - 1];
    arena_free(&arena);
    free(copy);
    return rc;
}

static const char valid[] =
    "{\"__metadata__\": {\"format\": \"pt\"}, \"b\": {\"dtype\": \"BF16\", \"shape\": [2, 3], "
    "\"data_offsets\": [4, 16]},"
    " \"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}";

TEST(header_gives_weights_in_the_order_of_their_bytes)
{
    struct buffer file = {0};
    struct arena arena = {0};
    struct safetensors s;
    struct err e = {0};
    make_file(&file, valid, 16);
    if (safetensors_parse("f.safetensors", 5, file.data, file.size, &arena, &s, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(s.n_weights, 2);
    assert_int_equal(s.header_bytes, 8 + sizeof valid - 1);
    const struct weight *b = &s.weights[1];
    assert_string_equal(s.weights[0].name, "a");
    assert_string_equal(b->name, "b");
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(b->file, 5);
    assert_int_equal(b->offset, s.header_bytes + 4);
    assert_ptr_equal(b->data, file.data + b->offset);
    arena_free(&arena);
    buffer_free(&file);
}

TEST(lying_headers_are_refused_by_name)
{
    static const struct {
        const char *header, *says;
        int code;
    } cases[] = {
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [8, 24]}}",
         "tensor t: bytes 8 to 24 do not lie in the file's 16 bytes", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [12, 4]}}",
         "tensor t: bytes 12 to 4", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [-8, 0]}}",
         "$.t.data_offsets[0]: -8 is negative", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}",
         "tensor t: 4 bytes where shape and number format need 8", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0]}}",
         "tensor t: 1 offsets", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [-2], \"data_offsets\": [0, 8]}}",
         "$.t.shape[0]: -2 is negative", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}}",
         "tensor t: a dimension of 0", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [1, 1, 1, 1, 1], \"data_offsets\": [0, 4]}}",
         "tensor t has 5 dimensions", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296], \"data_offsets\": [0, "
         "0]}}",
         "tensor t: a dimension of 4294967296", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904], \"data_offsets\": [0, "
         "0]}}",
         "tensor t is too large", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [1e30], \"data_offsets\": [0, 8]}}",
         "$.t.shape[0]", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": 4, \"data_offsets\": [0, 16]}}",
         "$.t.shape: is a number, not an array", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"data_offsets\": [0, 16]}}", "$.t: has no \"shape\"",
         HP_EPARSE},
        {"{\"t\": 1}", "$.t: is a number, not an object", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"I64\", \"shape\": [2], \"data_offsets\": [0, 16]}}",
         "tensor t has number format I64; known are F32", HP_EUNSUPPORTED},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, \"u\": "
         "{\"dtype\": \"F32\", \"shape\": [2], "
         "\"data_offsets\": [4, 12]}}",
         "tensor u overlaps tensor t", HP_EPARSE},
        {"{\"t\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, \"t\": 1}",
         "not valid JSON: duplicate object key", HP_EPARSE},
        {"{\"a\\nb\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", "name",
         HP_EPARSE},
        {"[]", "$: is an array, not an object", HP_EPARSE},
        {"{\"t\": ", "not valid JSON", HP_EPARSE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer file = {0};
        struct err e = {0};
        make_file(&file, cases[i].header, 16);
        int rc = parse_copy(file.data, file.size, &e);
        if (rc != cases[i].code || !strstr(e.text, cases[i].says) ||
            !strstr(e.text, "f.safetensors"))
            fail_msg("%s\nexpected %d and \"%s\", got %d and \"%s\"", cases[i].header,
                     cases[i].code, cases[i].says, rc, e.text);
        buffer_free(&file);
    }
}

TEST(header_longer_than_the_file_is_refused)
{
    static const uint64_t lengths[] = {17, (uint64_t)1 << 40, (uint64_t)-1, (uint64_t)-8};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[24] = {0};
        struct err e = {0};
        memcpy(bytes, &lengths[i], sizeof lengths[i]);
        assert_int_equal(parse_copy(bytes, sizeof bytes, &e), HP_EPARSE);
        assert_non_null(strstr(e.text, "header says"));
    }
}

TEST(every_truncation_is_refused)
{
    struct buffer file = {0};
    struct err e = {0};
    make_file(&file, valid, 16);
    assert_int_equal(parse_copy(file.data, file.size, &e), 0);
    for (size_t size = 0; size < file.size; size++)
        assert_int_equal(parse_copy(file.data, size, &e), HP_EPARSE);
    buffer_free(&file);
}

TEST(flipped_bits_never_reach_beyond_the_file)
{
    struct buffer file = {0};
    make_file(&file, valid, 16);
    uint64_t seed = 20260102, header = file.size - 16;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 4000; round++) {
        uint8_t *copy = malloc(file.size);
        assert_non_null(copy);
        memcpy(copy, file.data, file.size);
        for (uint64_t flips = 1 + random_next(&seed) % 3; flips; flips--)
            copy[random_next(&seed) % header] ^= (uint8_t)(1u << random_next(&seed) % 8);
        struct err e = {0};
        int rc = parse_copy(copy, file.size, &e);
        assert_true(rc == 0 || ((rc == HP_EPARSE || rc == HP_EUNSUPPORTED) &&
                                strstr(e.text, "f.safetensors")));
        free(copy);
    }
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_gives_weights_in_the_order_of_their_bytes),
        cmocka_unit_test(lying_headers_are_refused_by_name),
        cmocka_unit_test(header_longer_than_the_file_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(flipped_bits_never_reach_beyond_the_file),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
