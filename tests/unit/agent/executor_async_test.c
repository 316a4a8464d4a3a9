/* The executor on a device whose streams have a thread of their own: two batches are under way, the
 * older one is sampled from, encoded and reported while the younger computes, and nothing that
 * comes between (failures, closes, unloads, the end) finds them in disorder. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/scores.h"
#include "agent/executor.h"
#include "common/env.h"
#include "common/log.h"
#include "tests/test.h"
#include "tests/unit/agent/backend/async_backend.h"
#include "tests/unit/semaphores.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";
enum { LAYERS = 18, SLOT = 1, LIMIT_S = 60, PROMPT = 24, SLICES = 3, STEPS = 12, REPORTS = 64 };

struct told_run {
    uint64_t ticket;
    int status;
    uint32_t picked;
    char text[200];
};

struct async_fixture {
    struct data_endpoint *data;
    struct executor *x;
    sem_t loaded, opened, ran, profiled;
    int load_status;
    struct told_run runs[REPORTS];
    atomic_uint n_runs;
    float *logits; /* of the last batch that asked for all */
    size_t n_logits;
    struct score *scores; /* of the last batch */
    size_t n_scores;
    uint32_t vocabulary;
    uint32_t ids[PROMPT];
    struct batch_run run[REPORTS];
    struct batch batch[REPORTS];
    unsigned n_ordered;
};

static void frame_ignore(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    (void)h;
    data_buffer_release(((struct async_fixture *)ctx)->data, payload);
}

static void ran_told(struct async_fixture *f, const struct executor_report *r)
{
    struct told_run *t = &f->runs[atomic_load(&f->n_runs)];
    *t = (struct told_run){.ticket = r->ticket, .status = r->status};
    if (r->status < 0)
        snprintf(t->text, sizeof t->text, "%s", r->error->text);
    else if (r->picked)
        t->picked = r->picked[0];
    if (r->status == 0 && r->logits && f->logits)
        memcpy(f->logits, r->logits, f->n_logits * sizeof *f->logits);
    if (r->status == 0 && r->scores && f->scores)
        memcpy(f->scores, r->scores, f->n_scores * sizeof *f->scores);
    atomic_fetch_add(&f->n_runs, 1);
    sem_post(&f->ran);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct async_fixture *f = ctx;
    if (r->kind == EXECUTOR_LOADED && r->status != HP_PENDING) {
        f->load_status = r->status;
        f->vocabulary = r->vocabulary;
        sem_post(&f->loaded);
    } else if (r->kind == EXECUTOR_OPENED) {
        sem_post(&f->opened);
    } else if (r->kind == EXECUTOR_RAN) {
        ran_told(f, r);
    } else if (r->kind == EXECUTOR_PROFILED) {
        sem_post(&f->profiled);
    }
}

static void load(struct async_fixture *f, bool f32)
{
    executor_load(f->x, &(struct executor_load){.slot = SLOT,
                                                .ticket = SLOT,
                                                .path = demo_model,
                                                .first_layer = 0,
                                                .end_layer = LAYERS,
                                                .f32 = f32,
                                                .kv_tokens = 512,
                                                .max_sequences = 4,
                                                .max_batch_tokens = 64,
                                                .n_stages = 1});
    semaphore_wait(&f->loaded, LIMIT_S);
    assert_int_equal(f->load_status, 0);
}

static struct async_fixture *fixture_make(bool async)
{
    struct async_fixture *f = calloc(1, sizeof *f);
    struct data_config d = {.callbacks = {f, frame_ignore, NULL}};
    struct device_config cpu = {.backend = "cpu", .n_threads = 1};
    struct executor_config c = {
        .device = async ? async_device_of(&cpu) : cpu, .report = told, .ctx = f};
    assert_non_null(f);
    log_set_level(LOG_ERROR);
    sem_t *all[] = {&f->loaded, &f->opened, &f->ran, &f->profiled};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    for (uint32_t i = 0; i < PROMPT; i++)
        f->ids[i] = 3 + 7 * i % 200;
    assert_int_equal(data_open_inproc(&d, &f->data, NULL), 0);
    c.data = f->data;
    assert_int_equal(executor_create(&c, &f->x, NULL), 0);
    load(f, true);
    return f;
}

static void fixture_free(struct async_fixture *f)
{
    async_hold_no_more();
    executor_destroy(&f->x);
    data_close(&f->data);
    free(f->logits);
    free(f);
}

