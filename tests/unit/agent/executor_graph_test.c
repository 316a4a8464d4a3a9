/* The executor's slots hold more than layers of a model's file: a graph of fixed shape, loaded, run
 * and unloaded by the same orders; and stages between which two values cross, through frames. */
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/executor.h"
#include "agent/outlet.h"
#include "common/env.h"
#include "common/log.h"
#include "model/model.h"
#include "tests/test.h"
#include "tests/unit/agent/backend/async_backend.h"
#include "tests/unit/agent/engine/small_graph.h"
#include "tests/unit/semaphores.h"
#include "transport/message.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";
enum { SLOTS = 8, LIMIT_S = 60, SESSION = 77, SEQUENCES = 3, TOKENS = 5 };

struct graph_fixture {
    struct data_endpoint *data;
    struct executor *x;
    sem_t loaded, load_began, go_on, opened, ran, came;
    atomic_bool holds;
    int load_status, open_status, run_status;
    char text[300];
    struct frame_row row_in, row_out;
    uint32_t vocabulary;
    struct data_buffer *frame; /* the last that came */
    struct frame_header header;
    float *logits;
    size_t n_logits;
};

static void frame_keep(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct graph_fixture *f = ctx;
    f->header = *h;
    f->frame = payload;
    sem_post(&f->came);
}

static void load_told(struct graph_fixture *f, const struct executor_report *r)
{
    if (r->status == HP_PENDING && !r->warming && atomic_exchange(&f->holds, false)) {
        sem_post(&f->load_began);
        sem_wait(&f->go_on);
    }
    if (r->status == HP_PENDING)
        return;
    f->load_status = r->status;
    f->row_in = r->row_in;
    f->row_out = r->row_out;
    f->vocabulary = r->vocabulary;
    if (r->status < 0)
        snprintf(f->text, sizeof f->text, "%s", r->error->text);
    sem_post(&f->loaded);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct graph_fixture *f = ctx;
    if (r->kind == EXECUTOR_LOADED) {
        load_told(f, r);
    } else if (r->kind == EXECUTOR_OPENED) {
        f->open_status = r->status;
        sem_post(&f->opened);
    } else if (r->kind == EXECUTOR_RAN) {
        f->run_status = r->status;
        if (r->status < 0)
            snprintf(f->text, sizeof f->text, "%s", r->error->text);
        if (r->logits && f->logits)
            memcpy(f->logits, r->logits, f->n_logits * sizeof *f->logits);
        sem_post(&f->ran);
    }
}

static struct graph_fixture *fixture_make(const struct device_config *device)
{
    struct graph_fixture *f = calloc(1, sizeof *f);
    struct data_config d = {.callbacks = {f, frame_keep, NULL}};
    struct executor_config c = {.device = *device, .report = told, .ctx = f};
    assert_non_null(f);
    log_set_level(LOG_ERROR);
    sem_t *all[] = {&f->loaded, &f->load_began, &f->go_on, &f->opened, &f->ran, &f->came};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    assert_int_equal(data_open_inproc(&d, &f->data, NULL), 0);
    assert_int_equal(data_allow(f->data, SESSION, NULL, NULL), 0);
    c.data = f->data;
    assert_int_equal(executor_create(&c, &f->x, NULL), 0);
    return f;
}

static void fixture_free(struct graph_fixture *f)
{
    executor_destroy(&f->x);
    data_close(&f->data);
    free(f->logits);
    free(f);
}

/* ---- a graph of fixed shape ---- */

static void graph_order(struct graph_fixture *f, const struct small_graph *g)
{
    executor_load(f->x, &(struct executor_load){.slot = 1,
                                                .ticket = 1,
                                                .kind = SLOT_GRAPH,
                                                .graph = &g->graph,
                                                .end_layer = g->graph.n_layers,
                                                .f32 = true});
}

static void graph_run(struct graph_fixture *f, struct small_fixed_io *io, float *result)
{
    const struct fixed_value in[] = {{"pixels", DTYPE_F32, io->pixels, sizeof io->pixels},
                                     {"beside", DTYPE_F32, io->beside, sizeof io->beside}},
                             out = {FIXED_RESULT, DTYPE_F32, result,
                                    FIXED_ROWS * FIXED_OUT * sizeof *result};
    executor_run(
        f->x,
        &(struct executor_run){
            .slot = 1, .ticket = 2, .inputs = in, .n_inputs = 2, .outputs = &out, .n_outputs = 1});
    semaphore_wait(&f->ran, LIMIT_S);
}

