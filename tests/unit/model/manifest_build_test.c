#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/manifest.h"
#include "model/manifest_build.h"
#include "tests/test.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

static struct model *demo_open(void)
{
    struct model *m;
    struct err e = {0};
    if (access(demo_model, R_OK) != 0) {
        print_message("%s is not here\n", demo_model);
        skip();
    }
    if (model_open(demo_model, &m, &e) < 0)
        fail_msg("%s", e.text);
    return m;
}

static int count_calls(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    ++*(int *)ctx;
    return 0;
}

static int stop_at_once(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return 1;
}

TEST(heads_and_chunks_are_the_bytes_of_the_file)
{
    struct model *model = demo_open();
    struct buffer out = {0};
    struct arena arena = {0};
    struct manifest m;
    struct err e = {0};
    if (manifest_build(model, NULL, NULL, NULL, &out, &e) < 0 ||
        manifest_decode(out.data, out.size, &arena, &m, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(m.name, "demo-q8_0.gguf");
    assert_false(m.folder);
    FILE *f = fopen(demo_model, "rb");
    uint8_t *bytes = malloc(MANIFEST_CHUNK_BYTES);
    const struct manifest_chunk *chunks = m.chunks.items;
    uint64_t total = 0, weights_total = 0;
    for (size_t i = 0; i < m.chunks.count; i++) {
        fseek(f, (long)chunks[i].offset, SEEK_SET);
        assert_int_equal(fread(bytes, 1, chunks[i].bytes, f), chunks[i].bytes);
        struct digest d = digest_of(bytes, chunks[i].bytes);
        assert_memory_equal(d.bytes, chunks[i].digest.data, DIGEST_BYTES);
        total += chunks[i].bytes;
    }
    int n;
    const struct weight *weights = model_weights(model, &n);
    for (int i = 0; i < n; i++)
        weights_total += weights[i].bytes;
    assert_int_equal(total, weights_total);
    const struct manifest_head *head = m.heads.items;
    fseek(f, (long)head->offset, SEEK_SET);
    assert_int_equal(fread(bytes, 1, 64, f), 64);
    assert_memory_equal(bytes, head->data.data, 64);
    fclose(f);
    free(bytes);
    arena_free(&arena);
    buffer_free(&out);
    model_close(&model);
}

TEST(second_call_reads_nothing_and_gives_the_same)
{
    struct model *model = demo_open();
    struct buffer first = {0}, second = {0};
    struct err e = {0};
    char folder[] = "/tmp/hp-test-XXXXXX", command[64];
    int calls = 0;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(manifest_build(model, folder, count_calls, &calls, &first, &e), 0);
    assert_true(calls > 0);
    calls = 0;
    assert_int_equal(manifest_build(model, folder, count_calls, &calls, &second, &e), 0);
    assert_int_equal(calls, 0);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    buffer_free(&first);
    buffer_free(&second);
    model_close(&model);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

TEST(file_that_ends_too_early_is_said_by_name_and_place)
{
    char file[] = "/tmp/hp-test-XXXXXX", command[128];
    struct model *model;
    struct buffer out = {0};
    struct err e = {0};
    model_close(&(struct model *){demo_open()});
    close(mkstemp(file));
    snprintf(command, sizeof command, "cp %s %s", demo_model, file);
    assert_int_equal(system(command), 0);
    assert_int_equal(model_open(file, &model, &e), 0);
    assert_int_equal(truncate(file, 1 << 20), 0);
    assert_int_equal(manifest_build(model, NULL, NULL, NULL, &out, &e), HP_EIO);
    assert_non_null(strstr(e.text, file));
    assert_non_null(strstr(e.text, "the file ends before"));
    buffer_free(&out);
    model_close(&model);
    unlink(file);
}

TEST(whoever_watches_can_stop_it)
{
    struct model *model = demo_open();
    struct buffer out = {0};
    assert_int_equal(manifest_build(model, NULL, stop_at_once, NULL, &out, NULL), HP_ECANCELED);
    buffer_free(&out);
    model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_and_chunks_are_the_bytes_of_the_file),
        cmocka_unit_test(second_call_reads_nothing_and_gives_the_same),
        cmocka_unit_test(file_that_ends_too_early_is_said_by_name_and_place),
        cmocka_unit_test(whoever_watches_can_stop_it),
    };
    return cmocka_run_group_tests_name("manifest_build", tests, NULL, NULL);
}
