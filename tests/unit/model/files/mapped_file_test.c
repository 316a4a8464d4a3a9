#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/files/mapped_file.h"
#include "tests/test.h"

enum { PAGES = 64, N_THREADS = 4 };

struct file {
    char path[64];
    size_t page;
};

static int setup(void **state)
{
    struct file *f = calloc(1, sizeof *f);
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(f->path, sizeof f->path, "/tmp/hp-mapped-XXXXXX");
    int fd = mkstemp(f->path);
    uint8_t *bytes = malloc(PAGES * f->page);
    memset(bytes, 7, PAGES * f->page);
    assert_int_equal(write(fd, bytes, PAGES * f->page), (ssize_t)(PAGES * f->page));
    close(fd);
    free(bytes);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct file *f = *state;
    unlink(f->path);
    free(f);
    return 0;
}

/* cmocka takes SIGBUS for itself in every test. */
static struct sigaction handler;

static void handler_put_back(void)
{
    assert_int_equal(sigaction(SIGBUS, &handler, NULL), 0);
}

static uint64_t sum(const uint8_t *bytes, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += ((const volatile uint8_t *)bytes)[i];
    return total;
}

static void file_that_shrinks_reads_as_zeros_and_says_so(void **state)
{
    struct file *f = *state;
    struct mapped_file m, whole;
    struct err e = {0};
    handler_put_back();
    assert_int_equal(mapped_file_open(f->path, &m, &e), 0);
    assert_int_equal(mapped_file_open("examples/hpipe-testbed/toy.gguf", &whole, &e), 0);
    assert_int_equal(sum(m.data, PAGES * f->page), 7 * PAGES * f->page);
    assert_int_equal(mapped_file_check(&m, f->path, &e), 0);
    assert_int_equal(truncate(f->path, (off_t)(3 * f->page)), 0);
    assert_int_equal(sum(m.data, PAGES * f->page), 7 * 3 * f->page);
    assert_int_equal(mapped_file_check(&m, f->path, &e), HP_EIO);
    char byte[32];
    snprintf(byte, sizeof byte, "byte %zu ", 3 * f->page);
    assert_non_null(strstr(e.text, f->path));
    assert_non_null(strstr(e.text, byte));
    assert_int_equal(mapped_file_check(&whole, "toy", &e), 0); /* others are as they were */
    mapped_file_close(&m);
    mapped_file_close(&whole);
    /* Its place is given to the next, which is good. */
    assert_int_equal(mapped_file_open(f->path, &m, &e), 0);
    assert_int_equal(sum(m.data, (size_t)m.bytes), 7 * 3 * f->page);
    assert_int_equal(mapped_file_check(&m, f->path, &e), 0);
    mapped_file_close(&m);
}

struct reading_thread {
    const struct mapped_file *m;
    uint64_t sum;
};

static void write_at(const char *path, off_t at)
{
    usleep(20000); /* a file is dated by the kernel's ticks */
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "8", 1, at), 1);
    close(fd);
}

