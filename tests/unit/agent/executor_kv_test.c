/* Keys and values through the executor: from one stage to another over the data channel, and what
 * cannot be taken or given, which is answered and leaves no buffer behind. */
#include <math.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/plain/kv_convert.h"
#include "agent/executor.h"
#include "common/env.h"
#include "common/log.h"
#include "tests/test.h"
#include "tests/unit/semaphores.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";
enum { LAYERS = 18, FROM = 1, TO = 2, LENGTH = 100, LIMIT_S = 60 };

struct executor_kv_fixture {
    struct data_endpoint *data;
    struct executor *x;
    struct outlet *outlet;
    sem_t told, came, left;
    struct executor_report report; /* the last */
    struct kv_shape kv;
    struct frame_header header; /* of the frame that came last */
    struct data_buffer *frame;
    int left_status;
};

static void frame_in(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct executor_kv_fixture *f = ctx;
    f->header = *h;
    f->frame = payload;
    sem_post(&f->came);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct executor_kv_fixture *f = ctx;
    if (r->status == HP_PENDING)
        return;
    f->report = *r;
    if (r->kind == EXECUTOR_LOADED)
        f->kv = r->kv;
    sem_post(&f->told);
}

static void piece_left(void *ctx, uint64_t slot, uint64_t link, int status, bool reserved)
{
    struct executor_kv_fixture *f = ctx;
    (void)slot, (void)link, (void)reserved;
    f->left_status = status;
    sem_post(&f->left);
}