static void result_check(const struct small_fixed_io *io, const float *result)
{
    for (int i = 0; i < FIXED_ROWS * FIXED_OUT; i++)
        assert_true(fabsf(result[i] - io->result[i]) < 1e-4f * (1 + fabsf(io->result[i])));
}

TEST(a_graph_of_fixed_shape_is_loaded_run_and_unloaded_by_the_same_orders)
{
    struct small_graph *g = small_fixed_make(5);
    struct device_config cpu = {.backend = "cpu", .n_threads = 2}, plain = {.backend = "plain"},
                         async = async_device_of(&plain);
    const struct device_config *devices[] = {&cpu, &plain, &async};
    for (int i = 0; i < 3; i++) {
        struct graph_fixture *f = fixture_make(devices[i]);
        struct small_fixed_io io;
        float result[FIXED_ROWS * FIXED_OUT];
        small_fixed_fill(g, 3, &io);
        graph_order(f, g);
        semaphore_wait(&f->loaded, LIMIT_S);
        assert_int_equal(f->load_status, 0);
        graph_run(f, &io, result);
        assert_int_equal(f->run_status, 0);
        result_check(&io, result);
        executor_sequence_open(f->x, &(struct executor_opening){
                                         .slot = 1, .ticket = 3, .sequence = 4, .kv_tokens = 10});
        semaphore_wait(&f->opened, LIMIT_S);
        assert_int_equal(f->open_status, HP_EUNSUPPORTED);
        executor_sequence_close(f->x, 1, 4, 0);
        io.pixels[0] += 1; /* it still runs */
        graph_run(f, &io, result);
        assert_int_equal(f->run_status, 0);
        executor_unload(f->x, 1);
        graph_run(f, &io, result);
        assert_int_equal(f->run_status, HP_ENOENT);
        fixture_free(f);
    }
    small_graph_free(&g);
}

TEST(loading_a_graph_is_given_up_when_nobody_wants_it_any_more)
{
    struct small_graph *g = small_fixed_make(5);
    struct device_config cpu = {.backend = "cpu", .n_threads = 2, .memory_bytes = 1 << 24};
    struct graph_fixture *f = fixture_make(&cpu);
    struct small_fixed_io io;
    float result[FIXED_ROWS * FIXED_OUT];
    uint64_t free_bytes = executor_memory_free(f->x);
    small_fixed_fill(g, 3, &io);
    atomic_store(&f->holds, true);
    graph_order(f, g);
    semaphore_wait(&f->load_began, LIMIT_S);
    executor_unload(f->x, 1);
    graph_run(f, &io, result); /* the executor has heard of it, and its thread is free */
    assert_int_equal(f->run_status, HP_ENOENT);
    sem_post(&f->go_on);
    graph_order(f, g);
    semaphore_wait(&f->loaded, LIMIT_S);
    assert_int_equal(f->load_status, 0);
    executor_unload(f->x, 1);
    graph_run(f, &io, result);
    assert_int_equal(executor_memory_free(f->x), free_bytes);
    fixture_free(f);
    small_graph_free(&g);
}

TEST(a_model_of_sequences_is_no_graph_of_fixed_shape)
{
    struct device_config plain = {.backend = "plain"};
    struct graph_fixture *f = fixture_make(&plain);
    executor_load(
        f->x, &(struct executor_load){
                  .slot = 1, .ticket = 1, .kind = SLOT_GRAPH, .path = demo_model, .end_layer = 18});
    semaphore_wait(&f->loaded, LIMIT_S);
    assert_int_equal(f->load_status, HP_EUNSUPPORTED);
    assert_non_null(strstr(f->text, "\"tokens\""));
    executor_load(f->x, &(struct executor_load){.slot = 1, .ticket = 1, .kind = SLOT_GRAPH});
    semaphore_wait(&f->loaded, LIMIT_S);
    assert_int_equal(f->load_status, HP_EINVAL);
    fixture_free(f);
}

/* ---- two values between two stages ---- */

enum { WHOLE = 1, FRONT = 2, BACK = 3 };

