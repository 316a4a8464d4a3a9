#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/forward.h"
#include "agent/engine/section_plan.h"
#include "agent/engine/stage_int.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/tiny_model.h"

enum { TOKENS = 150, V = TINY_VOCABULARY };

static struct tiny_model *tiny;
static struct device *device;
static uint32_t ids[TOKENS];

static int set_up(void **state)
{
    (void)state;
    struct device_config c = {.n_threads = 2};
    struct err e = {0};
    uint64_t seed = 7;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(random_next(&seed) % V);
    tiny = tiny_model_make(3);
    return device_open(&c, &device, &e);
}

static int tear_down(void **state)
{
    (void)state;
    device_close(&device);
    tiny_model_free(&tiny);
    return 0;
}

static struct stage_config config_of(int first, int end)
{
    return (struct stage_config){.first_layer = first,
                                 .end_layer = end,
                                 .device = device,
                                 .compute = COMPUTE_F32,
                                 .kv_tokens = 4 * TOKENS,
                                 .max_sequences = 4,
                                 .max_batch_tokens = 2 * TOKENS};
}

static struct stage *load(struct stage_config c)
{
    struct stage *s = NULL;
    struct err e = {0};
    if (stage_load_graph(&tiny->graph, &tiny->config, &c, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

static void run(struct stage *s, const struct batch_run *runs, int n, const void *input,
                float *output)
{
    struct err e = {0};
    if (stage_run(s, runs, n, input, output, &e) < 0)
        fail_msg("%s", e.text);
}

/* Logits of all positions of the prompt over `n_stages` stages in slices, as sequence `id` of fresh
 * stages. */
static void logits_of(int n_stages, uint32_t slice, enum stage_compute compute,
                      float out[TOKENS * V])
{
    struct stage *stages[TINY_LAYERS];
    float between[2][TOKENS * TINY_WIDTH];
    struct err e = {0};
    for (int i = 0; i < n_stages; i++) {
        struct stage_config c =
            config_of(TINY_LAYERS * i / n_stages, TINY_LAYERS * (i + 1) / n_stages);
        c.compute = compute;
        stages[i] = load(c);
        assert_int_equal(stage_sequence_open(stages[i], 9, TOKENS, &e), 0);
        assert_int_equal(stage_is_first(stages[i]), i == 0);
        assert_int_equal(stage_is_last(stages[i]), i == n_stages - 1);
    }
    for (uint32_t at = 0; at < TOKENS; at += slice) {
        uint32_t n = TOKENS - at < slice ? TOKENS - at : slice;
        const void *input = ids + at;
        for (int i = 0; i < n_stages; i++) {
            struct batch_run r = {
                .sequence = 9, .first_position = at, .n_tokens = n, .n_logits = n};
            float *output = i == n_stages - 1 ? out + at * V : between[i % 2];
            run(stages[i], &r, 1, input, output);
            input = output;
        }
    }
    for (int i = 0; i < n_stages; i++)
        stage_unload(&stages[i]);
}

TEST(float32_logits_are_the_same_over_any_stages_and_slices)
{
    static const struct {
        int stages;
        uint32_t slice;
    } cases[] = {{1, 1}, {1, 7},  {1, 64},          {2, TOKENS},
                 {3, 7}, {5, 64}, {TINY_LAYERS, 1}, {TINY_LAYERS, TOKENS}};
    static float want[TOKENS * V], got[TOKENS * V];
    logits_of(1, TOKENS, COMPUTE_F32, want);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        logits_of(cases[i].stages, cases[i].slice, COMPUTE_F32, got);
        if (memcmp(got, want, sizeof want) != 0)
            fail_msg("%d stages, slices of %u: other logits", cases[i].stages, cases[i].slice);
    }
}

/* Rows between two stages that lie in memory of the device's own, three runs of which the second is
 * dropped on its way, give what they give by the host. */
TEST(rows_in_the_devices_memory_give_what_rows_of_the_host_give)
{
    enum { N = 30, LEFT = 20, SKIPPED = 7, ROWS = N + SKIPPED };
    static float want[2 * V], got[2 * V], between[N * TINY_WIDTH];
    static const enum dtype borders[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    const struct batch_run all[] =
        {{.sequence = 1, .n_tokens = LEFT, .n_logits = 1},
         {.sequence = 2, .n_tokens = SKIPPED, .row = LEFT},
         {.sequence = 3, .n_tokens = N - LEFT, .n_logits = 1, .row = LEFT + SKIPPED}},
                           left[] = {all[0], all[2]};
    const uint32_t first_rows[] = {0, LEFT + SKIPPED};
    uint32_t told[ROWS];
    struct err e = {0};
    memcpy(told, ids, LEFT * sizeof *ids);
    memcpy(told + LEFT, ids + LEFT, (N - LEFT) * sizeof *ids);
    for (size_t k = 0; k < sizeof borders / sizeof *borders; k++) {
        struct stage *stages[2][2];
        struct memory memory;
        for (int i = 0; i < 4; i++) {
            struct stage_config c = i % 2 ? config_of(2, TINY_LAYERS) : config_of(0, 2);
            c.border = borders[k];
            stages[i / 2][i % 2] = load(c);
            for (uint64_t q = 1; q <= 3; q++)
                assert_int_equal(stage_sequence_open(stages[i / 2][i % 2], q, TOKENS, &e), 0);
        }
        run(stages[0][0], left, 2, told, between);
        run(stages[0][1], left, 2, between, want);

        memmove(told + LEFT + SKIPPED, told + LEFT, (N - LEFT) * sizeof *ids);
        assert_int_equal(
            device->backend->memory_alloc(device, ROWS * TINY_WIDTH * sizeof(float), &memory, &e),
            0);
        const struct forward_device_rows to = {.memory = memory, .rows = ROWS},
                                         from = {memory, ROWS, first_rows};
        assert_int_equal(stage_submit_with(stages[1][0], all, 3, told, NULL,
                                           &(struct stage_ways){.to = &to}, &e),
                         0);
        assert_int_equal(stage_complete(stages[1][0], &e), 0);
        assert_int_equal(stage_submit_with(stages[1][1], left, 2, NULL, got,
                                           &(struct stage_ways){.from = &from}, &e),
                         0);
        assert_int_equal(stage_complete(stages[1][1], &e), 0);
        memmove(told + LEFT, told + LEFT + SKIPPED, (N - LEFT) * sizeof *ids);
        if (memcmp(got, want, sizeof want) != 0)
            fail_msg("%s: other logits", dtype_info(borders[k])->name);
        device->backend->memory_release(device, &memory);
        for (int i = 0; i < 4; i++)
            stage_unload(&stages[i / 2][i % 2]);
    }
}

TEST(auto_is_near_float32)
{
    static float want[TOKENS * V], got[TOKENS * V];
    float greatest = 0;
    logits_of(1, TOKENS, COMPUTE_F32, want);
    logits_of(2, 16, COMPUTE_AUTO, got);
    for (size_t i = 0; i < TOKENS * V; i++)
        greatest = fabsf(want[i]) > greatest ? fabsf(want[i]) : greatest;
    for (size_t i = 0; i < TOKENS * V; i++)
        assert_true(fabsf(got[i] - want[i]) < 0.01f * greatest);
}

/* Three sequences, prefill and decode mixed in one batch, give what each gives alone; only the
 * logits that were asked for come back. */
TEST(sequences_in_one_batch_do_not_touch_each_other)
{
    static float all[TOKENS * V], out[10 * V];
    struct stage *s = load(config_of(0, TINY_LAYERS));
    struct err e = {0};
    logits_of(1, TOKENS, COMPUTE_F32, all);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(stage_sequence_open(s, id, TOKENS, &e), 0);
    struct batch_run one = {.sequence = 2, .n_tokens = 70};
    run(s, &one, 1, ids, NULL);
    uint32_t batch[20 + 1 + 30];
    memcpy(batch, ids, 20 * sizeof *ids);
    memcpy(batch + 20, ids + 70, sizeof *ids);
    memcpy(batch + 21, ids, 30 * sizeof *ids);
    const struct batch_run runs[] = {{1, 0, 20, 1, 0, false, 0, 0, 0, 0},
                                     {2, 70, 1, 1, 0, false, 0, 0, 0, 0},
                                     {3, 0, 30, 3, 0, false, 0, 0, 0, 0}};
    run(s, runs, 3, batch, out);
    static const uint32_t positions[] = {19, 70, 27, 28, 29};
    for (size_t i = 0; i < 5; i++)
        assert_memory_equal(out + i * V, all + positions[i] * V, V * sizeof *out);
    assert_int_equal(stage_sequence_length(s, 2), 71);
    stage_unload(&s);
    assert_null(s);
}

/* All that `to` needs of a sequence of `length` tokens comes from `from`, in small pieces. */
static void kv_move(struct stage *from, uint64_t id, struct stage *to, uint64_t new_id,
                    uint32_t length)
{
    struct err e = {0};
    struct kv_shape shape = stage_kv_shape(to);
    struct kv_cursor at = {0};
    struct kv_range r;
    assert_true(stage_kv_awaited(to, new_id) > 0);
    while (kv_shape_next(&shape, length, 20000, &at, &r)) {
        void *data = calloc(1, kv_shape_bytes(&shape, &r));
        if (stage_kv_export(from, id, &r, data, &e) < 0 ||
            stage_kv_import(to, new_id, &r, data, &e) < 0)
            fail_msg("%s", e.text);
        free(data);
    }
    assert_int_equal(stage_kv_awaited(to, new_id), 0);
}

/* Attention of every other block has a window: the model's layers are of two kinds. */
static void windows_set(uint32_t window)
{
    struct graph_op *ops = (struct graph_op *)(uintptr_t)tiny->graph.ops;
    for (int i = 0; i < tiny->graph.n_ops; i++)
        if (ops[i].kind == OP_ATTENTION && ops[i].u.attention.block % 2 == 0)
            ops[i].u.attention.window = window;
}

TEST(a_sequence_that_moves_with_its_kv_goes_on_as_before)
{
    static float all[TOKENS * V], out[50 * V];
    static const uint32_t windows[] = {0, 30};
    for (size_t w = 0; w < 2; w++) {
        windows_set(windows[w]);
        struct stage *from = load(config_of(0, TINY_LAYERS)), *to = load(config_of(0, TINY_LAYERS));
        struct err e = {0};
        assert_int_equal(stage_kv_shape(from).n_groups, windows[w] ? 2 : 1);
        logits_of(1, TOKENS, COMPUTE_F32, all);
        assert_int_equal(stage_sequence_open(from, 1, TOKENS, &e), 0);
        assert_int_equal(stage_sequence_open_at(to, 5, TOKENS, 100, 0, &e), 0);
        struct batch_run first = {.sequence = 1, .n_tokens = 100};
        run(from, &first, 1, ids, NULL);
        kv_move(from, 1, to, 5, 100);
        assert_int_equal(stage_sequence_length(to, 5), 100);
        struct batch_run next = {
            .sequence = 5, .first_position = 100, .n_tokens = 50, .n_logits = 50};
        run(to, &next, 1, ids + 100, out);
        assert_memory_equal(out, all + 100 * V, sizeof out);
        stage_unload(&from);
        stage_unload(&to);
    }
    windows_set(0);
}

/* Page by page; of the first `lent` tokens other bytes, which change nothing. */
static void kv_fill(struct stage *from, struct stage *to, uint64_t id, uint32_t lent)
{
    struct kv_shape shape = stage_kv_shape(to);
    struct kv_cursor at = {0};
    struct kv_range r;
    struct err e = {0};
    void *data = calloc(2, 20000);
    while (kv_shape_next(&shape, 128, 1, &at, &r)) {
        assert_int_equal(stage_kv_export(from, 1, &r, data, &e), 0);
        if (r.first < lent)
            memset(data, 0xAA, 20000); /* nobody else's page changes */
        assert_int_equal(stage_kv_import(to, id, &r, data, &e), 0);
    }
    free(data);
}

TEST(a_sequence_begins_with_pages_of_another_and_with_some_that_come)
{
    static float all[TOKENS * V], out[TOKENS * V];
    static const uint32_t windows[] = {0, 30, 64, 100};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        windows_set(windows[w]);
        struct stage *from = load(config_of(0, TINY_LAYERS)), *to = load(config_of(0, TINY_LAYERS));
        struct err e = {0};
        logits_of(1, TOKENS, COMPUTE_F32, all);
        assert_int_equal(stage_sequence_open(from, 1, TOKENS, &e), 0);
        assert_int_equal(stage_sequence_open(to, 1, TOKENS, &e), 0);
        struct batch_run whole = {.sequence = 1, .n_tokens = 128},
                         some = {.sequence = 1, .n_tokens = 70};
        run(from, &whole, 1, ids, NULL);
        run(to, &some, 1, ids, NULL);
        assert_int_equal(stage_sequence_open_at(to, 2, TOKENS, 64, 1, &e), 0);
        assert_int_equal(stage_sequence_await(to, 2, 64, &e), HP_EINVAL);
        assert_int_equal(stage_sequence_await(to, 2, TOKENS + 1, &e), HP_EINVAL);
        assert_int_equal(stage_sequence_await(to, 3, 128, &e), HP_ENOENT);
        assert_int_equal(stage_sequence_await(to, 2, 128, &e), 0);
        assert_int_equal(stage_sequence_await(to, 2, 130, &e), HP_EINVAL);
        assert_true(stage_kv_awaited(to, 2) > 0);
        kv_fill(from, to, 2, 64);
        assert_int_equal(stage_kv_awaited(to, 2), 0);
        struct batch_run next = {
            .sequence = 2, .first_position = 128, .n_tokens = 22, .n_logits = 22};
        run(to, &next, 1, ids + 128, out);
        assert_memory_equal(out, all + 128 * V, 22 * V * sizeof *out);
        struct batch_run own = {
            .sequence = 1, .first_position = 70, .n_tokens = 80, .n_logits = 80};
        run(to, &own, 1, ids + 70, out);
        assert_memory_equal(out, all + 70 * V, 80 * V * sizeof *out);
        stage_unload(&from);
        stage_unload(&to);
    }
    windows_set(0);
}

/* Over stages that are cut elsewhere: what of a block lies where is found by its number. */
TEST(kv_moves_between_stages_that_are_cut_differently)
{
    static float all[TOKENS * V], out[V], between[TOKENS * TINY_WIDTH];
    struct err e = {0};
    windows_set(30);
    struct stage *whole = load(config_of(0, TINY_LAYERS));
    struct stage *halves[] = {load(config_of(0, 4)), load(config_of(4, TINY_LAYERS))};
    logits_of(1, TOKENS, COMPUTE_F32, all);
    assert_int_equal(stage_sequence_open(whole, 1, TOKENS, &e), 0);
    struct batch_run first = {.sequence = 1, .n_tokens = TOKENS - 1};
    run(whole, &first, 1, ids, NULL);
    struct batch_run last = {
        .sequence = 1, .first_position = TOKENS - 1, .n_tokens = 1, .n_logits = 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stage_sequence_open_at(halves[i], 1, TOKENS, TOKENS - 1, 0, &e), 0);
        kv_move(whole, 1, halves[i], 1, TOKENS - 1);
        run(halves[i], &last, 1, i ? (const void *)between : ids + TOKENS - 1, i ? out : between);
    }
    assert_memory_equal(out, all + (TOKENS - 1) * V, sizeof out);
    stage_unload(&whole);
    stage_unload(&halves[0]);
    stage_unload(&halves[1]);
    windows_set(0);
}

TEST(float32_logits_within_a_window_are_the_same_over_any_stages_and_slices)
{
    static float want[TOKENS * V], got[TOKENS * V], whole[TOKENS * V];
    static const uint32_t slices[] = {1, 7, 64};
    logits_of(1, TOKENS, COMPUTE_F32, whole);
    windows_set(TOKENS);
    logits_of(1, 7, COMPUTE_F32, got);
    assert_memory_equal(got, whole, sizeof want); /* it hides nothing */
    windows_set(20);
    logits_of(1, TOKENS, COMPUTE_F32, want);
    assert_memory_not_equal(want, whole, sizeof want);
    assert_memory_equal(want, whole, 20 * V * sizeof *want);
    for (size_t i = 0; i < 3; i++) {
        logits_of(1 + (int)i, slices[i], COMPUTE_F32, got);
        assert_memory_equal(got, want, sizeof want);
    }
    windows_set(0);
}

TEST(a_sequence_that_begins_with_anothers_tokens_goes_on_as_if_they_were_its_own)
{
    static float all[TOKENS * V], out[50 * V];
    struct err e = {0};
    struct stage *s = load(config_of(0, TINY_LAYERS));
    logits_of(1, TOKENS, COMPUTE_F32, all);
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    struct batch_run first = {.sequence = 1, .n_tokens = 120};
    run(s, &first, 1, ids, NULL);
    assert_int_equal(stage_sequence_open_at(s, 2, TOKENS, 100, 1, &e), 0);
    assert_int_equal(stage_sequence_open_at(s, 3, TOKENS, 121, 1, &e), HP_EINVAL);
    struct batch_run other = {.sequence = 2, .first_position = 100, .n_tokens = 5, .n_logits = 1};
    uint32_t others[5] = {1, 1, 1, 1, 1};
    run(s, &other, 1, others, out);
    assert_memory_not_equal(out, all + 104 * V, V * sizeof *out);
    struct batch_run next = {.sequence = 1, .first_position = 120, .n_tokens = 30, .n_logits = 30};
    run(s, &next, 1, ids + 120, out);
    assert_memory_equal(out, all + 120 * V, 30 * V * sizeof *out);
    assert_int_equal(stage_sequence_open_at(s, 4, TOKENS, 100, 1, &e), 0);
    stage_sequence_close(s, 1);
    struct batch_run same = {.sequence = 4, .first_position = 100, .n_tokens = 50, .n_logits = 50};
    run(s, &same, 1, ids + 100, out);
    assert_memory_equal(out, all + 100 * V, sizeof out);
    stage_unload(&s);
}

/* Logits of the first tokens as a sequence of its own that may reach so many. */
static void logits_of_length(struct stage *s, uint64_t id, uint32_t max_tokens, uint32_t slice,
                             float *out)
{
    enum { FIRST = 12 };
    struct err e = {0};
    assert_int_equal(stage_sequence_open(s, id, max_tokens, &e), 0);
    for (uint32_t at = 0; at < FIRST; at += slice) {
        struct batch_run r = {
            .sequence = id, .first_position = at, .n_tokens = slice, .n_logits = slice};
        run(s, &r, 1, ids + at, out + at * V);
    }
}

/* Long rope: 20 tokens are what the rotation began with. */
TEST(a_sequence_that_may_grow_long_rotates_so_from_its_first_token_on)
{
    static float kept[12 * V], grown[12 * V], again[12 * V];
    static const float longer[TINY_HEAD_DIM / 2] = {1.5f, 2, 3, 4, 6, 8};
    struct err e = {0};
    tiny->facts.config.rope.long_factors = longer;
    tiny->facts.config.rope.long_from = 20;
    struct stage *s = load(config_of(0, TINY_LAYERS));
    logits_of_length(s, 1, 20, 12, kept);
    logits_of_length(s, 2, 21, 12, grown);
    assert_memory_not_equal(kept, grown, sizeof kept);
    logits_of_length(s, 3, TOKENS, 3, again);
    assert_memory_equal(again, grown, sizeof grown);
    /* Short ones are what they were without such factors. */
    tiny->facts.config.rope.long_factors = NULL;
    struct stage *usual = load(config_of(0, TINY_LAYERS));
    logits_of_length(usual, 1, TOKENS, 4, again);
    assert_memory_equal(again, kept, sizeof kept);
    assert_int_equal(stage_sequence_open_at(s, 4, 20, 8, 2, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "rotates otherwise"));
    assert_int_equal(stage_sequence_open_at(s, 4, 21, 8, 1, &e), HP_EINVAL);
    assert_int_equal(stage_sequence_open_at(s, 4, 60, 8, 2, &e), 0);
    stage_unload(&usual);
    stage_unload(&s);
}

TEST(what_is_kept_of_a_sequence_gives_the_logits_that_it_would_have_given)
{
    static float all[TOKENS * V], out[50 * V];
    struct err e = {0};
    struct stage *s = load(config_of(0, TINY_LAYERS));
    logits_of(1, TOKENS, COMPUTE_F32, all);
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    struct batch_run first = {.sequence = 1, .n_tokens = 120};
    run(s, &first, 1, ids, NULL);
    stage_sequence_keep(s, 1, 110);
    assert_int_equal(stage_sequence_length(s, 1), 110);
    struct batch_run more = {.sequence = 1, .first_position = 110, .n_tokens = 1};
    assert_int_equal(stage_run(s, &more, 1, ids + 110, out, &e), HP_EINVAL); /* it runs no more */
    assert_int_equal(stage_sequence_open_at(s, 2, TOKENS, 111, 1, &e), HP_EINVAL);
    for (uint64_t id = 2; id < 4; id++) {
        assert_int_equal(stage_sequence_open_at(s, id, TOKENS, 100, 1, &e), 0);
        struct batch_run next = {
            .sequence = id, .first_position = 100, .n_tokens = 50, .n_logits = 50};
        run(s, &next, 1, ids + 100, out);
        assert_memory_equal(out, all + 100 * V, sizeof out);
    }
    stage_sequence_keep(s, 2, 400); /* more than it has: it is closed */
    assert_int_equal(stage_sequence_length(s, 2), -1);
    stage_unload(&s);
}

/* A token with guesses, of which some are right, again and again: each position whose tokens were
 * right has the logits that it has alone, to the bit, and what was wrong leaves nothing behind. */
static void guesses_verify(uint32_t window, enum stage_compute compute)
{
    static float all[TOKENS * V], out[(1 + BATCH_MAX_DRAFTS) * V];
    uint64_t seed = 5;
    struct err e = {0};
    windows_set(window);
    logits_of(1, 1, compute, all);
    struct stage_config c = config_of(0, TINY_LAYERS);
    c.compute = compute;
    struct stage *s = load(c);
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    struct batch_run first = {.sequence = 1, .n_tokens = 40};
    run(s, &first, 1, ids, NULL);
    for (uint32_t at = 40, right; at < TOKENS; at += 1 + right) {
        uint32_t most = TOKENS - at - 1 < BATCH_MAX_DRAFTS ? TOKENS - at - 1 : BATCH_MAX_DRAFTS,
                 n = (uint32_t)(random_next(&seed) % (most + 1)), guessed[1 + BATCH_MAX_DRAFTS];
        right = (uint32_t)(random_next(&seed) % (n + 1));
        for (uint32_t k = 0; k <= n; k++)
            guessed[k] = k <= right ? ids[at + k] : (ids[at + k] + 1) % V;
        struct batch_run r = {.sequence = 1,
                              .first_position = at,
                              .n_tokens = 1 + n,
                              .n_logits = 1 + n,
                              .n_drafts = n};
        run(s, &r, 1, guessed, out);
        assert_memory_equal(out, all + at * V, (1 + right) * V * sizeof *out);
        assert_int_equal(stage_sequence_length(s, 1), at + 1 + n);
    }
    stage_unload(&s);
    windows_set(0);
}

TEST(guesses_that_were_wrong_leave_nothing_behind)
{
    guesses_verify(0, COMPUTE_F32);
    guesses_verify(20, COMPUTE_F32);
    guesses_verify(64, COMPUTE_F32);
    guesses_verify(0, COMPUTE_AUTO);
}

TEST(guesses_alone_are_taken_back_and_kept_where_they_were_right)
{
    static float out[V], all[TOKENS * V];
    struct err e = {0};
    struct stage *s = load(config_of(0, TINY_LAYERS));
    logits_of(1, TOKENS, COMPUTE_F32, all);
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    struct batch_run run_of[] = {{1, 0, 70, 0, 0, false, 0, 0, 0, 0},
                                 {1, 70, 6, 0, 0, false, 5, 0, 0, 0}},
                     back = {1, 70, 1, 0, 0, false, 0, 0, 0, 0},
                     none = {1, 76, 2, 0, 0, false, 2, 0, 0, 0};
    run(s, &run_of[0], 1, ids, NULL);
    run(s, &run_of[1], 1, ids + 70, NULL);
    assert_int_equal(stage_run(s, &back, 1, ids, NULL, &e), HP_EINVAL); /* that was no guess */
    assert_int_equal(stage_run(s, &none, 1, ids, NULL, &e), HP_EINVAL);
    assert_int_equal(stage_sequence_length(s, 1), 76);
    stage_sequence_keep(s, 1, 74); /* so many were right */
    assert_int_equal(stage_sequence_length(s, 1), 74);
    assert_int_equal(stage_sequence_open_at(s, 2, TOKENS, 74, 1, &e), 0);
    struct batch_run next = {.sequence = 2, .first_position = 74, .n_tokens = 1, .n_logits = 1};
    run(s, &next, 1, ids + 74, out);
    assert_memory_equal(out, all + 74 * V, sizeof out);
    stage_unload(&s);
}

TEST(kv_that_is_not_there_or_under_way_is_refused)
{
    struct stage *s = load(config_of(0, 3));
    struct err e = {0};
    static float out[TOKENS * TINY_WIDTH];
    uint8_t data[4096] = {0};
    struct kv_range one = {.group = 0, .n_blocks = 1, .count = 1}, second = one, far = one;
    second.first = 1;
    far.first_block = 1;
    assert_int_equal(stage_kv_export(s, 1, &one, data, &e), HP_ENOENT);
    assert_int_equal(stage_kv_import(s, 1, &one, data, &e), HP_ENOENT);
    assert_int_equal(stage_sequence_open_at(s, 1, 10, 1, 0, &e), 0);
    assert_int_equal(stage_kv_export(s, 1, &one, data, &e), HP_EBUSY);
    assert_int_equal(stage_kv_import(s, 1, &second, data, &e), HP_EINVAL);
    assert_int_equal(stage_kv_import(s, 1, &far, data, &e), HP_EINVAL);
    struct batch_run next = {.sequence = 1, .first_position = 1, .n_tokens = 1};
    assert_int_equal(stage_run(s, &next, 1, ids, out, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "have not all come"));
    assert_int_equal(stage_kv_import(s, 1, &one, data, &e), 0);
    assert_int_equal(stage_kv_export(s, 1, &second, data, &e), HP_EINVAL);
    assert_int_equal(stage_kv_export(s, 1, &far, data, &e), HP_EINVAL);
    assert_int_equal(stage_sequence_open_at(s, 2, 10, 11, 0, &e), HP_EINVAL);
    assert_int_equal(stage_submit(s, &next, 1, ids, out, &e), 0);
    assert_int_equal(stage_kv_export(s, 1, &one, data, &e), HP_EBUSY);
    assert_int_equal(stage_complete(s, &e), 0);
    assert_int_equal(stage_kv_export(s, 1, &second, data, &e), 0);
    stage_unload(&s);
}

TEST(a_stage_without_weights_keeps_what_came_and_hands_it_on)
{
    static float all[TOKENS * V], out[TOKENS * V];
    struct stage_config c = config_of(0, TINY_LAYERS), bare = c;
    struct section_need need;
    struct err e = {0};
    bare.keeps = true;
    struct stage *from = load(c), *keeper = load(bare), *to = load(c);
    assert_int_equal(stage_footprint_of_graph(&tiny->graph, &bare, &need, &e), 0);
    assert_true(need.weight_bytes == 0 && need.activation_bytes == 0 && need.state_bytes > 0);
    assert_int_equal(stage_sequence_open(from, 1, TOKENS, &e), 0);
    struct batch_run run = {.sequence = 1, .n_tokens = TOKENS - 1, .n_logits = 1};
    assert_int_equal(stage_run(from, &run, 1, ids, out, &e), 0);
    assert_int_equal(stage_sequence_open_at(keeper, 5, TOKENS, TOKENS - 1, 0, &e), 0);
    kv_move(from, 1, keeper, 5, TOKENS - 1);
    stage_sequence_keep(keeper, 5, TOKENS - 1);
    assert_int_equal(stage_sequence_open_at(keeper, 6, TOKENS, TOKENS - 1, 5, &e), 0);
    assert_int_equal(stage_sequence_open_at(to, 9, TOKENS, TOKENS - 1, 0, &e), 0);
    kv_move(keeper, 6, to, 9, TOKENS - 1);
    run = (struct batch_run){
        .sequence = 1, .first_position = TOKENS - 1, .n_tokens = 1, .n_logits = 1};
    assert_int_equal(stage_run(from, &run, 1, ids + TOKENS - 1, all, &e), 0);
    run.sequence = 9;
    assert_int_equal(stage_run(to, &run, 1, ids + TOKENS - 1, out, &e), 0);
    assert_memory_equal(all, out, V * sizeof *out);
    run.sequence = 6;
    assert_int_equal(stage_run(keeper, &run, 1, ids + TOKENS - 1, out, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "has no weights"));
    stage_unload(&from);
    stage_unload(&keeper);
    stage_unload(&to);
}

TEST(a_sequence_reserves_what_it_may_use)
{
    struct stage_config c = config_of(0, 3);
    struct err e = {0};
    c.kv_tokens = 100;
    c.max_sequences = 3;
    struct stage *s = load(c);
    assert_int_equal(stage_sequence_open(s, 1, 101, &e), HP_EINFEASIBLE);
    assert_int_equal(stage_sequence_open(s, 1, 0, &e), HP_EINVAL);
    /* Two pages, and one for each of three that may leave it unfilled. */
    assert_int_equal(stage_sequence_open(s, 1, 100, &e), 0);
    assert_int_equal(stage_sequence_open(s, 1, 1, &e), HP_EEXIST);
    assert_int_equal(stage_sequence_open(s, 2, 100, &e), 0);
    assert_int_equal(stage_sequence_open(s, 3, 65, &e), HP_EBUSY);
    assert_int_equal(stage_sequence_open(s, 3, 64, &e), 0);
    assert_int_equal(stage_sequence_open(s, 4, 1, &e), HP_EBUSY);
    stage_sequence_close(s, 2);
    stage_sequence_close(s, 2);
    assert_int_equal(stage_sequence_length(s, 2), -1);
    assert_int_equal(stage_sequence_open(s, 4, 33, &e), 0);
    assert_int_equal(stage_sequence_length(s, 4), 0);
    stage_unload(&s);
}

TEST(batches_that_make_no_sense_change_nothing)
{
    struct stage_config c = config_of(0, TINY_LAYERS);
    struct err e = {0};
    c.max_batch_tokens = 8;
    struct stage *s = load(c);
    float out[V];
    uint32_t bad_id[] = {0, V};
    assert_int_equal(stage_sequence_open(s, 1, 10, &e), 0);
    assert_int_equal(stage_sequence_open(s, 2, 10, &e), 0);
    struct batch_run fine = {.sequence = 1, .n_tokens = 4, .n_logits = 1};
    run(s, &fine, 1, ids, out);
    static const struct {
        struct batch_run runs[2];
        int n;
        bool bad_id;
        const char *says;
    } cases[] = {
        {{{3, 0, 1, 1, 0, false, 0, 0, 0, 0}}, 1, false, "sequence 3 is not open"},
        {{{1, 0, 1, 1, 0, false, 0, 0, 0, 0}}, 1, false, "position 0 does not follow"},
        {{{1, 5, 1, 1, 0, false, 0, 0, 0, 0}}, 1, false, "position 5 does not follow"},
        {{{1, 4, 7, 1, 0, false, 0, 0, 0, 0}}, 1, false, "room for 10 tokens"},
        {{{1, 4, 0, 0, 0, false, 0, 0, 0, 0}}, 1, false, "no tokens"},
        {{{1, 4, 1, 2, 0, false, 0, 0, 0, 0}}, 1, false, "asks for logits of 2"},
        {{{1, 4, 2, 1, 0, false, 0, 0, 0, 0}}, 1, true, "token 50 is beyond"},
        {{{1, 4, 1, 1, 0, false, 0, 0, 0, 0}, {1, 5, 1, 1, 0, false, 0, 0, 0, 0}},
         2,
         false,
         "twice"},
        {{{1, 4, 4, 1, 0, false, 0, 0, 0, 0}, {2, 0, 5, 0, 0, false, 0, 0, 0, 0}},
         2,
         false,
         "at most 8 tokens"},
        {{{0}}, 0, false, "1 to 4 runs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            stage_run(s, cases[i].runs, cases[i].n, cases[i].bad_id ? bad_id : ids, out, &e),
            HP_EINVAL);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
        assert_int_equal(stage_sequence_length(s, 1), 4);
        assert_int_equal(stage_sequence_length(s, 2), 0);
    }
    stage_unload(&s);
}

TEST(the_footprint_is_what_loading_takes)
{
    struct device_config limited = {.n_threads = 1, .memory_bytes = 1 << 30};
    struct device *d;
    struct err e = {0};
    assert_int_equal(device_open(&limited, &d, &e), 0);
    for (int f32 = 0; f32 < 2; f32++)
        for (int end = 1; end <= TINY_LAYERS; end++) {
            struct stage_config c = config_of(end / 2, end);
            struct section_need need;
            struct stage *s;
            c.device = d;
            c.compute = f32 ? COMPUTE_F32 : COMPUTE_AUTO;
            assert_int_equal(stage_footprint_of_graph(&tiny->graph, &c, &need, &e), 0);
            uint64_t before = d->backend->memory_free(d);
            assert_int_equal(stage_load_graph(&tiny->graph, &tiny->config, &c, &s, &e), 0);
            assert_int_equal(before - d->backend->memory_free(d),
                             need.weight_bytes + need.state_bytes + need.activation_bytes);
            stage_unload(&s);
            assert_int_equal(d->backend->memory_free(d), before);
        }
    device_close(&d);
}

TEST(a_stage_that_does_not_fit_says_what_is_missing)
{
    struct device_config limited = {.n_threads = 1, .memory_bytes = 20000};
    struct device *d;
    struct err e = {0};
    struct stage *s = NULL;
    assert_int_equal(device_open(&limited, &d, &e), 0);
    struct stage_config c = config_of(0, TINY_LAYERS);
    c.device = d;
    assert_int_equal(stage_load_graph(&tiny->graph, &tiny->config, &c, &s, &e), HP_ENOMEM);
    assert_null(s);
    assert_non_null(strstr(e.text, "bytes are missing"));
    assert_int_equal(d->backend->memory_free(d), 20000);
    device_close(&d);
}

TEST(layers_that_are_not_there_are_refused)
{
    static const int ranges[][2] = {{-1, 2}, {0, TINY_LAYERS + 1}, {3, 3}, {4, 2}};
    for (size_t i = 0; i < 4; i++) {
        struct stage_config c = config_of(ranges[i][0], ranges[i][1]);
        struct stage *s = NULL;
        struct err e = {0};
        assert_int_equal(stage_load_graph(&tiny->graph, &tiny->config, &c, &s, &e), HP_EINVAL);
    }
}

struct progress {
    uint64_t done, total;
    int calls;
};

static void note_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    assert_true(done >= p->done && done <= total);
    *p = (struct progress){done, total, p->calls + 1};
}

