/* Decoding in a steady state allocates nothing in the engine: queue, stage, KV cache, sampler. Two
 * stages of the tiny model in turn, four sequences that are sampled from in all ways. */
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "agent/engine/queue.h"
#include "agent/engine/sampler.h"
#include "agent/engine/stage_int.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/tiny_model.h"
#include "tests/unit/allocations.h"

enum { SEQUENCES = 4, PROMPT = 5, WARM = 60, STEPS = 300, TOKENS = PROMPT + WARM + STEPS + 8 };

struct decode_line {
    struct tiny_model *model;
    struct device *device;
    struct stage *stages[2];
    struct queue *queue;
    struct batch batch;
    struct sampler *samplers[SEQUENCES];
    uint64_t picked;
};

static const struct sampling_params kinds[SEQUENCES] = {
    {.top_p = 1, .repetition_penalty = 1},
    {.temperature = 1, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 1},
    {.temperature = 1, .top_p = 1, .top_k = 7, .repetition_penalty = 1, .seed = 2},
    {.temperature = 0.8, .top_p = 1, .min_p = 0.05, .repetition_penalty = 1, .seed = 3},
};
static const uint32_t prompt[PROMPT] = {3, 1, 4, 1, 5};

static void stages_load(struct decode_line *l)
{
    struct device_config d = {.n_threads = 2};
    struct err e = {0};
    assert_int_equal(device_open(&d, &l->device, &e), 0);
    l->model = tiny_model_make(3);
    for (int i = 0; i < 2; i++) {
        struct stage_config c = {.first_layer = i * TINY_LAYERS / 2,
                                 .end_layer = (i + 1) * TINY_LAYERS / 2,
                                 .device = l->device,
                                 .kv_tokens = SEQUENCES * TOKENS,
                                 .max_sequences = SEQUENCES,
                                 .max_batch_tokens = 64};
        if (stage_load_graph(&l->model->graph, &l->model->config, &c, &l->stages[i], &e) < 0)
            fail_msg("%s", e.text);
    }
}

static void sequence_begin(struct decode_line *l, uint64_t id)
{
    struct queue_sequence s = {.id = id, .owner = l, .prompt = prompt, .n_prompt = PROMPT};
    for (int i = 0; i < 2; i++)
        assert_int_equal(stage_sequence_open(l->stages[i], id, TOKENS, NULL), 0);
    assert_int_equal(
        sampler_create(&kinds[id - 1], TINY_VOCABULARY, prompt, PROMPT, &l->samplers[id - 1], NULL),
        0);
    assert_int_equal(queue_sequence_open(l->queue, &s, NULL), 0);
    queue_sequence_ready(l->queue, id);
}

static void line_open(struct decode_line *l)
{
    struct queue_config c = {.first = true,
                             .n_stages = 2,
                             .max_batch_tokens = 64,
                             .max_sequences = SEQUENCES,
                             .hold_limit_ns = UINT64_C(10000000000),
                             .flight_limit_ns = UINT64_C(10000000000),
                             .flight_linger_ns = UINT64_C(2000000000)};
    memset(l, 0, sizeof *l);
    stages_load(l);
    assert_int_equal(queue_create(&c, &l->queue, NULL), 0);
    for (uint64_t id = 1; id <= SEQUENCES; id++)
        sequence_begin(l, id);
}

static void line_close(struct decode_line *l)
{
    for (uint64_t id = 1; id <= SEQUENCES; id++) {
        queue_sequence_close(l->queue, id, 0);
        sampler_destroy(&l->samplers[id - 1]);
    }
    queue_destroy(&l->queue, NULL, NULL);
    batch_free(&l->batch);
    for (int i = 0; i < 2; i++)
        stage_unload(&l->stages[i]);
    device_close(&l->device);
    tiny_model_free(&l->model);
}

static void batch_run(struct decode_line *l)
{
    static float between[64 * TINY_WIDTH], logits[SEQUENCES * TINY_VOCABULARY];
    struct batch *b = &l->batch;
    int n = 0;
    assert_int_equal(stage_run(l->stages[0], b->runs, (int)b->n_runs, b->ids, between, NULL), 0);
    assert_int_equal(stage_run(l->stages[1], b->runs, (int)b->n_runs, between, logits, NULL), 0);
    queue_done(l->queue, b, 0, 0);
    for (uint32_t i = 0; i < b->n_runs; i++) {
        if (!b->runs[i].n_logits)
            continue;
        uint32_t token = sampler_pick(l->samplers[b->runs[i].sequence - 1],
                                      logits + (size_t)n++ * TINY_VOCABULARY);
        struct frame_token next = {b->runs[i].sequence, token, FRAME_TOKEN_NEXT, 0};
        assert_true(queue_token(l->queue, b->number, &next));
        l->picked++;
    }
    queue_returned(l->queue, b->number, 0);
}

static void decode_until(struct decode_line *l, uint64_t picked)
{
    uint64_t dropped = 0;
    while (l->picked < picked) {
        assert_true(queue_next(l->queue, &l->batch, &dropped));
        batch_run(l);
    }
}

TEST(decoding_allocates_nothing_in_the_engine)
{
    static struct decode_line l;
    line_open(&l);
    decode_until(&l, WARM * SEQUENCES);
    allocations_begin();
    decode_until(&l, (WARM + STEPS) * SEQUENCES);
    allocations_end_at_most(0, "300 tokens of four sequences");
    line_close(&l);
}

/* That the claim above can fail. */
TEST(what_is_allocated_is_counted)
{
    struct sampler *s = NULL;
    allocations_begin();
    assert_int_equal(sampler_create(&sampling_greedy, 10, NULL, 0, &s, NULL), 0);
    sampler_destroy(&s);
    assert_true(allocations_end() >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_allocated_is_counted),
        cmocka_unit_test(decoding_allocates_nothing_in_the_engine),
    };
    return cmocka_run_group_tests_name("engine_allocations", tests, NULL, NULL);
}
