/* Models written as GGUF files: tests/golden/convert_test.py looks at what they compute. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/convert/convert.h"
#include "tests/unit/model/model_fixture.h"
#include "tests/unit/model/tiny_gguf.h"

static char source[192], made[192];

static void source_write(const struct tiny_llama *how)
{
    struct buffer b = {0};
    tiny_llama_make(how, &b);
    snprintf(source, sizeof source, "%s", write_bytes("tiny.gguf", b.data, b.size));
    snprintf(made, sizeof made, "%s/made.gguf", folder);
    buffer_free(&b);
}

static int convert_with(const struct convert_options *o, const char *out,
                        struct convert_result *result, struct err *e)
{
    struct model *m = open_or_fail(source);
    int rc = model_convert(m, out, o, result, e);
    model_close(&m);
    return rc;
}

static int convert_as(const char *type, struct err *e)
{
    struct convert_result r;
    int rc = convert_with(&(struct convert_options){.type = type, .threads = 2, .overwrite = true},
                          made, &r, e);
    if (rc == 0)
        convert_result_free(&r);
    return rc;
}

/* Files in the folder beside the source. */
static int files_beside(void)
{
    char command[160];
    snprintf(command, sizeof command, "exit $(ls -A %s | grep -vc '^tiny.gguf$')", folder);
    return WEXITSTATUS(system(command));
}

static void refuses_to_convert(const char *type, const char *out, int code, const char *says)
{
    struct convert_result r;
    struct err e = {0};
    int before = files_beside(),
        rc = convert_with(&(struct convert_options){.type = type, .threads = 2}, out, &r, &e);
    if (rc != code || !strstr(e.text, says))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", code, says, rc, e.text);
    assert_int_equal(files_beside(), before);
}

TEST(keys_and_tensors_survive)
{
    struct convert_result r;
    struct err e = {0};
    source_write(&(struct tiny_llama){
        .rope_factors = 1, .extra_key = "general.author", .extra_text = "somebody"});
    assert_int_equal(
        convert_with(&(struct convert_options){.type = "f32", .threads = 3}, made, &r, &e), 0);
    struct model *a = open_or_fail(source), *b = open_or_fail(made);
    int n, n_made;
    const struct weight *w = model_weights(a, &n), *v = model_weights(b, &n_made);
    assert_int_equal(n, n_made);
    assert_int_equal(r.count[DTYPE_F32], n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(w[i].name, v[i].name);
        assert_int_equal(w[i].bytes, v[i].bytes);
        assert_memory_equal(w[i].data, v[i].data, w[i].bytes);
    }
    int n_files;
    assert_int_equal(model_files(b, &n_files)->bytes, r.bytes);
    char command[256];
    snprintf(command, sizeof command, "grep -q somebody %s", made);
    assert_int_equal(system(command), 0);
    convert_result_free(&r);
    model_close(&a);
    model_close(&b);
}

TEST(every_type_opens_and_rows_that_are_no_whole_blocks_fall_back)
{
    char types[256], *rest = types;
    source_write(&(struct tiny_llama){0});
    convert_types(types, sizeof types);
    int n = 0;
    for (char *type; (type = strtok_r(rest, ", ", &rest)); n++) {
        struct convert_result r;
        struct err e = {0};
        if (convert_with(&(struct convert_options){.type = type, .threads = 2, .overwrite = true},
                         made, &r, &e) < 0)
            fail_msg("%s: %s", type, e.text);
        /* The head becomes Q6_K where most matrices are quantised to less than eight bits. */
        bool whole = *type == 'f' || *type == 'b' || *type == 'm' || strcmp(type, "q8_0") == 0;
        assert_true(whole ? r.n_exceptions == 0 : r.n_exceptions > 0);
        for (int i = 0; i < r.n_exceptions; i++)
            assert_true(dtype_info(r.exceptions[i].wanted)->block_elements == 256 &&
                        dtype_info(r.exceptions[i].written)->block_elements == 32);
        convert_result_free(&r);
        struct model *m = open_or_fail(made);
        model_close(&m);
    }
    assert_int_equal(n, 20);
}

TEST(a_place_that_is_taken_is_left_as_it_is)
{
    struct err e = {0};
    source_write(&(struct tiny_llama){0});
    refuses_to_convert("f16", source, HP_EINVAL, "is a file of the model that is read");
    refuses_to_convert("f16", folder, HP_EINVAL, "is a folder");
    refuses_to_convert("q9_z", made, HP_EINVAL, "there is no type \"q9_z\"; known are f32, f16");
    refuses_to_convert("f16", "/nowhere/at/all.gguf", HP_ENOENT, "/nowhere/at/all.gguf");
    const char *other = write_text("made.gguf", "something else");
    refuses_to_convert("f16", other, HP_EEXIST, "is there already");
    struct stat s;
    assert_true(stat(made, &s) == 0 && s.st_size == 14);
    assert_int_equal(convert_as("f16", &e), 0);
    assert_true(stat(made, &s) == 0 && s.st_size > 14);
    assert_int_equal(files_beside(), 1);
}

