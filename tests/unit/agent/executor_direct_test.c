/* Rows between two executors that go by memory of their devices, where the data channel reaches it:
 * a backend whose memory is of a kind, over UCX that knows it (tests/ucx_device.h). */
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/cpu.h"
#include "agent/executor.h"
#include "common/env.h"
#include "common/log.h"
#include "tests/test.h"
#include "tests/ucx_device.h"
#include "tests/unit/semaphores.h"
#include "tests/unit/transport/eventually.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";
enum {
    LAYERS = 18,
    CUT = 9,
    WIDTH = 192,
    LONG = 100,
    SHORT = 12,
    TOKENS = LONG + SHORT,
    PIECE_BYTES = 128 * WIDTH * sizeof(float), /* of a full batch */
    SLOT = 1,
    SESSION = 77,
    LIMIT_S = 60
};

/* ---- UCX, and the device ---- */

static atomic_int device_moves;

static int device_reach(void *host, void *device, size_t bytes, bool to_device)
{
    memcpy(to_device ? device : host, to_device ? host : device, bytes);
    return 0;
}

static bool device_is_listed(void)
{
    return true;
}

static void device_note(const char *what, size_t bytes)
{
    (void)bytes;
    device_moves += strcmp(what, "sent") == 0 || strcmp(what, "came") == 0;
}

static size_t device_header_bytes(size_t bytes)
{
    return bytes;
}

static struct backend direct_backend;
static atomic_int pieces_out;          /* allocations of pieces */
static atomic_int pieces_refused_from; /* so many are given at most */
static atomic_bool crowded;            /* nothing is free once a stage is loaded */
static atomic_int allocated;           /* since a stage was ordered */

static bool is_pieces(uint64_t bytes)
{
    return bytes == (uint64_t)DATA_STAGE_OUTPUTS * PIECE_BYTES;
}

static int direct_open(const struct device_config *c, struct device **out, struct err *e)
{
    int rc = cpu_backend.device_open(c, out, e);
    if (rc == 0)
        (*out)->backend = &direct_backend;
    return rc;
}

static int direct_alloc(struct device *d, uint64_t bytes, struct memory *out, struct err *e)
{
    if (is_pieces(bytes) && pieces_out >= pieces_refused_from)
        return err_set(e, HP_ENOMEM, "no piece is left");
    pieces_out += is_pieces(bytes);
    allocated++;
    return cpu_backend.memory_alloc(d, bytes, out, e);
}

static void direct_release(struct device *d, struct memory *m)
{
    pieces_out -= is_pieces(m->bytes);
    cpu_backend.memory_release(d, m);
}

static uint64_t direct_free(const struct device *d)
{
    return crowded && allocated ? 1 : cpu_backend.memory_free(d);
}

static void backend_make(void)
{
    direct_backend = cpu_backend;
    direct_backend.device_open = direct_open;
    direct_backend.memory_alloc = direct_alloc;
    direct_backend.memory_release = direct_release;
    direct_backend.memory_free = direct_free;
    direct_backend.memory_kind = MEMORY_CUDA;
    pieces_refused_from = 1 << 20;
    crowded = false;
}

/* ---- a stage on an executor with a data channel of its own ---- */

struct direct_side {
    struct data_endpoint *data;
    struct key_pair keys;
    struct executor *x;
    sem_t loaded, opened, ran, came;
    int load_status, run_status;
    char text[200];
    uint32_t vocabulary;
    float *logits;
    size_t n_logits;
    struct data_buffer *frame;
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct direct_side *s = ctx;
    (void)h;
    s->frame = payload;
    sem_post(&s->came);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct direct_side *s = ctx;
    if (r->kind == EXECUTOR_LOADED && r->status != HP_PENDING) {
        s->load_status = r->status;
        s->vocabulary = r->vocabulary;
        sem_post(&s->loaded);
    } else if (r->kind == EXECUTOR_OPENED) {
        sem_post(&s->opened);
    } else if (r->kind == EXECUTOR_RAN) {
        s->run_status = r->status;
        if (r->status < 0)
            snprintf(s->text, sizeof s->text, "%s", r->error->text);
        else if (r->logits && s->logits)
            memcpy(s->logits, r->logits, s->n_logits * sizeof *s->logits);
        sem_post(&s->ran);
    }
}