TEST(loading_reports_progress_to_the_end)
{
    struct progress p = {0};
    struct stage_config c = config_of(0, TINY_LAYERS);
    c.progress = note_progress;
    c.progress_ctx = &p;
    struct stage *s = load(c);
    assert_true(p.calls > 5 && p.total > 0);
    assert_int_equal(p.done, p.total);
    stage_unload(&s);
}

/* ---- two batches under way ---- */

TEST(two_batches_under_way_give_what_one_after_the_other_gives)
{
    static float want[TOKENS * V], got[TOKENS * V];
    struct err e = {0};
    logits_of(1, TOKENS, COMPUTE_F32, want);
    struct stage *s = load(config_of(0, TINY_LAYERS));
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    struct batch_run first = {.sequence = 1, .n_tokens = 100, .n_logits = 100},
                     then = {.sequence = 1,
                             .first_position = 100,
                             .n_tokens = TOKENS - 100,
                             .n_logits = TOKENS - 100};
    assert_int_equal(stage_complete(s, &e), HP_EINVAL);
    assert_int_equal(stage_submit(s, &first, 1, ids, got, &e), 0);
    assert_int_equal(stage_submit(s, &then, 1, ids + 100, got + 100 * V, &e), 0);
    assert_int_equal(stage_sequence_length(s, 1), TOKENS);
    struct batch_run third = {.sequence = 1, .first_position = TOKENS, .n_tokens = 1};
    assert_int_equal(stage_submit(s, &third, 1, ids, got, &e), HP_EBUSY);
    assert_int_equal(stage_complete(s, &e), 0);
    assert_int_equal(stage_complete(s, &e), 0);
    assert_memory_equal(got, want, sizeof want);
    stage_unload(&s);
}