static void stage_order(struct graph_fixture *f, const struct small_graph *g, uint64_t slot,
                        int first, int end, enum frame_dtype wire)
{
    struct message_value cross[] = {{"embed.embd", TWO_WIDTH, false}, {"wide.up", TWO_MID, false}};
    struct executor_load l = {.slot = slot,
                              .ticket = slot,
                              .path = demo_model,
                              .graph = &g->graph,
                              .first_layer = first,
                              .end_layer = end,
                              .f32 = true,
                              .kv_tokens = 256,
                              .max_sequences = SEQUENCES,
                              .max_batch_tokens = 64,
                              .n_stages = 2,
                              .wire = wire};
    if (first)
        l.enters = (struct pack_list){cross, 2};
    if (end < TWO_LAYERS)
        l.crosses = (struct pack_list){cross, 2};
    executor_load(f->x, &l);
    semaphore_wait(&f->loaded, LIMIT_S);
    if (f->load_status < 0)
        fail_msg("%s", f->text);
    assert_int_equal(f->row_in.width, first ? TWO_WIDTH + TWO_MID : 0);
    assert_int_equal(f->row_out.width, end < TWO_LAYERS ? TWO_WIDTH + TWO_MID : 0);
    for (uint64_t s = 1; s <= SEQUENCES; s++) {
        executor_sequence_open(
            f->x, &(struct executor_opening){
                      .slot = slot, .ticket = 9, .sequence = s, .kv_tokens = TOKENS + (uint32_t)s});
        semaphore_wait(&f->opened, LIMIT_S);
        assert_int_equal(f->open_status, 0);
    }
}

/* Sequence s has TOKENS + s tokens. */
static void batch_fill(struct batch *b, bool all_logits)
{
    batch_clear(b);
    assert_true(batch_reserve(b, SEQUENCES, SEQUENCES * (TOKENS + SEQUENCES)));
    for (uint32_t s = 1; s <= SEQUENCES; s++) {
        struct batch_run run = {.sequence = s,
                                .n_tokens = TOKENS + s,
                                .n_logits = all_logits ? TOKENS + s : 0,
                                .row = b->n_tokens};
        for (uint32_t t = 0; t < run.n_tokens; t++)
            b->ids[b->n_tokens + t] = 10 * s + t;
        batch_append(b, &run);
    }
    b->input_runs = b->n_runs;
    b->input_tokens = b->n_tokens;
}

static void run_expect(struct graph_fixture *f, const struct executor_run *r)
{
    executor_run(f->x, r);
    semaphore_wait(&f->ran, LIMIT_S);
    if (f->run_status < 0)
        fail_msg("%s", f->text);
}

/* Logits of sequences 1 and 3 at the end of both stages, the second one's run dropped between. */
static void cut_run(struct graph_fixture *f, struct outlet *out, float *logits, size_t *n)
{
    struct batch b = {0}, back = {0};
    batch_fill(&b, false);
    run_expect(f, &(struct executor_run){.slot = FRONT,
                                         .ticket = 1,
                                         .batch = &b,
                                         .outlet = outlet_hold(out),
                                         .header = {.kind = FRAME_ACTIVATION,
                                                    .session = SESSION,
                                                    .n_runs = SEQUENCES,
                                                    .n_tokens = b.n_tokens}});
    semaphore_wait(&f->came, LIMIT_S);
    assert_true(batch_reserve(&back, SEQUENCES, 0));
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct batch_run run = b.runs[i];
        run.n_logits = run.n_tokens;
        if (i != 1)
            batch_append(&back, &run);
    }
    back.input = f->frame;
    back.input_runs = b.n_runs;
    back.input_tokens = b.n_tokens;
    f->n_logits = *n = (size_t)back.n_logits * f->vocabulary;
    f->logits = logits;
    run_expect(f, &(struct executor_run){.slot = BACK, .ticket = 2, .batch = &back});
    f->logits = NULL;
    batch_free(&b);
    batch_free(&back);
}

/* The same of one stage with all layers. */
static void whole_run(struct graph_fixture *f, float *logits)
{
    struct batch b = {0};
    size_t per_token = f->vocabulary, first = (TOKENS + 1) * per_token,
           second = (TOKENS + 2) * per_token, third = (TOKENS + 3) * per_token;
    float *all = calloc(first + second + third, sizeof *all);
    assert_non_null(all);
    batch_fill(&b, true);
    f->logits = all;
    f->n_logits = first + second + third;
    run_expect(f, &(struct executor_run){.slot = WHOLE, .ticket = 3, .batch = &b});
    f->logits = NULL;
    memcpy(logits, all, first * sizeof *all);
    memcpy(logits + first, all + first + second, third * sizeof *all);
    free(all);
    batch_free(&b);
}

static void outlet_gone(void *ctx, uint64_t slot, uint64_t link, int status, bool reserved)
{
    (void)ctx, (void)slot, (void)link, (void)reserved;
    assert_int_equal(status, 0);
}

static int demo_vocabulary(void)
{
    struct model *m;
    assert_int_equal(model_open(demo_model, &m, NULL), 0);
    int vocabulary = model_config(m)->vocabulary;
    model_close(&m);
    return vocabulary;
}

