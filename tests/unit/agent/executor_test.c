/* The executor beside a real data endpoint and the demo model: what goes on while it loads and
 * measures. What is asserted is the order of events, not time. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/executor.h"
#include "common/env.h"
#include "common/log.h"
#include "tests/test.h"
#include "tests/unit/semaphores.h"
#include "transport/message.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";
enum { LAYERS = 18, SERVING = 1, LOADING = 2, NOBODY = 9, LIMIT_S = 60 };

struct executor_fixture {
    struct data_endpoint *data;
    struct executor *x;
    sem_t loaded[3], load_began, go_on, opened, ran, profiled, measuring;
    atomic_int ran_count, load_reports, ran_while_measuring;
    atomic_bool holds, load_ended, profile_ended;
    int load_status[3], run_status;
    char load_text[300]; /* why the last one failed */
    bool run_may_fail;
    atomic_bool busy; /* each batch is followed by another at once */
    uint32_t vocabulary;
    uint64_t receiving_bytes; /* of what is loaded next */
    struct batch_run run;
    struct batch batch;
    uint32_t ids[4];
};

static void frame_ignore(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct executor_fixture *f = ctx;
    (void)h;
    data_buffer_release(f->data, payload);
}

static void load_told(struct executor_fixture *f, const struct executor_report *r)
{
    if (r->status == HP_PENDING && !r->warming && r->slot == LOADING &&
        atomic_exchange(&f->holds, false)) {
        sem_post(&f->load_began);
        sem_wait(&f->go_on); /* the loader's thread stays here */
    }
    if (r->status == HP_PENDING)
        return;
    f->load_status[r->slot] = r->status;
    if (r->status < 0)
        snprintf(f->load_text, sizeof f->load_text, "%s", r->error->text);
    f->vocabulary = r->vocabulary;
    if (r->slot == LOADING)
        atomic_store(&f->load_ended, true);
    atomic_fetch_add(&f->load_reports, 1);
    sem_post(&f->loaded[r->slot]);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct executor_fixture *f = ctx;
    switch (r->kind) {
    case EXECUTOR_LOADED: load_told(f, r); return;
    case EXECUTOR_OPENED:
        assert_int_equal(r->status, 0);
        sem_post(&f->opened);
        return;
    case EXECUTOR_RAN:
        f->run_status = r->status;
        assert_true(r->status == 0 || f->run_may_fail);
        atomic_fetch_add(&f->ran_count, 1);
        if (atomic_load(&f->busy))
            executor_run(f->x, &(struct executor_run){.slot = NOBODY, .ticket = 60});
        else
            sem_post(&f->ran);
        return;
    case EXECUTOR_FILLING:
    case EXECUTOR_KV_IMPORTED:
    case EXECUTOR_KV_EXPORTED: fail();
    case EXECUTOR_PROFILING: sem_post(&f->measuring); return;
    case EXECUTOR_PROFILED:
        atomic_store(&f->profile_ended, true);
        sem_post(&f->profiled);
        return;
    }
}

