/* Stages whose weights come while batches run. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/backend/backend.h"
#include "agent/engine/section_run.h"
#include "agent/engine/stage_int.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/tiny_model.h"

enum { TOKENS = 20, V = TINY_VOCABULARY, PATIENCE_MS = 20000 };

/* The plain backend, whose loads are held up and whose operators are counted. */
static const struct backend *plain;
static struct backend watched;
static struct {
    int hold_at;   /* this weight and those after it are not loaded before... */
    int until_ops; /* ... so many operators were run; */
    int fail_at;   /* this one cannot be read; -1: all can */
    int stop_at;   /* nobody wants the stage any more when this one comes; -1: it is wanted */
    int pause_ms;  /* before each once `unloading` is set */
    atomic_int loads, ops;
    atomic_bool unloading, gave_up;
} watch;
static atomic_bool stop;

static int watched_load(struct device *d, const struct weight *w, enum weight_use use, bool f32,
                        struct device_weight **out, struct err *e)
{
    int i = atomic_fetch_add(&watch.loads, 1);
    int waited_ms = 0;
    for (; i >= watch.hold_at && atomic_load(&watch.ops) < watch.until_ops; waited_ms++) {
        if (waited_ms == PATIENCE_MS) {
            atomic_store(&watch.gave_up, true);
            break;
        }
        usleep(1000);
    }
    if (watch.pause_ms) {
        while (!atomic_load(&watch.unloading))
            usleep(1000);
        usleep((useconds_t)watch.pause_ms * 1000);
    }
    if (i == watch.stop_at)
        atomic_store(&stop, true);
    if (i == watch.fail_at)
        return err_set(e, HP_EDEVICE, "weight %d is lost", i);
    return plain->weight_load(d, w, use, f32, out, e);
}

static void watched_run(struct stream *s, const struct device_op *op, const struct tensor *inputs,
                        const struct tensor *output, const struct op_batch *batch)
{
    atomic_fetch_add(&watch.ops, 1);
    plain->op_run(s, op, inputs, output, batch);
}

static struct tiny_model *tiny;
static struct device *device;
static uint32_t ids[TOKENS];

static int set_up(void **state)
{
    static const struct device_config c = {.backend = "plain"};
    struct err e = {0};
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(random_next(&seed) % V);
    tiny = tiny_model_make(3);
    int rc = device_open(&c, &device, &e);
    plain = rc < 0 ? NULL : device->backend;
    if (plain) {
        watched = *plain;
        watched.weight_load = watched_load;
        watched.op_run = watched_run;
        device->backend = &watched;
    }
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    device->backend = plain;
    device_close(&device);
    tiny_model_free(&tiny);
    return 0;
}