static int setup(void **state)
{
    *state = fixture_make(true);
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

static void open_sequence(struct async_fixture *f, uint64_t id, struct sampler *sampler)
{
    executor_sequence_open(
        f->x, &(struct executor_opening){
                  .slot = SLOT, .ticket = 9, .sequence = id, .kv_tokens = 100, .sampler = sampler});
    semaphore_wait(&f->opened, LIMIT_S);
}

/* Tokens [first, first + n) of the prompt, sampled from where one row of logits is asked for; the
 * ticket is the number of the order, from 1 on. */
static void order_slice(struct async_fixture *f, uint64_t sequence, uint32_t first, uint32_t n,
                        uint32_t n_logits)
{
    unsigned i = f->n_ordered++;
    f->run[i] = (struct batch_run){.sequence = sequence,
                                   .first_position = first,
                                   .n_tokens = n,
                                   .n_logits = n_logits,
                                   .sample = n_logits == 1};
    f->batch[i] = (struct batch){.runs = &f->run[i],
                                 .n_runs = 1,
                                 .n_tokens = n,
                                 .n_logits = n_logits,
                                 .ids = f->ids + first};
    executor_run(f->x,
                 &(struct executor_run){.slot = SLOT, .ticket = i + 1, .batch = &f->batch[i]});
}

static void runs_expect(const struct async_fixture *f, unsigned n)
{
    assert_int_equal(atomic_load(&f->n_runs), n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(f->runs[i].ticket, i + 1);
}

static void the_next_batch_is_on_the_device_before_the_one_before_it_is_done(void **state)
{
    struct async_fixture *f = *state;
    open_sequence(f, 5, NULL);
    async_hold();
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 8, 8, 0);
    assert_int_equal(async_wait_recorded(2), 0);
    runs_expect(f, 0);
    async_let_go(1);
    semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, 1); /* the younger one is still there */
    order_slice(f, 5, 16, 8, 0);
    async_wait_recorded(3);
    runs_expect(f, 1);
    async_let_go(2);
    semaphore_wait(&f->ran, LIMIT_S);
    semaphore_wait(&f->ran, LIMIT_S); /* nothing else had to come */
    runs_expect(f, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(f->runs[i].status, 0);
}

/* All logits of the last slice, when the slices before it were under way. */
static void prompt_run(struct async_fixture *f, float *out)
{
    f->n_logits = (size_t)(PROMPT / SLICES) * f->vocabulary;
    f->logits = calloc(f->n_logits, sizeof *f->logits);
    assert_non_null(f->logits);
    open_sequence(f, 5, NULL);
    for (uint32_t i = 0; i < SLICES; i++)
        order_slice(f, 5, i * PROMPT / SLICES, PROMPT / SLICES,
                    i + 1 == SLICES ? PROMPT / SLICES : 0);
    for (uint32_t i = 0; i < SLICES; i++)
        semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, SLICES);
    memcpy(out, f->logits, f->n_logits * sizeof *out);
}

static void logits_are_those_of_one_batch_after_the_other(void **state)
{
    struct async_fixture *f = *state, *inline_one = fixture_make(false);
    size_t n = (size_t)(PROMPT / SLICES) * f->vocabulary;
    float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
    prompt_run(inline_one, want);
    prompt_run(f, got);
    assert_memory_equal(got, want, n * sizeof *want);
    free(want);
    free(got);
    fixture_free(inline_one);
}

/* Of a prompt's tokens, and of the one that is sampled behind it: what the rows of logits say,
 * which nobody keeps. Two runs: the scores of the second follow those of the first. */