static int setup(void **state)
{
    struct executor_fixture *f = calloc(1, sizeof *f);
    struct data_config d = {.callbacks = {f, frame_ignore, NULL}};
    log_set_level(LOG_ERROR);
    sem_t *all[] = {&f->loaded[0], &f->loaded[1], &f->loaded[2], &f->load_began, &f->go_on,
                    &f->opened,    &f->ran,       &f->profiled,  &f->measuring};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    assert_int_equal(data_open_inproc(&d, &f->data, NULL), 0);
    struct executor_config c = {
        .device = {.backend = "cpu", .n_threads = 2, .memory_bytes = 1 << 30},
        .data = f->data,
        .report = told,
        .ctx = f};
    assert_int_equal(executor_create(&c, &f->x, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct executor_fixture *f = *state;
    executor_destroy(&f->x);
    data_close(&f->data);
    free(f);
    return 0;
}

static void load(struct executor_fixture *f, uint64_t slot)
{
    struct executor_load l = {.slot = slot,
                              .ticket = slot,
                              .path = demo_model,
                              .first_layer = 0,
                              .end_layer = LAYERS,
                              .kv_tokens = 256,
                              .max_sequences = 2,
                              .max_batch_tokens = 64,
                              .n_stages = 1,
                              .receiving_bytes = f->receiving_bytes};
    executor_load(f->x, &l);
}

static void a_model_that_has_no_such_values_at_a_border_is_not_loaded(void **state)
{
    struct executor_fixture *f = *state;
    struct message_value none = {"no.such.value", 192, false};
    struct executor_load l = {.slot = LOADING,
                              .ticket = LOADING,
                              .path = demo_model,
                              .first_layer = 3,
                              .end_layer = LAYERS,
                              .kv_tokens = 256,
                              .max_sequences = 2,
                              .max_batch_tokens = 64,
                              .n_stages = 2,
                              .enters = {&none, 1}};
    executor_load(f->x, &l);
    semaphore_wait(&f->loaded[LOADING], LIMIT_S);
    assert_int_equal(f->load_status[LOADING], HP_EINVAL);
    assert_non_null(strstr(f->load_text, "no.such.value of 192"));
}

static void serve(struct executor_fixture *f)
{
    load(f, SERVING);
    semaphore_wait(&f->loaded[SERVING], LIMIT_S);
    assert_int_equal(f->load_status[SERVING], 0);
    executor_sequence_open(
        f->x,
        &(struct executor_opening){.slot = SERVING, .ticket = 9, .sequence = 5, .kv_tokens = 200});
    semaphore_wait(&f->opened, LIMIT_S);
}

static void run_one(struct executor_fixture *f, uint32_t position)
{
    f->run = (struct batch_run){.sequence = 5, .first_position = position, .n_tokens = 1};
    f->batch = (struct batch){.runs = &f->run, .n_runs = 1, .n_tokens = 1, .ids = f->ids};
    f->ids[0] = 7;
    executor_run(f->x, &(struct executor_run){
                           .slot = SERVING, .ticket = 100 + position, .batch = &f->batch});
    semaphore_wait(&f->ran, LIMIT_S);
}

static void batches_of_one_deployment_run_while_another_is_loaded(void **state)
{
    struct executor_fixture *f = *state;
    serve(f);
    atomic_store(&f->holds, true);
    load(f, LOADING);
    semaphore_wait(&f->load_began, LIMIT_S);
    for (uint32_t i = 0; i < 3; i++)
        run_one(f, i); /* the load stands still all the while */
    assert_false(atomic_load(&f->load_ended));
    sem_post(&f->go_on);
    semaphore_wait(&f->loaded[LOADING], LIMIT_S);
    assert_int_equal(f->load_status[LOADING], 0);
    run_one(f, 3);
}

static void a_load_that_nobody_wants_any_more_ends_and_leaves_nothing(void **state)
{
    struct executor_fixture *f = *state;
    serve(f);
    uint64_t free_bytes = executor_memory_free(f->x);
    atomic_store(&f->holds, true);
    load(f, LOADING);
    semaphore_wait(&f->load_began, LIMIT_S);
    executor_unload(f->x, LOADING);
    run_one(f, 0); /* the executor has heard of it */
    sem_post(&f->go_on);
    load(f, LOADING); /* its place in the queue is behind */
    semaphore_wait(&f->loaded[LOADING], LIMIT_S);
    assert_int_equal(f->load_status[LOADING], 0);
    assert_int_equal(atomic_load(&f->load_reports),
                     2); /* of the one that serves, and of the second try */
    executor_unload(f->x, LOADING);
    run_one(f, 1);
    assert_int_equal(executor_memory_free(f->x), free_bytes);
}

static void an_executor_ends_while_loads_go_on_and_wait(void **state)
{
    struct executor_fixture *f = *state;
    atomic_store(&f->holds, true);
    load(f, LOADING);
    semaphore_wait(&f->load_began, LIMIT_S);
    load(f, SERVING); /* one that has not begun */
    sem_post(&f->go_on);
    executor_destroy(&f->x);
    assert_null(f->x); /* it came back, and gave all back (the sanitizers look) */
}

enum { MANY_ROWS = 60 };

/* A prompt whose logits are all asked for. */
static void run_all_logits(struct executor_fixture *f)
{
    static uint32_t ids[MANY_ROWS] = {7};
    f->run = (struct batch_run){.sequence = 5, .n_tokens = MANY_ROWS, .n_logits = MANY_ROWS};
    f->batch = (struct batch){
        .runs = &f->run, .n_runs = 1, .n_tokens = MANY_ROWS, .n_logits = MANY_ROWS, .ids = ids};
    executor_run(f->x, &(struct executor_run){.slot = SERVING, .ticket = 50, .batch = &f->batch});
    semaphore_wait(&f->ran, LIMIT_S);
}

static void rows_of_logits_count_against_the_limit(void **state)
{
    struct executor_fixture *f = *state;
    serve(f);
    uint64_t loaded = executor_memory_free(f->x),
             rows = (uint64_t)MANY_ROWS * f->vocabulary * sizeof(float);
    run_all_logits(f);
    assert_int_equal(f->run_status, 0);
    assert_true(executor_memory_free(f->x) + rows <= loaded);
    /* The same on a device that has room for the stage, and for half of these rows. */
    executor_destroy(&f->x);
    struct executor_config c = {
        .device = {.backend = "cpu", .n_threads = 2, .memory_bytes = (1 << 30) - loaded + rows / 2},
        .data = f->data,
        .report = told,
        .ctx = f};
    assert_int_equal(executor_create(&c, &f->x, NULL), 0);
    serve(f);
    f->run_may_fail = true;
    run_all_logits(f);
    assert_int_equal(f->run_status, HP_ENOMEM);
    f->run_may_fail = false;
    run_one(f, 0); /* what fits goes on */
}

/* What the pool of received frames takes for a stage is the stage's to pay. */
static void frames_on_their_way_to_a_stage_count_against_the_limit(void **state)
{
    enum { FRAMES = 50 << 20 };
    struct executor_fixture *f = *state;
    uint64_t before = executor_memory_free(f->x);
    load(f, SERVING);
    semaphore_wait(&f->loaded[SERVING], LIMIT_S);
    uint64_t loaded = executor_memory_free(f->x);
    f->receiving_bytes = FRAMES;
    load(f, LOADING);
    semaphore_wait(&f->loaded[LOADING], LIMIT_S);
    assert_int_equal(f->load_status[LOADING], 0);
    assert_in_range(loaded - executor_memory_free(f->x), FRAMES, FRAMES + before - loaded);
    executor_unload(f->x, LOADING);
    f->receiving_bytes = loaded;
    load(f, LOADING);
    semaphore_wait(&f->loaded[LOADING], LIMIT_S);
    assert_int_equal(f->load_status[LOADING], HP_ENOMEM);
    assert_non_null(strstr(f->load_text, "are missing"));
    assert_int_equal(executor_memory_free(f->x), loaded);
}

static void batches_run_between_the_points_of_a_measurement(void **state)
{
    struct executor_fixture *f = *state;
    serve(f);
    executor_profile(
        f->x, &(struct executor_profile){
                  .ticket = 3, .budget_ms = 3000, .path = demo_model, .cache = "", .fine = true});
    semaphore_wait(&f->measuring, LIMIT_S);
    for (uint32_t i = 0; i < 3; i++)
        run_one(f, i);
    assert_false(atomic_load(&f->profile_ended));
    semaphore_wait(&f->profiled, LIMIT_S);
}

/* There is always another batch in the queue, as there is while one device decodes. */
static void a_measurement_ends_while_requests_are_served_without_a_gap(void **state)
{
    struct executor_fixture *f = *state;
    f->run_may_fail = true; /* nothing is loaded there: batches that take no time */
    atomic_store(&f->busy, true);
    executor_run(f->x, &(struct executor_run){.slot = NOBODY, .ticket = 60});
    executor_profile(f->x, &(struct executor_profile){
                               .ticket = 3, .budget_ms = 300, .path = demo_model, .cache = ""});
    semaphore_wait(&f->profiled, LIMIT_S);
    atomic_store(&f->busy, false);
    semaphore_wait(&f->ran, LIMIT_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_of_one_deployment_run_while_another_is_loaded,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_load_that_nobody_wants_any_more_ends_and_leaves_nothing,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_model_that_has_no_such_values_at_a_border_is_not_loaded,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_executor_ends_while_loads_go_on_and_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(rows_of_logits_count_against_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_on_their_way_to_a_stage_count_against_the_limit,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(batches_run_between_the_points_of_a_measurement, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_measurement_ends_while_requests_are_served_without_a_gap,
                                        setup, teardown),
    };
    return cmocka_run_group_tests_name("executor", tests, NULL, NULL);
}