static int setup(void **state)
{
    struct executor_kv_fixture *f = calloc(1, sizeof *f);
    struct data_config d = {.callbacks = {f, frame_in, NULL}};
    struct err e = {0};
    size_t size;
    log_set_level(LOG_ERROR);
    sem_init(&f->told, 0, 0);
    sem_init(&f->came, 0, 0);
    sem_init(&f->left, 0, 0);
    assert_int_equal(data_open_inproc(&d, &f->data, &e), 0);
    assert_int_equal(data_allow(f->data, 5, NULL, &e), 0);
    struct executor_config c = {
        .device = {.backend = "cpu", .n_threads = 1}, .data = f->data, .report = told, .ctx = f};
    assert_int_equal(executor_create(&c, &f->x, &e), 0);
    struct outlet_config o = {.data = f->data, .device = "", .left = piece_left, .ctx = f};
    const uint8_t *address = data_address(f->data, &size);
    assert_int_equal(outlet_open(&o, address, size, &f->outlet, &e), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct executor_kv_fixture *f = *state;
    struct data_stats stats;
    executor_destroy(&f->x);
    outlet_release(f->outlet);
    data_stats(f->data, &stats);
    assert_int_equal(stats.buffers_bytes, 0);
    data_close(&f->data);
    free(f);
    return 0;
}

static void load_as(struct executor_kv_fixture *f, uint64_t slot, enum kv_format kv)
{
    struct executor_load l = {.slot = slot,
                              .ticket = slot,
                              .path = demo_model,
                              .end_layer = LAYERS,
                              .f32 = true,
                              .kv_given = true,
                              .kv = kv,
                              .kv_tokens = 256,
                              .max_sequences = 2,
                              .max_batch_tokens = 128,
                              .n_stages = 1};
    executor_load(f->x, &l);
    semaphore_wait(&f->told, LIMIT_S);
    assert_int_equal(f->report.status, 0);
}

static void load(struct executor_kv_fixture *f, uint64_t slot)
{
    load_as(f, slot, KV_F32);
}

static void open_at(struct executor_kv_fixture *f, uint64_t slot, uint32_t length)
{
    executor_sequence_open(
        f->x, &(struct executor_opening){
                  .slot = slot, .ticket = 9, .sequence = 5, .kv_tokens = 120, .length = length});
    semaphore_wait(&f->told, LIMIT_S);
    assert_int_equal(f->report.status, 0);
}

static const float *logits_of(struct executor_kv_fixture *f, uint64_t slot, uint32_t first,
                              uint32_t n)
{
    static uint32_t ids[LENGTH] = {7, 9, 11};
    static struct batch_run run;
    static struct batch batch;
    run = (struct batch_run){.sequence = 5, .first_position = first, .n_tokens = n, .n_logits = 1};
    batch = (struct batch){.runs = &run, .n_runs = 1, .n_tokens = n, .n_logits = 1, .ids = ids};
    executor_run(f->x, &(struct executor_run){.slot = slot, .ticket = 4, .batch = &batch});
    semaphore_wait(&f->told, LIMIT_S);
    assert_int_equal(f->report.status, 0);
    return f->report.logits;
}

static struct executor_kv export_of(struct executor_kv_fixture *f, uint64_t slot,
                                    const struct kv_range *r)
{
    return (struct executor_kv){.slot = slot,
                                .ticket = 3,
                                .sequence = 5,
                                .range = *r,
                                .format = KV_F32,
                                .outlet = outlet_hold(f->outlet),
                                .header = {.kind = FRAME_KV,
                                           .dtype = FRAME_F32,
                                           .session = 5,
                                           .first_position = r->first,
                                           .n_tokens = r->count}};
}

static void a_sequence_goes_on_in_another_slot_to_the_bit(void **state)
{
    struct executor_kv_fixture *f = *state;
    load(f, FROM);
    load(f, TO);
    open_at(f, FROM, 0);
    logits_of(f, FROM, 0, LENGTH);
    open_at(f, TO, LENGTH);
    uint32_t awaited = f->report.awaited;
    assert_int_equal(awaited, 8 * 2); /* blocks, and pages of each */
    struct kv_shape shape = f->kv;
    struct kv_cursor at = {0};
    struct kv_range r;
    while (kv_shape_next(&shape, LENGTH, 200000, &at, &r)) {
        struct executor_kv k = export_of(f, FROM, &r);
        executor_kv_export(f->x, &k);
        semaphore_wait(&f->came, LIMIT_S);
        semaphore_wait(&f->left, LIMIT_S);
        assert_int_equal(f->left_status, 0);
        assert_int_equal(f->header.payload_bytes, FRAME_KV_BYTES + kv_shape_bytes(&shape, &r));
        k = (struct executor_kv){.slot = TO,
                                 .ticket = 9,
                                 .sequence = 5,
                                 .range = r,
                                 .format = KV_F32,
                                 .frame = f->frame};
        executor_kv_import(f->x, &k);
        semaphore_wait(&f->told, LIMIT_S);
        assert_int_equal(f->report.kind, EXECUTOR_KV_IMPORTED);
        assert_int_equal(f->report.status, 0);
        assert_true(f->report.awaited < awaited);
        awaited = f->report.awaited;
    }
    assert_int_equal(awaited, 0);
    enum { VOCABULARY = 64 }; /* of the rows, as many as tell them apart */
    float want[VOCABULARY];
    memcpy(want, logits_of(f, FROM, LENGTH, 1), sizeof want);
    assert_memory_equal(logits_of(f, TO, LENGTH, 1), want, sizeof want);
}

/* A piece of a slot's sequence as it crosses, in a frame. */
static struct data_buffer *piece_out(struct executor_kv_fixture *f, uint64_t slot,
                                     const struct kv_range *r, enum kv_format format)
{
    struct executor_kv k = export_of(f, slot, r);
    k.format = format;
    executor_kv_export(f->x, &k);
    semaphore_wait(&f->came, LIMIT_S);
    semaphore_wait(&f->left, LIMIT_S);
    assert_int_equal(f->left_status, 0);
    return f->frame;
}

static void piece_in(struct executor_kv_fixture *f, uint64_t slot, const struct kv_range *r,
                     enum kv_format format, struct data_buffer *frame)
{
    executor_kv_import(f->x, &(struct executor_kv){.slot = slot,
                                                   .ticket = 9,
                                                   .sequence = 5,
                                                   .range = *r,
                                                   .format = format,
                                                   .frame = frame});
    semaphore_wait(&f->told, LIMIT_S);
    assert_int_equal(f->report.kind, EXECUTOR_KV_IMPORTED);
}

static size_t elements_of(const struct kv_shape *own, const struct kv_range *r)
{
    return (size_t)kv_format_elements(own->groups[r->group].format, kv_shape_bytes(own, r));
}

/* What the second slot has is what kv_convert makes of what the first has, by way of `crosses`. */
static void piece_compare(struct executor_kv_fixture *f, const struct kv_shape shapes[2],
                          const struct kv_range *r, enum kv_format crosses)
{
    enum kv_format a = shapes[0].groups[r->group].format, b = shapes[1].groups[r->group].format;
    size_t n = elements_of(&shapes[0], r);
    uint8_t *wire = malloc(n * sizeof(float)), *want = malloc(n * sizeof(float));
    struct data_buffer *x = piece_out(f, FROM, r, a);
    kv_convert(a, x->bytes + FRAME_KV_BYTES, n, crosses, wire);
    kv_convert(crosses, wire, n, b, want);
    data_buffer_release(f->data, x);
    x = piece_out(f, TO, r, b);
    assert_memory_equal(x->bytes + FRAME_KV_BYTES, want, (size_t)kv_format_bytes(b, n));
    data_buffer_release(f->data, x);
    free(wire);
    free(want);
}

/* From a stage that keeps them so to one that keeps them otherwise; the largest difference of a
 * logit afterwards, of the largest. */
static double moved_difference(struct executor_kv_fixture *f, enum kv_format a, enum kv_format b)
{
    enum { VOCABULARY = 64 };
    struct kv_shape shapes[2], crossing;
    struct kv_cursor at = {0};
    struct kv_range r;
    load_as(f, FROM, a);
    shapes[0] = crossing = f->kv;
    load_as(f, TO, b);
    shapes[1] = f->kv;
    kv_shape_narrow(&crossing, b);
    open_at(f, FROM, 0);
    logits_of(f, FROM, 0, LENGTH);
    open_at(f, TO, LENGTH);
    while (kv_shape_next(&crossing, LENGTH, 200000, &at, &r)) {
        struct data_buffer *x = piece_out(f, FROM, &r, crossing.groups[r.group].format);
        assert_int_equal(f->header.payload_bytes, FRAME_KV_BYTES + kv_shape_bytes(&crossing, &r));
        piece_in(f, TO, &r, crossing.groups[r.group].format, x);
        assert_int_equal(f->report.status, 0);
    }
    assert_int_equal(f->report.awaited, 0);
    for (at = (struct kv_cursor){0}; kv_shape_next(&shapes[0], LENGTH, 200000, &at, &r);)
        piece_compare(f, shapes, &r, crossing.groups[r.group].format);
    float want[VOCABULARY], most = 0, off = 0;
    memcpy(want, logits_of(f, FROM, LENGTH, 1), sizeof want);
    const float *got = logits_of(f, TO, LENGTH, 1);
    for (int i = 0; i < VOCABULARY; i++) {
        most = fabsf(want[i]) > most ? fabsf(want[i]) : most;
        off = fabsf(want[i] - got[i]) > off ? fabsf(want[i] - got[i]) : off;
    }
    executor_unload(f->x, FROM);
    executor_unload(f->x, TO);
    return (double)(off / most);
}

static void a_sequence_goes_on_where_keys_are_kept_otherwise(void **state)
{
    static const struct {
        enum kv_format from, to;
        double most;
    } cases[] = {
        {KV_F16, KV_F32, 1e-4},  {KV_F32, KV_F16, 1e-4},  {KV_Q8_0, KV_F32, 3e-3},
        {KV_F32, KV_Q8_0, 3e-3}, {KV_Q8_0, KV_F16, 3e-3}, {KV_F16, KV_Q8_0, 3e-3},
    };
    struct executor_kv_fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double off = moved_difference(f, cases[i].from, cases[i].to);
        print_message("%s to %s: %.5f of the largest logit\n", kv_format_word(cases[i].from),
                      kv_format_word(cases[i].to), off);
        assert_true(off < cases[i].most);
    }
}