static void scores_are_those_of_the_logits(void **state)
{
    enum { PROMPT_WIDTH = 3, SAID_WIDTH = 2, SCORED = PROMPT - 1 };
    struct async_fixture *f = *state;
    struct sampler *sampler;
    struct score got[2 * (SCORED * PROMPT_WIDTH + SAID_WIDTH)], want[PROMPT_WIDTH];
    uint32_t targets[2 * SCORED], ids[2 * PROMPT];
    f->n_logits = (size_t)PROMPT * f->vocabulary;
    f->logits = calloc(f->n_logits, sizeof *f->logits);
    open_sequence(f, 5, NULL);
    order_slice(f, 5, 0, PROMPT, PROMPT);
    semaphore_wait(&f->ran, LIMIT_S);
    struct batch_run runs[2];
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(
            sampler_create(&sampling_greedy, (int)f->vocabulary, f->ids, PROMPT, &sampler, NULL),
            0);
        open_sequence(f, 6 + i, sampler);
        runs[i] = (struct batch_run){.sequence = 6 + i,
                                     .n_tokens = PROMPT,
                                     .n_logits = 1,
                                     .sample = true,
                                     .n_scored = SCORED,
                                     .scored_width = PROMPT_WIDTH,
                                     .said_width = SAID_WIDTH};
        memcpy(targets + i * SCORED, f->ids + 1, SCORED * sizeof *targets);
        memcpy(ids + i * PROMPT, f->ids, PROMPT * sizeof *ids);
    }
    f->batch[1] = (struct batch){.runs = runs,
                                 .n_runs = 2,
                                 .n_tokens = 2 * PROMPT,
                                 .n_logits = 2,
                                 .ids = ids,
                                 .targets = targets};
    f->scores = got;
    f->n_scores = sizeof got / sizeof *got;
    executor_run(f->x, &(struct executor_run){.slot = SLOT, .ticket = 2, .batch = &f->batch[1]});
    semaphore_wait(&f->ran, LIMIT_S);
    assert_int_equal(f->runs[1].status, 0);
    const struct score *at = got;
    for (int i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < SCORED; k++, at += PROMPT_WIDTH) {
            scores_write(f->logits + (size_t)k * f->vocabulary, f->vocabulary, f->ids[k + 1],
                         PROMPT_WIDTH, want);
            assert_memory_equal(at, want, sizeof want);
        }
        scores_write(f->logits + (size_t)SCORED * f->vocabulary, f->vocabulary, f->runs[1].picked,
                     SAID_WIDTH, want);
        assert_memory_equal(at, want, SAID_WIDTH * sizeof *want);
        assert_int_equal(at[0].id, 1); /* greedy */
        at += SAID_WIDTH;
    }
    f->scores = NULL;
}

/* One greedy stream, step by step, beside a prompt in slices. */
static void stream_run(struct async_fixture *f, uint32_t out[STEPS])
{
    struct sampler *sampler;
    uint32_t next = 0;
    assert_int_equal(
        sampler_create(&sampling_greedy, (int)f->vocabulary, f->ids, PROMPT, &sampler, NULL), 0);
    open_sequence(f, 6, sampler);
    open_sequence(f, 7, NULL);
    for (uint32_t i = 0; i < STEPS; i++) {
        unsigned at = f->n_ordered++;
        f->run[at] = (struct batch_run){.sequence = 6,
                                        .first_position = i ? PROMPT + i - 1 : 0,
                                        .n_tokens = i ? 1 : PROMPT,
                                        .n_logits = 1,
                                        .sample = true};
        f->batch[at] = (struct batch){.runs = &f->run[at],
                                      .n_runs = 1,
                                      .n_tokens = i ? 1 : PROMPT,
                                      .n_logits = 1,
                                      .ids = i ? &next : f->ids};
        executor_run(
            f->x, &(struct executor_run){.slot = SLOT, .ticket = at + 1, .batch = &f->batch[at]});
        order_slice(f, 7, i, 1, 0);
        semaphore_wait(&f->ran, LIMIT_S); /* the stream's: the other one goes on */
        next = out[i] = f->runs[at].picked;
        assert_int_equal(f->runs[at].status, 0);
        semaphore_wait(&f->ran, LIMIT_S);
    }
}

static void tokens_are_those_of_one_batch_after_the_other(void **state)
{
    struct async_fixture *f = *state, *inline_one = fixture_make(false);
    uint32_t want[STEPS], got[STEPS];
    stream_run(inline_one, want);
    stream_run(f, got);
    assert_memory_equal(got, want, sizeof want);
    fixture_free(inline_one);
}

static void a_batch_that_fails_takes_the_one_after_it_along_in_their_order(void **state)
{
    struct async_fixture *f = *state;
    open_sequence(f, 5, NULL);
    async_hold();
    async_let_fail(1);
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 8, 8, 0);
    async_wait_recorded(2);
    async_let_go(2);
    semaphore_wait(&f->ran, LIMIT_S);
    semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f->runs[i].status, HP_EDEVICE);
        assert_non_null(strstr(f->runs[i].text, "went away"));
    }
    async_hold_no_more();
    order_slice(f, 5, 0, 8, 0); /* as if neither had been */
    semaphore_wait(&f->ran, LIMIT_S);
    assert_int_equal(f->runs[2].status, 0);
}

