/* Which NUMA nodes a device's memory is asked of and where its threads keep, on boxes that hwloc
 * makes up. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/backend/backend.h"
#include "agent/backend/cpu/numa.h"
#include "agent/backend/cpu/threads.h"
#include "tests/test.h"

/* What was asked of the made-up system. */
struct asked {
    int n;
    uint64_t bytes;
    char nodes[64];
    bool in_turns, refuses;
};

static bool bind_note(void *ctx, void *area, size_t bytes, const char *nodes, bool in_turns)
{
    struct asked *a = ctx;
    assert_non_null(area);
    a->n++;
    a->bytes += bytes;
    a->in_turns = in_turns;
    snprintf(a->nodes, sizeof a->nodes, "%s", nodes);
    return !a->refuses;
}

TEST(memory_is_asked_of_the_nodes_of_the_cores)
{
    static const struct {
        const char *tree;
        int cores[4], n_cores;
        const char *nodes; /* NULL: nothing to place */
        bool in_turns;
        const char *text;
    } cases[] = {
        {"node:2 core:4 pu:1", {0, 3}, 2, "0", false, "NUMA node 0"},
        {"node:2 core:4 pu:1", {4, 5, 6, 7}, 4, "1", false, "NUMA node 1"},
        {"node:2 core:4 pu:1", {3, 4}, 2, "0-1", true, "NUMA nodes 0-1 in turns"},
        {"package:2 node:2 core:2 pu:2", {0, 5, 15}, 3, "0-1,3", true, "NUMA nodes 0-1,3 in turns"},
        {"node:1 core:4 pu:1", {0, 1}, 2, NULL, false, NULL},
        {"node:2 core:1 pu:1", {77}, 1, NULL, false, NULL}, /* a core that the tree does not have */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asked asked = {0};
        struct numa_box box = {cases[i].tree, bind_note, &asked};
        struct numa *p;
        struct err e = {0};
        char page[1];
        if (numa_create(&box, cases[i].cores, cases[i].n_cores, &p, &e) < 0)
            fail_msg("%s: %s", cases[i].tree, e.text);
        numa_take(p, page, sizeof page);
        if (!cases[i].nodes) {
            assert_null(p);
            assert_int_equal(asked.n, 0);
            continue;
        }
        assert_non_null(p);
        assert_string_equal(asked.nodes, cases[i].nodes);
        assert_int_equal(asked.in_turns, cases[i].in_turns);
        assert_string_equal(numa_text(p), cases[i].text);
        numa_destroy(&p);
    }
}

TEST(threads_are_shared_out_among_nodes_as_cores_are)
{
    static const int cores[] = {0, 4, 5, 6}; /* one of node 0, three of node 1 */
    static const int nodes[4] = {0, 1, 1, 1};
    struct asked asked = {0};
    struct numa_box box = {"node:2 core:4 pu:1", bind_note, &asked};
    struct numa *p;
    assert_int_equal(numa_create(&box, cores, 4, &p, NULL), 0);
    for (int i = 0; i < 4; i++) {
        cpu_set_t own;
        numa_thread_cores(p, i, 4, &own);
        assert_int_equal(CPU_COUNT(&own), nodes[i] ? 3 : 1);
        assert_true(CPU_ISSET(nodes[i] ? 5u : 0u, &own));
        assert_false(CPU_ISSET(7, &own)); /* not the device's */
    }
    numa_destroy(&p);
}

static struct device *device_of(const struct numa_box *box, int threads, const int *cores,
                                int n_cores)
{
    struct device_config c = {
        .backend = "cpu", .n_threads = threads, .cores = cores, .n_cores = n_cores, .box = box};
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

static bool device_is_cpu(const struct device *d)
{
    return strcmp(d->backend->name, "cpu") == 0;
}

static bool choice_says(const struct device *d, const char *what, const char *text)
{
    struct device_choice rows[DEVICE_CHOICES_MAX];
    int n = d->backend->choices(d, rows, DEVICE_CHOICES_MAX);
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].what, what) == 0)
            return strstr(rows[i].how, text) || strstr(rows[i].why, text);
    return false;
}

