#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "agent/weight_store.h"
#include "model/files/mapped_file.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"

/* A disk that fails: what is asked of it while `sync_fails` is lost, and only the first asker is
 * told. */
static int sync_fails;

int fdatasync(int fd)
{
    if (sync_fails && --sync_fails == 0) {
        errno = EIO;
        return -1;
    }
    return fsync(fd);
}

static bool reads_fail;

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    if (reads_fail) {
        errno = EIO;
        return -1;
    }
    return preadv(fd, &(struct iovec){out, n}, 1, at);
}

struct weights_fixture {
    char folder[256], source[300];
    struct weight_store *store;
};

static int setup(void **state)
{
    struct weights_fixture *f = calloc(1, sizeof *f);
    test_folder_make(f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct weights_fixture *f = *state;
    weight_store_close(&f->store);
    test_folder_remove(f->folder);
    free(f);
    return 0;
}

static void store_open(struct weights_fixture *f, uint64_t limit)
{
    struct err e = {0};
    if (weight_store_open(f->folder, limit, &f->store, &e) < 0)
        fail_msg("%s", e.text);
}

static struct store_model *hold(struct weights_fixture *f, const char *name, const uint32_t *seeds,
                                uint32_t n)
{
    struct buffer m = test_manifest(name, seeds, n);
    struct store_model *model;
    struct err e = {0};
    if (weight_store_hold(f->store, m.data, m.size, &model, &e) < 0)
        fail_msg("%s", e.text);
    buffer_free(&m);
    return model;
}

static int put(struct weights_fixture *f, struct store_model *m, uint32_t chunk, uint32_t seed,
               struct err *e)
{
    uint8_t bytes[TEST_CHUNK];
    test_chunk_bytes(seed, bytes);
    return weight_store_put(f->store, m, chunk, bytes, sizeof bytes, e);
}

static const uint32_t seeds[] = {11, 12, 13, 14};

static void model_is_a_sparse_copy_that_fills_as_chunks_arrive(void **state)
{
    struct weights_fixture *f = *state;
    uint8_t bytes[100 + 4 * TEST_CHUNK], chunk[TEST_CHUNK];
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    assert_int_equal(put(f, m, 2, 13, NULL), 0);
    FILE *file = fopen(store_model_path(m), "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes + 1, file), sizeof bytes);
    fclose(file);
    test_chunk_bytes(13, chunk);
    assert_int_equal(bytes[99], 11);
    assert_int_equal(bytes[100], 0);
    assert_memory_equal(bytes + 100 + 2 * TEST_CHUNK, chunk, TEST_CHUNK);
    assert_true(store_model_has(m, 2));
    assert_false(store_model_has(m, 1));
    weight_store_release(f->store, m);
}

static void what_was_synced_survives_a_crash_and_a_torn_record_does_not(void **state)
{
    struct weights_fixture *f = *state;
    char have[900];
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    struct digest id = store_model_id(m);
    char hex[DIGEST_HEX];
    digest_hex(&id, hex);
    snprintf(have, sizeof have, "%s/models/%s/have", f->folder, hex);
    put(f, m, 0, 11, NULL);
    put(f, m, 3, 14, NULL);
    assert_int_equal(weight_store_sync(f->store, NULL), 0);
    weight_store_release(f->store, m);
    weight_store_close(&f->store);
    /* Half a record, as a crash leaves it, and one that makes no sense. */
    int fd = open(have, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "\1\0\0\0\7", 5), 5);
    close(fd);
    store_open(f, 0);
    m = hold(f, "m.gguf", seeds, 4);
    assert_true(store_model_has(m, 0));
    assert_false(store_model_has(m, 1));
    assert_true(store_model_has(m, 3));
    put(f, m, 1, 12, NULL); /* records after the cut are found again */
    weight_store_release(f->store, m);
    weight_store_close(&f->store);
    store_open(f, 0);
    m = hold(f, "m.gguf", seeds, 4);
    assert_true(store_model_has(m, 1));
    weight_store_release(f->store, m);
}

static void broken_model_is_removed_when_the_store_opens(void **state)
{
    static const char *const broken[] = {"manifest", "files/m.gguf"};
    for (size_t i = 0; i < 2; i++) {
        struct weights_fixture *f = *state;
        char path[900], hex[DIGEST_HEX];
        store_open(f, 0);
        struct store_model *m = hold(f, "m.gguf", seeds, 4);
        struct digest id = store_model_id(m);
        digest_hex(&id, hex);
        put(f, m, 0, 11, NULL);
        weight_store_release(f->store, m);
        weight_store_close(&f->store);
        snprintf(path, sizeof path, "%s/models/%s/%s", f->folder, hex, broken[i]);
        assert_int_equal(truncate(path, 50), 0);
        store_open(f, 0);
        struct store_entry entry;
        assert_false(weight_store_entry(f->store, 0, &entry));
        m = hold(f, "m.gguf", seeds, 4);
        assert_false(store_model_has(m, 0));
        weight_store_release(f->store, m);
        weight_store_remove(f->store, &id, NULL);
        weight_store_close(&f->store);
    }
}

static void chunk_that_is_not_what_its_digest_says_is_refused(void **state)
{
    struct weights_fixture *f = *state;
    struct err e = {0};
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    assert_int_equal(put(f, m, 2, 12, &e), HP_ECORRUPT);
    assert_false(store_model_has(m, 2));
    assert_int_equal(weight_store_put(f->store, m, 2, (const uint8_t *)"short", 5, &e),
                     HP_ECORRUPT);
    assert_int_equal(put(f, m, 4, 12, &e), HP_EINVAL);
    weight_store_release(f->store, m);
}

static void models_that_share_weights_share_chunks(void **state)
{
    struct weights_fixture *f = *state;
    static const uint32_t other[] = {99, 13, 12};
    uint8_t expected[TEST_CHUNK];
    store_open(f, 0);
    struct store_model *a = hold(f, "a.gguf", seeds, 4), *b = hold(f, "b.gguf", other, 3);
    put(f, a, 2, 13, NULL);
    assert_int_equal(weight_store_copy(f->store, b, 1, NULL), 0);
    assert_int_equal(weight_store_copy(f->store, b, 2, NULL), HP_ENOENT);
    assert_true(store_model_has(b, 1));
    /* The other place serves when the first is gone. */
    struct digest id = store_model_id(a), want;
    weight_store_release(f->store, a);
    assert_int_equal(weight_store_remove(f->store, &id, NULL), 0);
    test_chunk_bytes(13, expected);
    want = digest_of(expected, sizeof expected);
    uint8_t *out = malloc(MANIFEST_CHUNK_BYTES);
    size_t size;
    assert_int_equal(weight_store_read(f->store, &want, out, &size, NULL), 0);
    assert_int_equal(size, TEST_CHUNK);
    assert_memory_equal(out, expected, TEST_CHUNK);
    free(out);
    weight_store_release(f->store, b);
}

static void shared_path_gives_chunks_whose_bytes_agree(void **state)
{
    struct weights_fixture *f = *state;
    uint8_t bytes[TEST_CHUNK];
    snprintf(f->source, sizeof f->source, "%s/source.gguf", f->folder);
    FILE *file = fopen(f->source, "wb");
    memset(bytes, 0, sizeof bytes);
    fwrite(bytes, 1, 100, file);
    for (uint32_t i = 0; i < 3;
         i++) { /* the third chunk has changed since, the fourth is missing */
        test_chunk_bytes(i == 2 ? 5 : seeds[i], bytes);
        fwrite(bytes, 1, sizeof bytes, file);
    }
    fclose(file);
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    assert_int_equal(weight_store_import(f->store, m, 0, f->source, NULL), 0);
    assert_int_equal(weight_store_import(f->store, m, 1, f->source, NULL), 0);
    assert_int_equal(weight_store_import(f->store, m, 2, f->source, NULL), HP_ECORRUPT);
    assert_int_equal(weight_store_import(f->store, m, 3, f->source, NULL), HP_ENOENT);
    assert_int_equal(weight_store_import(f->store, m, 3, "/nowhere", NULL), HP_ENOENT);
    weight_store_release(f->store, m);
}

static void limit_removes_the_model_least_recently_used_and_never_one_in_use(void **state)
{
    struct weights_fixture *f = *state;
    static const uint32_t a_seeds[] = {21, 22, 23}, b_seeds[] = {31, 32, 33},
                          c_seeds[] = {41, 42, 43, 44, 45};
    struct store_entry entry;
    struct err e = {0};
    store_open(f, 7500);
    struct store_model *a = hold(f, "a.gguf", a_seeds, 3), *b = hold(f, "b.gguf", b_seeds, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(put(f, a, i, a_seeds[i], NULL), 0);
        assert_int_equal(put(f, b, i, b_seeds[i], NULL), 0);
    }
    weight_store_release(f->store, b);
    weight_store_release(f->store, a); /* used after b */
    struct store_model *c = hold(f, "c.gguf", c_seeds, 5);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(put(f, c, i, c_seeds[i], NULL), 0);
    int n = 0;
    for (size_t i = 0; weight_store_entry(f->store, i, &entry); i++, n++)
        assert_string_not_equal(entry.name, "b.gguf");
    assert_int_equal(n, 2);
    a = hold(f, "a.gguf", a_seeds, 3);
    assert_int_equal(put(f, c, 3, c_seeds[3], NULL), 0);
    assert_int_equal(put(f, c, 4, c_seeds[4], &e), HP_ENOSPACE); /* both are in use now */
    assert_non_null(strstr(e.text, "7500"));
    assert_non_null(strstr(e.text, "1000 more are needed"));
    struct digest id = store_model_id(a);
    assert_int_equal(weight_store_remove(f->store, &id, &e), HP_EBUSY);
    weight_store_release(f->store, a);
    weight_store_release(f->store, c);
}

static void full_disk_is_a_named_error(void **state)
{
    struct weights_fixture *f = *state;
    struct err e = {0};
    /* /dev/full takes nothing: the file of the model is replaced by it. */
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    unlink(store_model_path(m));
    if (symlink("/dev/full", store_model_path(m)) != 0)
        fail();
    assert_int_equal(put(f, m, 0, 11, &e), HP_ENOSPACE);
    assert_non_null(strstr(e.text, "m.gguf"));
    assert_non_null(strstr(e.hint, "disk space"));
    assert_false(store_model_has(m, 0));
    weight_store_release(f->store, m);
}

/* Closes and opens: a process that starts anew. */
static struct store_model *begin_again(struct weights_fixture *f, struct store_model *m)
{
    weight_store_release(f->store, m);
    weight_store_close(&f->store);
    store_open(f, 0);
    return hold(f, "m.gguf", seeds, 4);
}

static void byte_flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(c ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

static void what_a_failed_sync_promised_is_taken_back(void **state)
{
    static const int failing[] = {1, 2}; /* the model's file; the record of what is there */
    for (size_t i = 0; i < 2; i++) {
        struct weights_fixture *f = *state;
        struct err e = {0};
        store_open(f, 0);
        struct store_model *m = hold(f, "m.gguf", seeds, 4);
        put(f, m, 0, 11, NULL);
        uint64_t before = weight_store_bytes(f->store);
        sync_fails = failing[i];
        assert_int_equal(weight_store_sync(f->store, &e), HP_EIO);
        assert_false(store_model_has(m, 0));
        assert_int_equal(weight_store_bytes(f->store), before - TEST_CHUNK);
        assert_int_equal(weight_store_sync(f->store, NULL), 0); /* the disk says no more of it */
        put(f, m, 1, 12, NULL);
        m = begin_again(f, m);
        assert_false(store_model_has(m, 0));
        assert_true(store_model_has(m, 1));
        struct digest id = store_model_id(m);
        weight_store_release(f->store, m);
        assert_int_equal(weight_store_remove(f->store, &id, NULL), 0);
        weight_store_close(&f->store);
    }
}

static void records_after_a_torn_one_are_found_again(void **state)
{
    struct weights_fixture *f = *state;
    struct rlimit before, small;
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    put(f, m, 0, 11, NULL);
    put(f, m, 1, 12, NULL);
    /* The disk is full after one record and a half. */
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){12, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = weight_store_sync(f->store, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, old);
    assert_true(rc < 0);
    assert_int_equal(put(f, m, 2, 13, NULL), 0);
    assert_int_equal(weight_store_sync(f->store, NULL), 0);
    m = begin_again(f, m);
    assert_true(store_model_has(m, 2));
    assert_false(store_model_has(m, 0));
    weight_store_release(f->store, m);
}

static void chunk_that_rotted_is_found_and_counts_no_more(void **state)
{
    struct weights_fixture *f = *state;
    struct err e = {0};
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    for (uint32_t i = 0; i < 4; i++)
        put(f, m, i, 11 + i, NULL);
    m = begin_again(f, m);
    assert_int_equal(weight_store_check(f->store, m, 2, &e), 0);
    /* Somebody writes to the file, while it is open and after it was checked. */
    byte_flip(store_model_path(m), 100 + 2 * TEST_CHUNK + 500);
    assert_int_equal(weight_store_check(f->store, m, 1, &e), 0);
    assert_int_equal(weight_store_check(f->store, m, 2, &e), HP_ECORRUPT);
    assert_non_null(strstr(e.text, "chunk 2"));
    assert_non_null(strstr(e.text, store_model_path(m)));
    assert_false(store_model_has(m, 2));
    assert_int_equal(weight_store_check(f->store, m, 2, &e), HP_ENOENT);
    m = begin_again(f, m);
    assert_false(store_model_has(m, 2));
    assert_true(store_model_has(m, 3));
    assert_int_equal(put(f, m, 2, 13, NULL), 0);
    assert_int_equal(weight_store_check(f->store, m, 2, &e), 0);
    weight_store_release(f->store, m);
}

/* A model of four chunks, whole and closed; its folder. */
static void whole_model_make(struct weights_fixture *f, char out[900])
{
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    struct digest id = store_model_id(m);
    char hex[DIGEST_HEX];
    digest_hex(&id, hex);
    snprintf(out, 900, "%s/models/%s", f->folder, hex);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(put(f, m, i, seeds[i], NULL), 0);
    assert_int_equal(weight_store_sync(f->store, NULL), 0);
    weight_store_release(f->store, m);
    weight_store_close(&f->store);
}

static bool model_is_whole(struct weights_fixture *f)
{
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    bool whole = true;
    for (uint32_t i = 0; i < 4; i++)
        whole = whole && weight_store_check(f->store, m, i, NULL) == 0;
    weight_store_release(f->store, m);
    return whole;
}

static void what_cannot_be_read_is_left_and_found_again(void **state)
{
    struct weights_fixture *f = *state;
    struct buffer manifest = test_manifest("m.gguf", seeds, 4);
    char folder[900], have[1000], aside[1000];
    struct store_model *m;
    struct err e = {0};
    whole_model_make(f, folder);
    reads_fail = true; /* of its manifest, when the store opens */
    store_open(f, 0);
    assert_int_equal(weight_store_hold(f->store, manifest.data, manifest.size, &m, &e), HP_EIO);
    assert_non_null(strstr(e.text, "nput/output error"));
    reads_fail = false;
    assert_true(model_is_whole(f));
    weight_store_close(&f->store);
    /* Of its list of chunks: a folder opens, and cannot be read. */
    snprintf(have, sizeof have, "%s/have", folder);
    snprintf(aside, sizeof aside, "%s/aside", folder);
    assert_int_equal(rename(have, aside) | mkdir(have, 0700), 0);
    store_open(f, 0);
    assert_int_equal(weight_store_hold(f->store, manifest.data, manifest.size, &m, &e), HP_EIO);
    assert_int_equal(rmdir(have) | rename(aside, have), 0);
    assert_true(model_is_whole(f));
    weight_store_close(&f->store);
    /* Of a chunk: it may be put again, and counts again where the model is held once more. */
    store_open(f, 0);
    m = hold(f, "m.gguf", seeds, 4);
    reads_fail = true;
    assert_int_equal(weight_store_check(f->store, m, 2, &e), HP_EIO);
    assert_non_null(strstr(e.text, "chunk 2 of m.gguf"));
    assert_false(store_model_has(m, 2));
    reads_fail = false;
    assert_true(model_is_whole(f));
    assert_true(store_model_has(m, 2));
    weight_store_release(f->store, m);
    buffer_free(&manifest);
}

static void file_that_was_cut_gets_its_size_and_head_back(void **state)
{
    struct weights_fixture *f = *state;
    struct stat st;
    uint8_t head[100];
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4);
    put(f, m, 0, 11, NULL);
    put(f, m, 3, 14, NULL);
    assert_int_equal(truncate(store_model_path(m), 50), 0);
    struct store_model *again = hold(f, "m.gguf", seeds, 4);
    assert_ptr_equal(again, m);
    assert_int_equal(stat(store_model_path(m), &st), 0);
    assert_int_equal(st.st_size, 100 + 4 * TEST_CHUNK);
    FILE *file = fopen(store_model_path(m), "rb");
    assert_int_equal(fread(head, 1, sizeof head, file), sizeof head);
    fclose(file);
    assert_int_equal(head[99], 11);
    assert_int_equal(weight_store_check(f->store, m, 0, NULL),
                     HP_ECORRUPT); /* its bytes are gone */
    assert_int_equal(weight_store_check(f->store, m, 3, NULL), HP_ECORRUPT);
    weight_store_release(f->store, m);
    weight_store_release(f->store, m);
}

static void rotten_chunk_is_not_copied_to_another_model(void **state)
{
    struct weights_fixture *f = *state;
    static const uint32_t others[] = {11, 99};
    store_open(f, 0);
    struct store_model *m = hold(f, "m.gguf", seeds, 4), *other = hold(f, "other.gguf", others, 2);
    put(f, m, 0, 11, NULL);
    byte_flip(store_model_path(m), 100 + 10);
    assert_int_equal(weight_store_copy(f->store, other, 0, NULL), HP_ENOENT);
    assert_false(store_model_has(m, 0));
    assert_int_equal(put(f, other, 0, 11, NULL), 0);
    assert_int_equal(weight_store_copy(f->store, m, 0, NULL), 0);
    weight_store_release(f->store, m);
    weight_store_release(f->store, other);
}

static void two_processes_do_not_share_a_store(void **state)
{
    struct weights_fixture *f = *state;
    struct weight_store *other = NULL;
    store_open(f, 0);
    assert_int_equal(weight_store_open(f->folder, 0, &other, NULL), HP_EBUSY);
    assert_null(other);
}

static void nonsense_is_no_manifest(void **state)
{
    struct weights_fixture *f = *state;
    struct store_model *m;
    store_open(f, 0);
    assert_int_equal(weight_store_hold(f->store, (const uint8_t *)"nonsense", 8, &m, NULL),
                     HP_EPARSE);
    static const uint32_t one[] = {1};
    struct buffer b = test_manifest("../out.gguf", one, 1); /* leaves its folder */
    assert_int_equal(weight_store_hold(f->store, b.data, b.size, &m, NULL), HP_EPARSE);
    buffer_free(&b);
}

static void source_write(const struct weights_fixture *f, const uint32_t *of, uint32_t n)
{
    uint8_t bytes[TEST_CHUNK];
    memset(bytes, (int)of[0], 100);
    FILE *file = fopen(f->source, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, 100, file), 100);
    for (uint32_t i = 0; i < n; i++) {
        test_chunk_bytes(of[i], bytes);
        assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    }
    fclose(file);
}