static void a_batch_that_cannot_be_submitted_is_told_of_after_those_under_way(void **state)
{
    struct async_fixture *f = *state;
    open_sequence(f, 5, NULL);
    async_hold();
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 3, 8, 0); /* does not follow */
    async_wait_recorded(1);
    runs_expect(f, 0);
    async_let_go(1);
    semaphore_wait(&f->ran, LIMIT_S);
    semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, 2);
    assert_int_equal(f->runs[0].status, 0);
    assert_int_equal(f->runs[1].status, HP_EINVAL);
}

static void a_sequence_is_closed_after_its_batches_that_are_under_way(void **state)
{
    struct async_fixture *f = *state;
    struct sampler *sampler;
    assert_int_equal(
        sampler_create(&sampling_greedy, (int)f->vocabulary, f->ids, PROMPT, &sampler, NULL), 0);
    open_sequence(f, 5, sampler);
    async_hold();
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 8, 8, 1); /* whose sampler must still be there */
    async_wait_recorded(2);
    executor_sequence_close(f->x, SLOT, 5, 0);
    async_let_go(2);
    semaphore_wait(&f->ran, LIMIT_S);
    semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, 2);
    assert_int_equal(f->runs[0].status, 0);
    assert_int_equal(f->runs[1].status, 0);
    async_hold_no_more();
    open_sequence(f, 5, NULL);
    order_slice(f, 5, 0, 8, 0);
    semaphore_wait(&f->ran, LIMIT_S);
    assert_int_equal(f->runs[2].status, 0);
}

static void a_slot_is_unloaded_after_its_batches_that_are_under_way(void **state)
{
    struct async_fixture *f = *state;
    open_sequence(f, 5, NULL);
    async_hold();
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 8, 8, 0);
    async_wait_recorded(2);
    executor_unload(f->x, SLOT);
    order_slice(f, 5, 16, 8, 0);
    async_let_go(2);
    for (int i = 0; i < 3; i++)
        semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, 3);
    assert_int_equal(f->runs[1].status, 0);
    assert_int_equal(f->runs[2].status, HP_ENOENT);
    async_hold_no_more();
    load(f, false);
}

static void an_executor_ends_after_the_batches_that_are_under_way(void **state)
{
    struct async_fixture *f = *state;
    open_sequence(f, 5, NULL);
    async_hold();
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 8, 8, 0);
    async_wait_recorded(2);
    async_let_go(2);
    executor_destroy(&f->x);
    assert_null(f->x);
    runs_expect(f, 2);
}

static void a_measurement_begins_after_the_batches_that_are_under_way(void **state)
{
    struct async_fixture *f = *state;
    open_sequence(f, 5, NULL);
    async_hold();
    order_slice(f, 5, 0, 8, 0);
    order_slice(f, 5, 8, 8, 0);
    async_wait_recorded(2);
    executor_profile(f->x, &(struct executor_profile){
                               .ticket = 3, .budget_ms = 50, .path = demo_model, .cache = ""});
    async_hold_no_more();
    semaphore_wait(&f->ran, LIMIT_S);
    semaphore_wait(&f->ran, LIMIT_S);
    order_slice(f, 5, 16, 8, 0); /* and goes on between two points of it */
    semaphore_wait(&f->ran, LIMIT_S);
    runs_expect(f, 3);
    assert_int_equal(f->runs[2].status, 0);
    semaphore_wait(&f->profiled, LIMIT_S);
}

int main(void)
{
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(the_next_batch_is_on_the_device_before_the_one_before_it_is_done),
        CLAIM(logits_are_those_of_one_batch_after_the_other),
        CLAIM(scores_are_those_of_the_logits),
        CLAIM(tokens_are_those_of_one_batch_after_the_other),
        CLAIM(a_batch_that_fails_takes_the_one_after_it_along_in_their_order),
        CLAIM(a_batch_that_cannot_be_submitted_is_told_of_after_those_under_way),
        CLAIM(a_sequence_is_closed_after_its_batches_that_are_under_way),
        CLAIM(a_slot_is_unloaded_after_its_batches_that_are_under_way),
        CLAIM(an_executor_ends_after_the_batches_that_are_under_way),
        CLAIM(a_measurement_begins_after_the_batches_that_are_under_way),
    };
    return cmocka_run_group_tests_name("executor_async", tests, NULL, NULL);
}
