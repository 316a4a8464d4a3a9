/* The executor of an agent whose stages serve while their weights come: a batch that waits for them
 * holds its thread up, and whoever wants the stage to go is heard all the same. */
#include <semaphore.h>
#include <stdlib.h>

#include "agent/executor_int.h"
#include "common/env.h"
#include "common/log.h"
#include "tests/test.h"
#include "tests/unit/semaphores.h"

enum { LAYERS = 18, SLOT = 1, LIMIT_S = 60, HELD = 3 };

/* The plain backend, whose loads are held up from the HELD-th on until somebody was told. */
static const struct backend *plain;
static struct backend watched;
static atomic_int loads;
static sem_t held, go_on;

static int watched_load(struct device *d, const struct weight *w, enum weight_use use, bool f32,
                        struct device_weight **out, struct err *e)
{
    if (atomic_fetch_add(&loads, 1) == HELD) {
        sem_post(&held);
        sem_wait(&go_on);
    }
    return plain->weight_load(d, w, use, f32, out, e);
}

struct fill_fixture {
    struct data_endpoint *data;
    struct executor *x;
    sem_t loaded, opened, ran;
    int ran_status;
};

static void frame_ignore(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    (void)h;
    data_buffer_release(((struct fill_fixture *)ctx)->data, payload);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct fill_fixture *f = ctx;
    if (r->kind == EXECUTOR_LOADED && r->status != HP_PENDING) {
        sem_post(&f->loaded);
    } else if (r->kind == EXECUTOR_OPENED) {
        sem_post(&f->opened);
    } else if (r->kind == EXECUTOR_RAN) {
        f->ran_status = r->status;
        sem_post(&f->ran);
    }
}

static void fixture_init(struct fill_fixture *f)
{
    struct data_config d = {.callbacks = {f, frame_ignore, NULL}};
    log_set_level(LOG_ERROR);
    sem_t *all[] = {&f->loaded, &f->opened, &f->ran, &held, &go_on};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    assert_int_equal(data_open_inproc(&d, &f->data, NULL), 0);
    struct executor_config c = {.device = {.backend = "cpu", .n_threads = 1},
                                .data = f->data,
                                .serves_early = true,
                                .report = told,
                                .ctx = f};
    assert_int_equal(executor_create(&c, &f->x, NULL), 0);
    plain = f->x->device->backend;
    watched = *plain;
    watched.weight_load = watched_load;
    f->x->device->backend = &watched;
    atomic_store(&loads, 0);
}

TEST(a_stage_that_is_unloaded_while_a_batch_waits_for_weights_ends_loading)
{
    struct fill_fixture f = {0};
    uint32_t ids[] = {3, 10, 17};
    struct batch_run run = {.sequence = 1, .n_tokens = 3, .n_logits = 1};
    struct batch batch = {.runs = &run, .n_runs = 1, .n_tokens = 3, .n_logits = 1, .ids = ids};
    fixture_init(&f);
    executor_load(f.x, &(struct executor_load){.slot = SLOT,
                                               .ticket = SLOT,
                                               .path = "examples/demo-model/demo-q8_0.gguf",
                                               .end_layer = LAYERS,
                                               .f32 = true,
                                               .kv_tokens = 512,
                                               .max_sequences = 4,
                                               .max_batch_tokens = 64,
                                               .n_stages = 1});
    semaphore_wait(&f.loaded, LIMIT_S);
    executor_sequence_open(f.x, &(struct executor_opening){
                                    .slot = SLOT, .ticket = 1, .sequence = 1, .kv_tokens = 100});
    semaphore_wait(&f.opened, LIMIT_S);
    executor_run(f.x, &(struct executor_run){.slot = SLOT, .ticket = 2, .batch = &batch});
    semaphore_wait(&held, LIMIT_S);
    executor_unload(f.x, SLOT);
    sem_post(&go_on);
    semaphore_wait(&f.ran, LIMIT_S);
    assert_int_equal(f.ran_status, HP_ECANCELED);
    assert_int_equal(atomic_load(&loads), HELD + 1);
    executor_destroy(&f.x);
    data_close(&f.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_that_is_unloaded_while_a_batch_waits_for_weights_ends_loading),
    };
    return cmocka_run_group_tests_name("executor_fill", tests, NULL, NULL);
}