TEST(a_cut_that_two_values_cross_goes_through_frames_in_all_formats)
{
    static const struct {
        enum frame_dtype wire;
        float within; /* of the largest logit; 0: the same to the bit */
    } cases[] = {{FRAME_F32, 0}, {FRAME_F16, 3e-3f}, {FRAME_BF16, 2e-2f}, {FRAME_Q8, 2e-2f}};
    struct small_graph *g = small_two_make(demo_vocabulary(), 9);
    struct device_config cpu = {.backend = "cpu", .n_threads = 2}, plain = {.backend = "plain"};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct graph_fixture *f = fixture_make(i % 2 ? &plain : &cpu);
        struct outlet_config oc = {.data = f->data, .left = outlet_gone};
        struct outlet *out;
        struct err e = {0};
        size_t size, n;
        const uint8_t *address = data_address(f->data, &size);
        assert_int_equal(outlet_open(&oc, address, size, &out, &e), 0);
        stage_order(f, g, WHOLE, 0, TWO_LAYERS, FRAME_F32);
        stage_order(f, g, FRONT, 0, TWO_CUT, cases[i / 2].wire);
        stage_order(f, g, BACK, TWO_CUT, TWO_LAYERS, cases[i / 2].wire);
        size_t room = (size_t)(2 * TOKENS + 4) * f->vocabulary;
        float *want = calloc(room, sizeof *want), *got = calloc(room, sizeof *got), most = 0;
        whole_run(f, want);
        cut_run(f, out, got, &n);
        assert_int_equal(n, room);
        assert_int_equal(
            f->header.payload_bytes,
            SEQUENCES * FRAME_RUN_BYTES +
                frame_dtype_bytes(cases[i / 2].wire, (3 * TOKENS + 6) * (TWO_WIDTH + TWO_MID)));
        for (size_t k = 0; k < n; k++)
            most = fabsf(want[k]) > most ? fabsf(want[k]) : most;
        for (size_t k = 0; k < n; k++)
            if (!(fabsf(got[k] - want[k]) <= cases[i / 2].within * most))
                fail_msg("case %zu, logit %zu: %g, should be %g", i, k, (double)got[k],
                         (double)want[k]);
        free(want);
        free(got);
        outlet_release(out);
        fixture_free(f);
    }
    small_graph_free(&g);
}

TEST(rows_whose_scale_is_no_number_are_refused_before_they_are_computed_with)
{
    struct small_graph *g = small_two_make(demo_vocabulary(), 9);
    struct device_config cpu = {.backend = "cpu", .n_threads = 1};
    struct graph_fixture *f = fixture_make(&cpu);
    struct batch b = {0};
    stage_order(f, g, BACK, TWO_CUT, TWO_LAYERS, FRAME_Q8);
    assert_true(batch_reserve(&b, 1, 0));
    struct batch_run run = {.sequence = 1, .n_tokens = 2, .n_logits = 1};
    batch_append(&b, &run);
    size_t bytes = FRAME_RUN_BYTES + frame_dtype_bytes(FRAME_Q8, 2 * (TWO_WIDTH + TWO_MID));
    const float infinity = INFINITY;
    for (int bad = 1; bad >= 0; bad--) {
        struct data_buffer *input = data_buffer_get(f->data, bytes);
        assert_non_null(input);
        memset(input->bytes, 0, bytes);
        b.input = input;
        if (bad) /* the second row's second value: block 4 */
            memcpy(input->bytes + FRAME_RUN_BYTES + (size_t)4 * FRAME_Q8_BYTES, &infinity,
                   sizeof infinity);
        b.input_runs = 1;
        b.input_tokens = 2;
        executor_run(f->x, &(struct executor_run){.slot = BACK, .ticket = 1, .batch = &b});
        semaphore_wait(&f->ran, LIMIT_S);
        assert_int_equal(f->run_status, bad ? HP_EPROTO : 0);
        assert_true(!bad || strstr(f->text, "block 4"));
    }
    batch_free(&b);
    fixture_free(f);
    small_graph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_of_fixed_shape_is_loaded_run_and_unloaded_by_the_same_orders),
        cmocka_unit_test(loading_a_graph_is_given_up_when_nobody_wants_it_any_more),
        cmocka_unit_test(a_model_of_sequences_is_no_graph_of_fixed_shape),
        cmocka_unit_test(a_cut_that_two_values_cross_goes_through_frames_in_all_formats),
        cmocka_unit_test(rows_whose_scale_is_no_number_are_refused_before_they_are_computed_with),
    };
    return cmocka_run_group_tests_name("executor_graph", tests, NULL, NULL);
}