static void what_others_write_is_found(void **state)
{
    struct file *f = *state;
    struct mapped_file m, linked;
    struct err e = {0};
    char link[80], other[80];
    snprintf(link, sizeof link, "%s-link", f->path);
    snprintf(other, sizeof other, "%s-other", f->path);
    assert_int_equal(symlink(f->path, link), 0);
    assert_int_equal(mapped_file_open(f->path, &m, &e), 0);
    assert_int_equal(mapped_file_open(link, &linked, &e), 0);
    assert_int_equal(mapped_file_check(&m, "model", &e), 0);
    assert_int_equal(mapped_file_check(&linked, "model", &e), 0);
    write_at(f->path, 100); /* and looked at just now or not, a check finds it */
    assert_int_equal(mapped_file_check(&m, "model", &e), HP_EIO);
    assert_non_null(strstr(e.text, "model: somebody wrote to the file"));
    assert_int_equal(mapped_file_check(&linked, "model", &e), HP_EIO);
    mapped_file_close(&m);
    mapped_file_close(&linked);
    assert_int_equal(mapped_file_open(f->path, &m, &e), 0);
    assert_int_equal(mapped_file_glance(&m, "model", &e), 0);
    write_at(f->path, 200);
    assert_int_equal(mapped_file_glance(&m, "model", &e), HP_EIO);
    mapped_file_close(&m);
    /* another file in its place leaves what is mapped as it was */
    assert_int_equal(mapped_file_open(link, &m, &e), 0);
    assert_int_equal(rename(f->path, other), 0);
    int fd = open(f->path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    usleep(2000);
    assert_int_equal(mapped_file_check(&m, "model", &e), 0);
    mapped_file_close(&m);
    unlink(link);
    unlink(other);
}

/* Which hides nothing that others wrote before or write afterwards. */
static void what_this_process_writes_is_its_own(void **state)
{
    struct file *f = *state;
    struct mapped_file m, late, beside;
    struct mapped_write own;
    struct err e = {0};
    assert_int_equal(mapped_file_open(f->path, &m, &e), 0);
    assert_int_equal(mapped_file_open("examples/hpipe-testbed/toy.gguf", &beside, &e), 0);
    mapped_file_write_begin(f->path, &own);
    write_at(f->path, 100);
    assert_int_equal(mapped_file_open(f->path, &late, &e), 0);
    write_at(f->path, 200);
    assert_int_equal(mapped_file_check(&m, "model", &e), 0);
    assert_int_equal(mapped_file_check(&late, "model", &e), 0);
    assert_int_equal(mapped_file_check(&beside, "toy", &e), 0);
    mapped_file_write_end(f->path, &own);
    usleep(2000);
    assert_int_equal(mapped_file_check(&m, "model", &e), 0);
    assert_int_equal(mapped_file_check(&late, "model", &e), 0);
    write_at(f->path, 300);
    mapped_file_write_begin(f->path, &own);
    write_at(f->path, 400);
    mapped_file_write_end(f->path, &own);
    assert_int_equal(mapped_file_check(&m, "model", &e), HP_EIO);
    assert_int_equal(mapped_file_check(&late, "model", &e), HP_EIO);
    assert_int_equal(mapped_file_check(&beside, "toy", &e), 0);
    mapped_file_close(&m), mapped_file_close(&late), mapped_file_close(&beside);
}

static void *read_all(void *ctx)
{
    struct reading_thread *r = ctx;
    r->sum = sum(r->m->data, (size_t)r->m->bytes);
    return NULL;
}

static void many_threads_may_touch_what_is_not_there(void **state)
{
    struct file *f = *state;
    struct mapped_file m;
    pthread_t threads[N_THREADS];
    struct reading_thread readers[N_THREADS];
    handler_put_back();
    assert_int_equal(mapped_file_open(f->path, &m, NULL), 0);
    assert_int_equal(truncate(f->path, 0), 0);
    for (int i = 0; i < N_THREADS; i++) {
        readers[i] = (struct reading_thread){.m = &m};
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].sum, 0);
    }
    assert_int_equal(mapped_file_check(&m, f->path, NULL), HP_EIO);
    mapped_file_close(&m);
}

static void bus_errors_of_others_end_the_process_as_before(void **state)
{
    struct file *f = *state;
    struct mapped_file m;
    int status = 0;
    handler_put_back();
    assert_int_equal(mapped_file_open(f->path, &m, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        int fd = open(f->path, O_RDWR | O_CLOEXEC);
        volatile const uint8_t *own = mmap(NULL, f->page, PROT_READ, MAP_PRIVATE, fd, 0);
        _exit(ftruncate(fd, 0) == 0 && own[0] ? 2 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ||
                (WEXITSTATUS(status) != 2 && WEXITSTATUS(status) != 3)); /* a sanitizer exits */
    mapped_file_close(&m);
}

int main(void)
{
    struct mapped_file any;
    if (mapped_file_open("/proc/self/exe", &any, NULL) == 0) /* installs it */
        mapped_file_close(&any);
    sigaction(SIGBUS, NULL, &handler);
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(file_that_shrinks_reads_as_zeros_and_says_so),
        CLAIM(what_others_write_is_found),
        CLAIM(what_this_process_writes_is_its_own),
        CLAIM(many_threads_may_touch_what_is_not_there),
        CLAIM(bus_errors_of_others_end_the_process_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#undef CLAIM
}
