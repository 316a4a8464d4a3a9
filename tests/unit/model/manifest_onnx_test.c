/* The manifest of an ONNX model has all bytes of all of its files. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fs.h"
#include "model/manifest_onnx.h"
#include "tests/unit/folder.h"
#include "tests/unit/onnx_writer.h"

enum { WEIGHTS = (5 << 20) + 4 }; /* more than a chunk */

static void bytes_pattern(uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(i * 31 + i / 4096);
}

/* A model whose one large weight lies in weights.bin beside it, 4 bytes from its begin. */
static struct buffer external_file(void)
{
    struct onnx_writer w = {.random = 1};
    int64_t n = (WEIGHTS - 4) / 4;
    ow_end(&w, 11, "x", 1, &n);
    ow_external(&w, "w", 1, 1, &n, "weights.bin", 4);
    ow_node(&w, "Add", "x w", "y");
    ow_end(&w, 12, "y", 1, &n);
    return ow_finish(&w, 17);
}

static void file_write(const char *folder, const char *name, const void *data, size_t size)
{
    char path[512];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (fs_file_write(path, data, size, 0644, &e) < 0)
        fail_msg("%s", e.text);
}

static int stop_at_once(void *ctx, uint64_t done, uint64_t total)
{
    *(uint64_t *)ctx = total;
    return done > 0;
}

TEST(a_manifest_has_every_byte_of_the_model_and_its_external_data)
{
    struct buffer file = external_file(), out = {0};
    char folder[256], path[300];
    uint8_t *weights = malloc(WEIGHTS);
    struct arena arena = {0};
    struct manifest m;
    struct err e = {0};
    uint64_t total = 0;
    test_folder_make(folder);
    bytes_pattern(weights, WEIGHTS);
    file_write(folder, "net.onnx", file.data, file.size);
    file_write(folder, "weights.bin", weights, WEIGHTS);
    snprintf(path, sizeof path, "%s/net.onnx", folder);
    assert_int_equal(manifest_onnx_build(path, stop_at_once, &total, &out, &e), HP_ECANCELED);
    assert_int_equal(total, file.size + WEIGHTS);
    assert_int_equal(out.size, 0);
    if (manifest_onnx_build(path, NULL, NULL, &out, &e) < 0 ||
        manifest_decode(out.data, out.size, &arena, &m, &e) < 0)
        fail_msg("%s", e.text);
    const struct manifest_file *files = m.files.items;
    const struct manifest_chunk *chunks = m.chunks.items;
    assert_string_equal(m.name, "net.onnx");
    assert_false(m.folder);
    assert_int_equal(m.heads.count, 0);
    assert_int_equal(m.files.count, 2);
    assert_string_equal(files[0].name, "net.onnx");
    assert_int_equal(files[0].bytes, file.size);
    assert_string_equal(files[1].name, "weights.bin");
    assert_int_equal(files[1].bytes, WEIGHTS);
    assert_int_equal(m.chunks.count, 3);
    const uint8_t *const of[] = {file.data, weights, weights};
    for (size_t i = 0; i < m.chunks.count; i++) {
        struct digest d = digest_of(of[i] + chunks[i].offset, chunks[i].bytes);
        assert_memory_equal(d.bytes, chunks[i].digest.data, DIGEST_BYTES);
    }
    assert_int_equal(chunks[0].bytes + chunks[1].bytes + chunks[2].bytes, total);
    arena_free(&arena);
    buffer_free(&out);
    buffer_free(&file);
    free(weights);
    test_folder_remove(folder);
}

TEST(what_is_no_model_has_no_manifest)
{
    struct buffer out = {0};
    char folder[256], path[300];
    struct err e = {0};
    test_folder_make(folder);
    file_write(folder, "net.onnx", "nothing", 7);
    snprintf(path, sizeof path, "%s/net.onnx", folder);
    assert_int_equal(manifest_onnx_build(path, NULL, NULL, &out, &e), HP_EPARSE);
    assert_int_equal(out.size, 0);
    test_folder_remove(folder);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_has_every_byte_of_the_model_and_its_external_data),
        cmocka_unit_test(what_is_no_model_has_no_manifest),
    };
    return cmocka_run_group_tests_name("manifest_onnx", tests, NULL, NULL);
}