static void side_open(struct direct_side *s, bool direct)
{
    struct err e = {0};
    memset(s, 0, sizeof *s);
    sem_t *all[] = {&s->loaded, &s->opened, &s->ran, &s->came};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    assert_int_equal(key_pair_create(&s->keys, NULL), 0);
    struct data_config d = {.network = "lo",
                            .host = "127.0.0.1",
                            .keys = s->keys,
                            .device = direct ? MEMORY_CUDA : MEMORY_HOST,
                            .callbacks = {s, on_frame, NULL}};
    if (data_open_ucx(&d, &s->data, &e) < 0)
        fail_msg("%s", e.text);
    struct executor_config c = {.device = {.backend = "cpu", .of = &direct_backend, .n_threads = 1},
                                .data = s->data,
                                .direct = direct,
                                .report = told,
                                .ctx = s};
    assert_int_equal(executor_create(&c, &s->x, &e), 0);
}

static void side_load(struct direct_side *s, int first, int end)
{
    allocated = 0;
    executor_load(s->x, &(struct executor_load){.slot = SLOT,
                                                .ticket = SLOT,
                                                .path = demo_model,
                                                .first_layer = first,
                                                .end_layer = end,
                                                .f32 = true,
                                                .kv_tokens = 512,
                                                .max_sequences = 4,
                                                .max_batch_tokens = 128,
                                                .n_stages = 2});
    semaphore_wait(&s->loaded, LIMIT_S);
    assert_int_equal(s->load_status, 0);
    for (uint64_t q = 1; q <= 2; q++) {
        executor_sequence_open(
            s->x,
            &(struct executor_opening){.slot = SLOT, .ticket = q, .sequence = q, .kv_tokens = 128});
        semaphore_wait(&s->opened, LIMIT_S);
    }
}

/* In the order of an agent that stops. */
static void side_close(struct direct_side *s)
{
    executor_stop(s->x);
    data_buffer_release(s->data, s->frame);
    data_close(&s->data);
    executor_destroy(&s->x);
}

/* ---- both ---- */

struct direct_pair {
    struct direct_side front, back;
    struct outlet *outlet;
};

static void outlet_gone(void *ctx, uint64_t slot, uint64_t link, int status, bool reserved)
{
    (void)ctx, (void)slot, (void)link, (void)reserved;
    assert_int_equal(status, 0);
}

static void pair_open(struct direct_pair *p, bool from, bool to)
{
    uint8_t key[1][KEY_BYTES];
    struct err e = {0};
    size_t size;
    side_open(&p->front, from);
    side_open(&p->back, to);
    assert_int_equal(key_decode(p->front.keys.public_key, key[0], NULL), 0);
    assert_int_equal(data_peers_allow(p->back.data, (const uint8_t(*)[KEY_BYTES])key, 1, NULL), 0);
    assert_int_equal(data_allow(p->back.data, SESSION, NULL, NULL), 0);
    side_load(&p->front, 0, CUT);
    side_load(&p->back, CUT, LAYERS);
    executor_expect(p->back.x, SLOT, SESSION);
    executor_sequence_open(p->back.x, /* behind it */
                           &(struct executor_opening){.slot = SLOT, .sequence = 9, .kv_tokens = 1});
    semaphore_wait(&p->back.opened, LIMIT_S);
    struct outlet_config oc = {.data = p->front.data, .device = "", .left = outlet_gone};
    const uint8_t *address = data_address(p->back.data, &size);
    assert_int_equal(outlet_open(&oc, address, size, &p->outlet, &e), 0);
}

static void pair_close(struct direct_pair *p)
{
    outlet_release(p->outlet);
    side_close(&p->front);
    side_close(&p->back);
    assert_int_equal(pieces_out, 0);
}

/* A long run and a short one through the first stage, and into a frame at the second. */
static void front_run(struct direct_pair *p, struct batch *b)
{
    assert_true(batch_reserve(b, 2, TOKENS));
    for (uint32_t i = 0; i < TOKENS; i++)
        b->ids[i] = 3 + 7 * i % 200;
    batch_append(b, &(struct batch_run){.sequence = 1, .n_tokens = LONG});
    batch_append(b, &(struct batch_run){.sequence = 2, .n_tokens = SHORT, .row = LONG});
    executor_run(p->front.x, &(struct executor_run){.slot = SLOT,
                                                    .ticket = 1,
                                                    .batch = b,
                                                    .reserved = true,
                                                    .outlet = outlet_hold(p->outlet),
                                                    .header = {.kind = FRAME_ACTIVATION,
                                                               .session = SESSION,
                                                               .n_runs = 2,
                                                               .n_tokens = TOKENS}});
    semaphore_wait(&p->front.ran, LIMIT_S);
    if (p->front.run_status < 0)
        fail_msg("%s", p->front.text);
    semaphore_wait(&p->back.came, LIMIT_S);
}