TEST(weights_and_tensors_of_a_device_are_placed_before_they_are_written)
{
    static const int cores[] = {0, 1};
    enum { ROWS = 1024, COLUMNS = 512 };
    struct asked asked = {0};
    struct numa_box box = {"node:2 core:1 pu:1", bind_note, &asked};
    struct device *d = device_of(&box, 1, cores, 2);
    if (!device_is_cpu(d)) {
        device_close(&d);
        skip();
    }
    struct memory m;
    uint8_t *blocks = calloc(ROWS, COLUMNS / 32 * 34);
    struct weight w = {.name = "w",
                       .dtype = DTYPE_Q8_0,
                       .n_dims = 2,
                       .shape = {ROWS, COLUMNS},
                       .bytes = ROWS * COLUMNS / 32 * 34,
                       .file = -1,
                       .data = blocks};
    struct device_weight *loaded;
    struct err e = {0};
    assert_int_equal(d->backend->memory_alloc(d, 1 << 20, &m, &e), 0);
    assert_true(asked.n == 1 && asked.bytes == 1 << 20);
    assert_true(asked.in_turns && strcmp(asked.nodes, "0-1") == 0);
    assert_int_equal(d->backend->weight_load(d, &w, WEIGHT_MATMUL, false, &loaded, &e), 0);
    assert_int_equal(asked.bytes - (1 << 20),
                     d->backend->weight_resident_bytes(d, &w, WEIGHT_MATMUL, false));
    assert_true(choice_says(d, "pages", "NUMA nodes 0-1 in turns"));
    d->backend->weight_free(d, &loaded);
    d->backend->memory_release(d, &m);
    device_close(&d);
    free(blocks);
}

TEST(a_system_that_refuses_is_told_of_and_the_memory_serves_all_the_same)
{
    static const int cores[] = {1};
    struct asked asked = {.refuses = true};
    struct numa_box box = {"node:2 core:1 pu:1", bind_note, &asked};
    struct device *d = device_of(&box, 1, cores, 1);
    if (!device_is_cpu(d)) {
        device_close(&d);
        skip();
    }
    struct memory m;
    struct err e = {0};
    assert_false(choice_says(d, "pages", "refused"));
    assert_int_equal(d->backend->memory_alloc(d, 4096, &m, &e), 0);
    memset(m.data, 1, 4096);
    assert_string_equal(asked.nodes, "1");
    assert_true(choice_says(d, "pages", "refused"));
    d->backend->memory_release(d, &m);
    device_close(&d);
}

/* The second thread says where it may run, and takes its time so that it comes to a part. */
struct thread_seen {
    cpu_set_t cores;
    atomic_bool second;
};

static void part_see(void *ctx, int thread, uint32_t part)
{
    struct thread_seen *s = ctx;
    (void)part;
    if (thread == 1 && !atomic_load(&s->second)) {
        sched_getaffinity(0, sizeof s->cores, &s->cores);
        atomic_store(&s->second, true);
    }
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

TEST(a_thread_keeps_to_the_cores_that_it_was_given)
{
    cpu_set_t mine, one;
    struct threads *t;
    struct thread_seen seen = {.second = false};
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    size_t core = 0;
    while (!CPU_ISSET(core, &mine))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(threads_create(2, NULL, 0, &t, NULL), 0);
    threads_keep(t, 1, &one);
    for (int i = 0; i < 10000 && !atomic_load(&seen.second); i++)
        threads_run(t, 4, part_see, &seen);
    threads_destroy(&t);
    assert_true(atomic_load(&seen.second));
    assert_true(CPU_EQUAL(&seen.cores, &one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_asked_of_the_nodes_of_the_cores),
        cmocka_unit_test(threads_are_shared_out_among_nodes_as_cores_are),
        cmocka_unit_test(weights_and_tensors_of_a_device_are_placed_before_they_are_written),
        cmocka_unit_test(a_system_that_refuses_is_told_of_and_the_memory_serves_all_the_same),
        cmocka_unit_test(a_thread_keeps_to_the_cores_that_it_was_given),
    };
    return cmocka_run_group_tests_name("numa", tests, NULL, NULL);
}