static void blocks_whose_scale_is_no_number_are_refused(void **state)
{
    struct executor_kv_fixture *f = *state;
    for (int i = 0; i < 2; i++) { /* into a stage that keeps blocks, and one that keeps numbers */
        load_as(f, TO, i ? KV_F32 : KV_Q8_0);
        open_at(f, TO, LENGTH);
        struct kv_shape crossing = f->kv;
        struct kv_range r = {0, crossing.groups[0].first_block, 1, 0, 64};
        kv_shape_narrow(&crossing, KV_Q8_0);
        size_t bytes = FRAME_KV_BYTES + (size_t)kv_shape_bytes(&crossing, &r);
        for (int bad = 0; bad < 2; bad++) {
            struct data_buffer *x = data_buffer_get(f->data, bytes);
            x->size = bytes;
            memset(x->bytes, 0, bytes);
            if (bad) /* the last block's: infinite */
                memcpy(x->bytes + bytes - KV_Q8_BYTES, "\x00\x7c", 2);
            piece_in(f, TO, &r, KV_Q8_0, x);
            assert_int_equal(f->report.status, bad ? HP_EPROTO : 0);
        }
        executor_unload(f->x, TO);
    }
}

static void what_cannot_be_taken_or_given_is_answered(void **state)
{
    struct executor_kv_fixture *f = *state;
    const struct kv_range r = {0, 0, 1, 0, 64};
    load(f, FROM);
    for (int i = 0; i < 3; i++) { /* no such slot, no such sequence, no such tokens */
        uint64_t slot = i == 0 ? 77 : FROM;
        int code = i < 2 ? HP_ENOENT : HP_EINVAL;
        if (i == 2)
            open_at(f, FROM, 0);
        struct executor_kv k = export_of(f, slot, &r);
        executor_kv_export(f->x, &k);
        semaphore_wait(&f->told, LIMIT_S);
        assert_int_equal(f->report.kind, EXECUTOR_KV_EXPORTED);
        assert_int_equal(f->report.status, code);
        struct data_buffer *b = data_buffer_get(f->data, FRAME_KV_BYTES + 64);
        k = (struct executor_kv){
            .slot = slot, .ticket = 9, .sequence = 5, .range = r, .format = KV_F32, .frame = b};
        executor_kv_import(f->x, &k);
        semaphore_wait(&f->told, LIMIT_S);
        assert_int_equal(f->report.kind, EXECUTOR_KV_IMPORTED);
        assert_int_equal(f->report.status, code);
    }
}

static void what_waits_when_the_executor_ends_leaves_nothing(void **state)
{
    struct executor_kv_fixture *f = *state;
    const struct kv_range r = {0, 0, 1, 0, 64};
    for (int i = 0; i < 100; i++) { /* some are refused: more than have a place */
        struct executor_kv k = export_of(f, FROM, &r);
        executor_kv_export(f->x, &k);
        k = (struct executor_kv){.slot = FROM,
                                 .ticket = 9,
                                 .sequence = 5,
                                 .range = r,
                                 .format = KV_F32,
                                 .frame = data_buffer_get(f->data, 100)};
        executor_kv_import(f->x, &k);
    }
}

#define KV_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KV_TEST(a_sequence_goes_on_in_another_slot_to_the_bit),
        KV_TEST(a_sequence_goes_on_where_keys_are_kept_otherwise),
        KV_TEST(blocks_whose_scale_is_no_number_are_refused),
        KV_TEST(what_cannot_be_taken_or_given_is_answered),
        KV_TEST(what_waits_when_the_executor_ends_leaves_nothing),
    };
    return cmocka_run_group_tests_name("executor_kv", tests, NULL, NULL);
}