static int stop_at_once(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    assert_true(done_bytes <= total_bytes);
    ++*(int *)ctx;
    return 1;
}

TEST(a_conversion_that_is_stopped_leaves_nothing)
{
    struct convert_result r;
    struct err e = {0};
    int asked = 0;
    source_write(&(struct tiny_llama){0});
    assert_int_equal(convert_with(&(struct convert_options){.type = "q4_0",
                                                            .threads = 1,
                                                            .progress = stop_at_once,
                                                            .progress_ctx = &asked},
                                  made, &r, &e),
                     HP_ECANCELED);
    assert_true(asked > 0);
    assert_int_equal(files_beside(), 0);
}

TEST(a_file_that_may_not_grow_is_told_and_removed)
{
    struct rlimit before, small = {4096, RLIM_INFINITY};
    struct err e = {0};
    source_write(&(struct tiny_llama){0});
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = convert_as("f32", &e);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(rc, HP_ENOSPACE);
    assert_non_null(strstr(e.text, "made.gguf: the file takes "));
    assert_int_equal(files_beside(), 0);
}

/* A value of token_embd.weight, row 2, column 3. */
static void value_spoil(float v)
{
    struct model *m = open_or_fail(source);
    int n;
    const struct weight *w = model_weights(m, &n);
    while (strcmp(w->name, "token_embd.weight") != 0)
        w++;
    off_t at = (off_t)(w->offset + (2 * TINY_WIDTH + 3) * sizeof v);
    model_close(&m);
    int fd = open(source, O_WRONLY);
    assert_int_equal(pwrite(fd, &v, sizeof v, at), sizeof v);
    close(fd);
}

TEST(values_that_are_no_numbers_or_do_not_fit_are_named)
{
    struct err e = {0};
    source_write(&(struct tiny_llama){0});
    value_spoil(NAN);
    refuses_to_convert("q8_0", made, HP_EPARSE, "token_embd.weight): row 2, column 3 is nan");
    value_spoil(-1e6f);
    refuses_to_convert("f16", made, HP_EPARSE, "beyond what F16 can hold");
    assert_int_equal(convert_as("bf16", &e), 0);
}

TEST(what_is_quantised_stays_as_it_is_in_its_own_format)
{
    struct convert_result r;
    struct err e = {0};
    source_write(&(struct tiny_llama){.dtype = DTYPE_Q8_0});
    assert_int_equal(
        convert_with(&(struct convert_options){.type = "q8_0", .threads = 1}, made, &r, &e), 0);
    assert_int_equal(r.n_requantised, 0);
    convert_result_free(&r);
    assert_int_equal(
        convert_with(&(struct convert_options){.type = "q4_0", .threads = 1, .overwrite = true},
                     made, &r, &e),
        0);
    assert_int_equal(r.n_requantised, r.count[DTYPE_Q4_0] + r.count[DTYPE_Q6_K]);
    convert_result_free(&r);
}

TEST(what_a_killed_conversion_left_goes_and_what_somebody_holds_stays)
{
    char left[256], held[256], other[256];
    struct err e = {0};
    source_write(&(struct tiny_llama){0});
    snprintf(left, sizeof left, "%s", write_text("made.gguf.999999.tmp", "x"));
    snprintf(held, sizeof held, "%s", write_text("made.gguf.999998.tmp", "x"));
    snprintf(other, sizeof other, "%s", write_text("made.gguf.x1.tmp", "x"));
    int fd = open(held, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    if (convert_as("f32", &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(held, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(access(made, F_OK), 0);
    close(fd);
    unlink(held);
    unlink(other);
    unlink(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_killed_conversion_left_goes_and_what_somebody_holds_stays),
        cmocka_unit_test_setup_teardown(keys_and_tensors_survive, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(
            every_type_opens_and_rows_that_are_no_whole_blocks_fall_back, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(a_place_that_is_taken_is_left_as_it_is, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_conversion_that_is_stopped_leaves_nothing, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_may_not_grow_is_told_and_removed, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(values_that_are_no_numbers_or_do_not_fit_are_named,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_quantised_stays_as_it_is_in_its_own_format,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
