/* A stage whose weights' file goes bad while it is in use. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/backend/backend.h"
#include "agent/engine/stage.h"
#include "tests/test.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

static void file_copy(const char *from, const char *to)
{
    char bytes[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

TEST(result_of_weights_that_could_not_be_read_is_never_given)
{
    char folder[] = "/tmp/hp-stage-file-XXXXXX", path[64];
    struct device_config dc = {.backend = "cpu", .n_threads = 2};
    struct device *device = NULL;
    struct model *model = NULL;
    struct stage *stage = NULL;
    struct err e = {0};
    if (access(demo_model, R_OK) != 0)
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    file_copy(demo_model, path);
    if (device_open(&dc, &device, &e) < 0 || model_open(path, &model, &e) < 0)
        fail_msg("%s", e.text);
    /* Layer 0 is the table of embeddings, which is read where it lies. */
    struct stage_config c = {.model = model,
                             .first_layer = 0,
                             .end_layer = 1,
                             .device = device,
                             .kv_tokens = 64,
                             .max_sequences = 1,
                             .max_batch_tokens = 8};
    if (stage_load(&c, &stage, &e) < 0 || stage_sequence_open(stage, 1, 32, &e) < 0)
        fail_msg("%s", e.text);
    const uint32_t ids[] = {1, 2, 3};
    float *out = calloc(8 * (size_t)model_config(model)->width, sizeof *out);
    struct batch_run run = {1, 0, 3, 0, 0, false, 0, 0, 0, 0};
    assert_int_equal(stage_run(stage, &run, 1, ids, out, &e), 0);
    assert_int_equal(truncate(path, 4096), 0);
    run.first_position = 3;
    assert_int_equal(stage_run(stage, &run, 1, ids, out, &e), HP_EIO);
    assert_non_null(strstr(e.text, "m.gguf"));
    assert_int_equal(stage_sequence_length(stage, 1), 3);
    stage_unload(&stage);
    assert_int_equal(stage_load(&c, &stage, &e), HP_EIO); /* nor is it loaded again from that */
    model_close(&model);
    device_close(&device);
    free(out);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_of_weights_that_could_not_be_read_is_never_given)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