static int events_that_fail;

static int failing_event_wait(struct event *v, struct err *e)
{
    (void)v;
    return events_that_fail-- > 0 ? err_set(e, HP_EDEVICE, "the device went away") : 0;
}

TEST(a_batch_that_fails_takes_those_submitted_after_it_along)
{
    static float out[TOKENS * V];
    const struct backend *good = device->backend;
    struct backend failing = *good;
    struct err e = {0};
    failing.event_wait = failing_event_wait;
    events_that_fail = 1;
    struct stage *s = load(config_of(0, TINY_LAYERS));
    assert_int_equal(stage_sequence_open(s, 1, TOKENS, &e), 0);
    assert_int_equal(stage_sequence_open(s, 2, TOKENS, &e), 0);
    device->backend = &failing;
    struct batch_run first[] = {{.sequence = 1, .n_tokens = 10}, {.sequence = 2, .n_tokens = 5}},
                     then = {.sequence = 1, .first_position = 10, .n_tokens = 10};
    assert_int_equal(stage_submit(s, first, 2, ids, out, &e), 0);
    assert_int_equal(stage_submit(s, &then, 1, ids + 10, out, &e), 0);
    stage_sequence_close(s, 2);
    assert_int_equal(stage_complete(s, &e), HP_EDEVICE);
    assert_int_equal(stage_complete(s, &e), HP_EDEVICE);
    assert_non_null(strstr(e.text, "went away"));
    assert_int_equal(stage_sequence_length(s, 1), 0);
    /* And then all is well again. */
    assert_int_equal(stage_run(s, first, 1, ids, out, &e), 0);
    assert_int_equal(stage_sequence_length(s, 1), 10);
    device->backend = good;
    stage_unload(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_logits_are_the_same_over_any_stages_and_slices),
        cmocka_unit_test(rows_in_the_devices_memory_give_what_rows_of_the_host_give),
        cmocka_unit_test(auto_is_near_float32),
        cmocka_unit_test(sequences_in_one_batch_do_not_touch_each_other),
        cmocka_unit_test(a_sequence_that_moves_with_its_kv_goes_on_as_before),
        cmocka_unit_test(a_sequence_begins_with_pages_of_another_and_with_some_that_come),
        cmocka_unit_test(kv_moves_between_stages_that_are_cut_differently),
        cmocka_unit_test(float32_logits_within_a_window_are_the_same_over_any_stages_and_slices),
        cmocka_unit_test(
            a_sequence_that_begins_with_anothers_tokens_goes_on_as_if_they_were_its_own),
        cmocka_unit_test(a_sequence_that_may_grow_long_rotates_so_from_its_first_token_on),
        cmocka_unit_test(what_is_kept_of_a_sequence_gives_the_logits_that_it_would_have_given),
        cmocka_unit_test(guesses_that_were_wrong_leave_nothing_behind),
        cmocka_unit_test(guesses_alone_are_taken_back_and_kept_where_they_were_right),
        cmocka_unit_test(kv_that_is_not_there_or_under_way_is_refused),
        cmocka_unit_test(a_stage_without_weights_keeps_what_came_and_hands_it_on),
        cmocka_unit_test(a_sequence_reserves_what_it_may_use),
        cmocka_unit_test(batches_that_make_no_sense_change_nothing),
        cmocka_unit_test(the_footprint_is_what_loading_takes),
        cmocka_unit_test(a_stage_that_does_not_fit_says_what_is_missing),
        cmocka_unit_test(layers_that_are_not_there_are_refused),
        cmocka_unit_test(loading_reports_progress_to_the_end),
        cmocka_unit_test(two_batches_under_way_give_what_one_after_the_other_gives),
        cmocka_unit_test(a_batch_that_fails_takes_those_submitted_after_it_along),
    };
    return cmocka_run_group_tests_name("stage", tests, set_up, tear_down);
}
