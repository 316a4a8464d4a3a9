/* The lanes over threads of the test's own: what is out, in which order it ran, and what closing
 * gives back. */
#include <stdint.h>
#include <string.h>

#include "coordinator/gateway/lanes.h"
#include "tests/test.h"

enum { PIECES = 16 };

static struct coord_work *out[64];
static int n_out;
static bool refusing;
static char ran[64], failed[64];

static int work_take(void *ctx, const struct model *model, struct coord_work *w, struct err *e)
{
    (void)ctx, (void)model;
    if (refusing)
        return err_set(e, HP_EBUSY, "no thread");
    out[n_out++] = w;
    return 0;
}

static const struct requests requests = {.work = work_take};
static struct piece pieces[PIECES];

static void note(char *list, const struct piece *p)
{
    size_t n = strlen(list);
    list[n] = (char)('a' + (p - pieces));
    list[n + 1] = 0;
}

static void run(struct piece *p)
{
    note(ran, p);
}

static void done(struct piece *p, const struct err *why)
{
    if (why)
        note(failed, p);
}

/* The oldest that is out runs and comes back. */
static void step(bool dropped)
{
    struct coord_work *w = out[0];
    memmove(out, out + 1, (size_t)--n_out * sizeof *out);
    if (!dropped)
        w->run(w);
    w->done(w, dropped);
}

static int add(struct lanes *l, int i, size_t bytes)
{
    struct err e = {0};
    pieces[i] = (struct piece){.run = run, .done = done};
    return lanes_add(l, &pieces[i], bytes, &e);
}

static int reset(void **state)
{
    (void)state;
    n_out = 0;
    refusing = false;
    ran[0] = failed[0] = 0;
    return 0;
}

TEST(one_large_piece_is_out_at_a_time_and_small_ones_pass_it)
{
    struct lanes *l = lanes_create(&requests);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add(l, i, LANES_LARGE_BYTES), 0);
    for (int i = 3; i < 8; i++)
        assert_int_equal(add(l, i, 100), 0);
    assert_int_equal(n_out, 1 + LANES_SMALL_AT_ONCE);
    struct coord_work *large = out[0];
    memmove(out, out + 1, (size_t)--n_out * sizeof *out);
    while (n_out > 0)
        step(false);
    assert_string_equal(ran, "defgh"); /* all small ones, while the large one is out */
    out[n_out++] = large;
    while (n_out > 0)
        step(false);
    assert_string_equal(ran, "defghabc");
    lanes_close(&l);
}

TEST(too_many_bytes_are_refused)
{
    struct lanes *l = lanes_create(&requests);
    assert_int_equal(add(l, 0, LANES_MAX_BYTES), 0);
    assert_int_equal(add(l, 1, 1), HP_EBUSY);
    step(false);
    assert_int_equal(add(l, 1, 1), 0);
    step(false);
    lanes_close(&l);
    assert_string_equal(failed, "");
}

TEST(what_no_thread_takes_fails_at_once)
{
    struct lanes *l = lanes_create(&requests);
    refusing = true;
    assert_int_equal(add(l, 0, 1), 0);
    assert_string_equal(failed, "a");
    refusing = false;
    assert_int_equal(add(l, 1, 1), 0);
    step(false);
    assert_string_equal(ran, "b");
    lanes_close(&l);
}

TEST(closing_gives_back_what_waits_and_what_is_out_comes_back_later)
{
    struct lanes *l = lanes_create(&requests);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add(l, i, LANES_LARGE_BYTES), 0);
    lanes_close(&l);
    assert_string_equal(failed, "bcd");
    step(true);
    assert_string_equal(failed, "bcda");
    assert_string_equal(ran, "");
}

/* A list that somebody else holds, too, so that its end can be seen. */
static json_t *tree_of(json_t *held)
{
    json_t *root = json_array();
    assert_int_equal(json_array_append(root, held), 0);
    return root;
}

TEST(large_trees_are_freed_by_a_worker_and_others_at_once)
{
    static const struct {
        bool lanes, refusing;
        size_t bytes;
        int out; /* pieces that a worker gets */
    } cases[] = {{true, false, LANES_LARGE_BYTES, 1},
                 {true, false, LANES_LARGE_BYTES - 1, 0},
                 {false, false, LANES_LARGE_BYTES, 0},
                 {true, true, LANES_LARGE_BYTES, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lanes *l = lanes_create(&requests);
        json_t *held = json_string("x"), *root = tree_of(held);
        n_out = 0;
        refusing = cases[i].refusing;
        lanes_drop_tree(cases[i].lanes ? l : NULL, &root, cases[i].bytes);
        assert_null(root);
        assert_int_equal(n_out, cases[i].out);
        assert_int_equal(held->refcount, 1 + cases[i].out);
        if (n_out)
            step(false);
        assert_int_equal(held->refcount, 1);
        refusing = false;
        lanes_close(&l);
        json_decref(held);
    }
    struct lanes *l = lanes_create(&requests);
    lanes_drop_tree(l, &(json_t *){NULL}, LANES_LARGE_BYTES);
    assert_int_equal(n_out, 0);
    lanes_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_trees_are_freed_by_a_worker_and_others_at_once),
        cmocka_unit_test_setup(one_large_piece_is_out_at_a_time_and_small_ones_pass_it, reset),
        cmocka_unit_test_setup(too_many_bytes_are_refused, reset),
        cmocka_unit_test_setup(what_no_thread_takes_fails_at_once, reset),
        cmocka_unit_test_setup(closing_gives_back_what_waits_and_what_is_out_comes_back_later,
                               reset),
    };
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