/* Logits of the last tokens of both runs, or of the short one alone, the long one being dropped. */
static void back_run(struct direct_pair *p, bool both, float *logits)
{
    struct batch b = {0};
    assert_true(batch_reserve(&b, 2, 0));
    if (both)
        batch_append(&b, &(struct batch_run){.sequence = 1, .n_tokens = LONG, .n_logits = 1});
    batch_append(&b,
                 &(struct batch_run){.sequence = 2, .n_tokens = SHORT, .n_logits = 1, .row = LONG});
    b.input = p->back.frame;
    b.input_runs = 2;
    b.input_tokens = TOKENS;
    p->back.frame = NULL;
    p->back.logits = logits;
    p->back.n_logits = (size_t)b.n_runs * p->back.vocabulary;
    executor_run(p->back.x, &(struct executor_run){.slot = SLOT, .ticket = 2, .batch = &b});
    semaphore_wait(&p->back.ran, LIMIT_S);
    if (p->back.run_status < 0)
        fail_msg("%s", p->back.text);
    batch_free(&b);
}

static uint64_t direct_frames(const struct direct_side *s, bool came)
{
    struct data_stats st;
    data_stats(s->data, &st);
    return came ? st.device_received : st.device_sent;
}

enum { MOST_LOGITS = 2 * 2048 };

static void logits_of(bool from, bool to, bool both, float *out)
{
    struct direct_pair p;
    struct batch b = {0};
    pair_open(&p, from, to);
    assert_true(2 * p.back.vocabulary <= MOST_LOGITS);
    front_run(&p, &b);
    assert_int_equal(p.back.frame->device != NULL, to);
    assert_true(EVENTUALLY(direct_frames(&p.front, false) == from));
    assert_int_equal(direct_frames(&p.back, true), to);
    back_run(&p, both, out);
    pair_close(&p);
    batch_free(&b);
}

TEST(logits_are_the_same_whichever_way_rows_go_and_also_where_a_run_was_dropped)
{
    static float want[MOST_LOGITS], got[MOST_LOGITS];
    backend_make();
    for (int both = 0; both < 2; both++) {
        memset(want, 0, sizeof want);
        logits_of(false, false, both, want);
        for (int way = 1; way < 4; way++) {
            memset(got, 0, sizeof got);
            logits_of(way & 1, way & 2, both, got);
            if (memcmp(got, want, sizeof want) != 0)
                fail_msg("%s, way %d: other logits", both ? "both runs" : "one run", way);
        }
    }
    assert_true(device_moves > 0);
}

TEST(where_the_device_has_no_room_rows_go_by_the_host)
{
    static float logits[MOST_LOGITS];
    struct {
        int pieces;
        bool crowded;
    } cases[] = {{0, false}, {1, false}, {1 << 20, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct direct_pair p;
        struct batch b = {0};
        backend_make();
        pieces_refused_from = cases[i].pieces;
        crowded = cases[i].crowded;
        pair_open(&p, true, true);
        assert_int_equal(pieces_out, cases[i].pieces == 1);
        front_run(&p, &b);
        assert_null(p.back.frame->device);
        assert_true(EVENTUALLY(direct_frames(&p.front, false) == (cases[i].pieces == 1)));
        if (!cases[i].crowded) /* else there is none for logits, either */
            back_run(&p, true, logits);
        pair_close(&p);
        batch_free(&b);
    }
}

TEST(memory_outlives_its_stage_as_long_as_somebody_has_some_of_it)
{
    struct direct_pair p;
    struct batch b = {0};
    backend_make();
    pair_open(&p, true, true);
    assert_int_equal(pieces_out, 2);
    front_run(&p, &b);
    executor_unload(p.front.x, SLOT);
    assert_true(EVENTUALLY(pieces_out == 1));
    executor_unload(p.back.x, SLOT);
    side_load(&p.back, CUT, LAYERS); /* behind it */
    assert_int_equal(pieces_out, 2); /* the frame's, and the new stage's */
    data_buffer_release(p.back.data, p.back.frame);
    p.back.frame = NULL;
    assert_true(EVENTUALLY(pieces_out == 1));
    pair_close(&p);
    batch_free(&b);
}

TEST(an_agent_that_stops_frees_the_device_after_the_data_channel)
{
    struct direct_pair p;
    struct batch b = {0};
    backend_make();
    pair_open(&p, true, true);
    front_run(&p, &b);
    executor_stop(p.back.x);
    assert_int_equal(pieces_out, 2); /* of the front, and of the frame that nobody has used */
    pair_close(&p);
    batch_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            logits_are_the_same_whichever_way_rows_go_and_also_where_a_run_was_dropped),
        cmocka_unit_test(where_the_device_has_no_room_rows_go_by_the_host),
        cmocka_unit_test(memory_outlives_its_stage_as_long_as_somebody_has_some_of_it),
        cmocka_unit_test(an_agent_that_stops_frees_the_device_after_the_data_channel),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("executor_direct", tests, NULL, NULL);
}