static struct stage *stage_make(bool later)
{
    struct stage_config c = {.end_layer = TINY_LAYERS,
                             .device = device,
                             .compute = COMPUTE_F32,
                             .kv_tokens = 2 * TOKENS,
                             .max_sequences = 2,
                             .max_batch_tokens = TOKENS,
                             .stop = &stop,
                             .later = later};
    struct stage *s = NULL;
    struct err e = {0};
    if (stage_load_graph(&tiny->graph, &tiny->config, &c, &s, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    return s;
}

static void watch_set(int hold_at, int until_ops, int fail_at)
{
    watch.hold_at = hold_at;
    watch.until_ops = until_ops;
    watch.fail_at = fail_at;
    watch.stop_at = -1;
    watch.pause_ms = 0;
    atomic_store(&stop, false);
    atomic_store(&watch.loads, 0);
    atomic_store(&watch.ops, 0);
    atomic_store(&watch.unloading, false);
    atomic_store(&watch.gave_up, false);
}

struct filler {
    pthread_t thread;
    struct section_run *owed;
    int rc;
    struct err e;
};

static void *filler_thread(void *ctx)
{
    struct filler *f = ctx;
    f->rc = section_run_fill(f->owed, NULL, NULL, &f->e);
    return NULL;
}

static void filler_start(struct filler *f, struct stage *s)
{
    *f = (struct filler){.owed = stage_fill_promise(s)};
    assert_int_equal(pthread_create(&f->thread, NULL, filler_thread, f), 0);
}

static int prompt_run(struct stage *s, uint32_t first, uint32_t n, float *logits, struct err *e)
{
    const struct batch_run run = {
        .sequence = 1, .first_position = first, .n_tokens = n, .n_logits = n};
    return stage_run(s, &run, 1, ids + first, logits, e);
}

/* The last weight is not loaded before operators have run, and loading is no part of making the
 * stage. */
TEST(a_batch_runs_behind_the_loading)
{
    static float want[TOKENS * V], got[TOKENS * V];
    struct filler f;
    struct err e = {0};
    watch_set(TINY_WEIGHTS, 0, -1);
    struct stage *s = stage_make(false);
    assert_int_equal(prompt_run(s, 0, TOKENS, want, &e), 0);
    int loads = atomic_load(&watch.loads);
    stage_unload(&s);
    watch_set(loads - 1, 3, -1);
    s = stage_make(true);
    assert_int_equal(atomic_load(&watch.loads), 0);
    filler_start(&f, s);
    if (prompt_run(s, 0, TOKENS / 2, got, &e) < 0)
        fail_msg("%s", e.text);
    pthread_join(f.thread, NULL);
    assert_int_equal(f.rc, 0);
    assert_false(atomic_load(&watch.gave_up));
    assert_int_equal(prompt_run(s, TOKENS / 2, TOKENS / 2, got + TOKENS / 2 * V, &e), 0);
    assert_memory_equal(got, want, sizeof want);
    stage_unload(&s);
}

TEST(a_weight_that_cannot_be_loaded_fails_the_batches)
{
    static const int at[] = {0, 5, TINY_WEIGHTS - 1};
    static float logits[TOKENS * V];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct filler f;
        watch_set(TINY_WEIGHTS, 0, at[i]);
        struct stage *s = stage_make(true);
        filler_start(&f, s);
        for (int batch = 0; batch < 2; batch++) {
            struct err e = {0};
            assert_int_equal(prompt_run(s, 0, TOKENS, logits, &e), HP_EDEVICE);
            assert_non_null(strstr(e.text, "is lost"));
            assert_int_equal(stage_sequence_length(s, 1), 0);
        }
        pthread_join(f.thread, NULL);
        assert_int_equal(f.rc, HP_EDEVICE);
        stage_unload(&s);
    }
}

TEST(a_stage_that_is_unloaded_while_it_is_filled_ends_the_loading)
{
    struct filler f;
    watch_set(TINY_WEIGHTS, 0, -1);
    watch.pause_ms = 20;
    struct stage *s = stage_make(true);
    filler_start(&f, s);
    atomic_store(&watch.unloading, true);
    stage_unload(&s);
    pthread_join(f.thread, NULL);
    assert_int_equal(f.rc, HP_ECANCELED);
    assert_true(atomic_load(&watch.loads) < TINY_WEIGHTS);
}

/* It could not be unloaded meanwhile: who would do that runs the batch. */
TEST(a_batch_that_waits_for_weights_nobody_wants_ends_with_the_loading)
{
    static float logits[TOKENS * V];
    struct filler f;
    struct err e = {0};
    watch_set(TINY_WEIGHTS, 0, -1);
    watch.stop_at = 3;
    struct stage *s = stage_make(true);
    filler_start(&f, s);
    assert_int_equal(prompt_run(s, 0, TOKENS, logits, &e), HP_ECANCELED);
    pthread_join(f.thread, NULL);
    assert_int_equal(f.rc, HP_ECANCELED);
    assert_int_equal(atomic_load(&watch.loads), watch.stop_at + 1);
    stage_unload(&s);
}

TEST(what_is_missing_becomes_less_as_weights_come)
{
    struct filler f;
    struct err e = {0};
    struct section_need need;
    const struct stage_config c = {.end_layer = TINY_LAYERS,
                                   .device = device,
                                   .compute = COMPUTE_F32,
                                   .kv_tokens = 2 * TOKENS,
                                   .max_sequences = 2,
                                   .max_batch_tokens = TOKENS};
    watch_set(TINY_WEIGHTS, 0, -1);
    assert_int_equal(stage_footprint_of_graph(&tiny->graph, &c, &need, &e), 0);
    struct stage *s = stage_make(true);
    assert_true(need.weight_bytes > 0);
    assert_int_equal(stage_missing_bytes(s), need.weight_bytes);
    filler_start(&f, s);
    pthread_join(f.thread, NULL);
    assert_int_equal(stage_missing_bytes(s), 0);
    stage_unload(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_runs_behind_the_loading),
        cmocka_unit_test(a_weight_that_cannot_be_loaded_fails_the_batches),
        cmocka_unit_test(a_stage_that_is_unloaded_while_it_is_filled_ends_the_loading),
        cmocka_unit_test(a_batch_that_waits_for_weights_nobody_wants_ends_with_the_loading),
        cmocka_unit_test(what_is_missing_becomes_less_as_weights_come),
    };
    return cmocka_run_group_tests_name("stage_fill", tests, set_up, tear_down);
}