static void borrowed_files_are_used_where_they_lie_and_never_written(void **state)
{
    struct weights_fixture *f = *state;
    const uint32_t own[] = {1, 2, 3}, others[] = {1, 9, 9};
    uint8_t bytes[TEST_CHUNK];
    char *real;
    struct stat st;
    store_open(f, 0);
    snprintf(f->source, sizeof f->source, "%s/source", f->folder);
    struct store_model *m = hold(f, "borrowed", own, 3);
    assert_int_equal(weight_store_borrow(m, "/nowhere", NULL), HP_ENOENT);
    assert_int_equal(weight_store_borrow(m, f->folder, NULL), HP_ENOENT);
    source_write(f, own, 2);
    assert_int_equal(weight_store_borrow(m, f->source, NULL), HP_ENOENT); /* too short */
    source_write(f, own, 3);
    assert_int_equal(weight_store_borrow(m, f->source, NULL), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(store_model_has(m, i) && weight_store_check(f->store, m, i, NULL) == 0);
    real = realpath(store_model_path(m), NULL);
    assert_string_equal(real, f->source);
    free(real);
    assert_int_equal(weight_store_bytes(f->store), 100); /* the head: nothing was copied */

    source_write(f, others, 3);
    struct timespec later[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
    assert_int_equal(utimensat(AT_FDCWD, f->source, later, 0), 0);
    assert_int_equal(weight_store_check(f->store, m, 0, NULL), 0);
    assert_int_equal(weight_store_check(f->store, m, 1, NULL), HP_ECORRUPT);
    test_chunk_bytes(own[1], bytes);
    assert_true(weight_store_put(f->store, m, 1, bytes, sizeof bytes, NULL) < 0);
    weight_store_release(f->store, m);
    weight_store_close(&f->store);
    store_open(f, 0); /* a link is none of what the store keeps */
    struct digest id = {{0}};
    assert_int_equal(weight_store_remove(f->store, &id, NULL), HP_ENOENT);
    assert_int_equal(weight_store_bytes(f->store), 0);
    assert_int_equal(stat(f->source, &st), 0);
    assert_int_equal(st.st_size, 100 + 3 * TEST_CHUNK);
    FILE *file = fopen(f->source, "rb");
    assert_int_equal(fseek(file, 100 + TEST_CHUNK, SEEK_SET), 0);
    uint8_t there[TEST_CHUNK];
    assert_int_equal(fread(there, 1, sizeof there, file), sizeof there);
    test_chunk_bytes(9, bytes);
    assert_memory_equal(there, bytes, sizeof bytes);
    fclose(file);
}

/* A stage reads chunks while others of the same file arrive; what somebody else writes there is no
 * such thing. */
static void chunks_that_arrive_beside_those_in_use_are_no_writes_of_others(void **state)
{
    struct weights_fixture *f = *state;
    const uint32_t own[] = {1, 2, 3};
    struct mapped_file used;
    struct err e = {0};
    store_open(f, 0);
    struct store_model *m = hold(f, "used", own, 3);
    assert_int_equal(put(f, m, 0, own[0], &e), 0);
    assert_int_equal(mapped_file_open(store_model_path(m), &used, &e), 0);
    for (uint32_t i = 1; i < 3; i++) {
        usleep(2000); /* looks are a millisecond apart */
        assert_int_equal(put(f, m, i, own[i], &e), 0);
        assert_int_equal(mapped_file_check(&used, "used", &e), 0);
    }
    int fd = open(store_model_path(m), O_WRONLY);
    assert_true(fd >= 0);
    usleep(10000); /* as fine as a file's time is */
    assert_int_equal(pwrite(fd, "other", 5, 200), 5);
    close(fd);
    assert_int_equal(mapped_file_check(&used, "used", &e), HP_EIO);
    assert_int_equal(weight_store_check(f->store, m, 0, &e), HP_ECORRUPT);
    mapped_file_close(&used);
    weight_store_release(f->store, m);
}

int main(void)
{
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(model_is_a_sparse_copy_that_fills_as_chunks_arrive),
        CLAIM(what_was_synced_survives_a_crash_and_a_torn_record_does_not),
        CLAIM(borrowed_files_are_used_where_they_lie_and_never_written),
        CLAIM(chunks_that_arrive_beside_those_in_use_are_no_writes_of_others),
        CLAIM(broken_model_is_removed_when_the_store_opens),
        CLAIM(chunk_that_is_not_what_its_digest_says_is_refused),
        CLAIM(models_that_share_weights_share_chunks),
        CLAIM(shared_path_gives_chunks_whose_bytes_agree),
        CLAIM(limit_removes_the_model_least_recently_used_and_never_one_in_use),
        CLAIM(full_disk_is_a_named_error),
        CLAIM(what_a_failed_sync_promised_is_taken_back),
        CLAIM(records_after_a_torn_one_are_found_again),
        CLAIM(chunk_that_rotted_is_found_and_counts_no_more),
        CLAIM(what_cannot_be_read_is_left_and_found_again),
        CLAIM(file_that_was_cut_gets_its_size_and_head_back),
        CLAIM(rotten_chunk_is_not_copied_to_another_model),
        CLAIM(two_processes_do_not_share_a_store),
        CLAIM(nonsense_is_no_manifest),
    };
    return cmocka_run_group_tests_name("weight_store", tests, NULL, NULL);
}
