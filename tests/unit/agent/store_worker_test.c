/* The store's thread against a peer that the test plays, over data endpoints of this process. */
#include <limits.h>
#include <pthread.h>
#include <time.h>

#include "agent/store_worker.h"
#include "common/env.h"
#include "model/manifest_build.h"
#include "tests/message_fixture.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"

enum { SESSION = 41, OTHER_SESSION = 42, SLOT = 7, MAX_WANTS = 64 };
static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

/* What was told last of each kind, and what the peer was asked. */
struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fetched_status, opened, changed_count;
    bool fetched;
    size_t wanted;
    char error[768];
    struct frame_header asks[MAX_WANTS];
    uint8_t asked[MAX_WANTS][DIGEST_BYTES];
    size_t n_asks, n_asked, n_answers;
};

struct store_bench {
    char folder[256], source[PATH_MAX];
    struct data_endpoint *mine, *peer;
    struct store_worker *worker;
    struct buffer manifest;
    struct arena arena;
    struct manifest decoded;
    struct digest id;
    struct told told;
};

static void on_report(void *ctx, const struct store_report *r)
{
    struct told *t = &((struct store_bench *)ctx)->told;
    pthread_mutex_lock(&t->lock);
    if (r->kind == STORE_FETCHED) {
        t->fetched = r->status != HP_PENDING;
        t->fetched_status = r->status;
        t->wanted = r->wanted.count;
        snprintf(t->error, sizeof t->error, "%s", r->error ? r->error->text : "");
    }
    t->opened += r->kind == STORE_OPENED;
    t->changed_count += r->kind == STORE_CHANGED;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct store_bench *b = ctx;
    store_worker_frame(b->worker, h, payload);
}

/* The peer keeps what it is asked, and counts what it is answered. */
static void on_peer_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct store_bench *b = ctx;
    struct told *t = &b->told;
    uint32_t n = 0;
    pthread_mutex_lock(&t->lock);
    if (h->kind == FRAME_CHUNK_WANT && payload)
        memcpy(&n, payload->bytes, sizeof n);
    for (uint32_t i = 0; i < n && t->n_asked < MAX_WANTS; i++)
        memcpy(t->asked[t->n_asked++], payload->bytes + sizeof n + (size_t)i * DIGEST_BYTES,
               DIGEST_BYTES);
    if (n && t->n_asks < MAX_WANTS)
        t->asks[t->n_asks++] = *h;
    t->n_answers += h->kind == FRAME_CHUNK;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    data_buffer_release(b->peer, payload);
}

static void on_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct store_bench *b = ctx;
    (void)why;
    if (b->worker)
        store_worker_link_down(b->worker, data_link_number(link));
}

static void on_peer_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    (void)link;
    (void)why;
}

/* Waits until what `is_so` says of the bench is so; false after 10 s. */
static bool wait_for(struct store_bench *b, bool (*is_so)(const struct told *t))
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(10 * env_time_scale());
    pthread_mutex_lock(&b->told.lock);
    int rc = 0;
    while (rc == 0 && !is_so(&b->told))
        rc = pthread_cond_timedwait(&b->told.changed, &b->told.lock, &until);
    bool so = is_so(&b->told);
    pthread_mutex_unlock(&b->told.lock);
    return so;
}

static bool is_fetched(const struct told *t)
{
    return t->fetched;
}
static bool is_asked(const struct told *t)
{
    return t->n_asked > 0;
}
static bool is_wanted(const struct told *t)
{
    return t->wanted > 0;
}
static bool is_opened(const struct told *t)
{
    return t->opened > 0;
}
static bool is_answered(const struct told *t)
{
    return t->n_answers > 0;
}

static int setup(void **state)
{
    struct store_bench *b = calloc(1, sizeof *b);
    struct model *model = NULL;
    struct err e = {0};
    pthread_mutex_init(&b->told.lock, NULL);
    pthread_cond_init(&b->told.changed, NULL);
    test_folder_make(b->folder);
    assert_non_null(realpath(demo_model, b->source));
    if (model_open(demo_model, &model, &e) < 0 ||
        manifest_build(model, NULL, NULL, NULL, &b->manifest, &e) < 0 ||
        manifest_decode(b->manifest.data, b->manifest.size, &b->arena, &b->decoded, &e) < 0)
        fail_msg("%s", e.text);
    model_close(&model);
    b->id = manifest_id(b->manifest.data, b->manifest.size);
    struct data_config mine = {.callbacks = {b, on_frame, on_link_down}},
                       peer = {.callbacks = {b, on_peer_frame, on_peer_link_down}};
    struct store_worker_config c = {
        .folder = b->folder, .machine = "here", .report = on_report, .ctx = b};
    assert_int_equal(data_open_inproc(&mine, &b->mine, &e), 0);
    assert_int_equal(data_open_inproc(&peer, &b->peer, &e), 0);
    c.data = b->mine;
    if (store_worker_create(&c, &b->worker, &e) < 0)
        fail_msg("%s", e.text);
    static const uint64_t sessions[] = {SESSION, OTHER_SESSION};
    for (int i = 0; i < 2; i++) {
        data_allow(b->mine, sessions[i], NULL, NULL);
        data_allow(b->peer, sessions[i], NULL, NULL);
    }
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct store_bench *b = *state;
    for (int i = 0; i < 2; i++)
        data_revoke(b->mine, SESSION + (uint64_t)i); /* nothing comes in any more */
    store_worker_destroy(&b->worker);
    data_close(&b->mine);
    data_close(&b->peer);
    buffer_free(&b->manifest);
    arena_free(&b->arena);
    test_folder_remove(b->folder);
    pthread_mutex_destroy(&b->told.lock);
    pthread_cond_destroy(&b->told.changed);
    free(b);
    return 0;
}

static void stage_fetch(struct store_bench *b, const struct message_stage_prepare *p)
{
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = *p;
    struct message_ref *prepare = message_of_test(&m);
    store_worker_fetch(b->worker, SLOT, 1, prepare);
    message_ref_release(prepare);
}

/* Layers 1 to 2 of the demo model, from the peer or from the file itself. */
static void fetch(struct store_bench *b, bool from_file)
{
    size_t size;
    const uint8_t *address = data_address(b->peer, &size);
    struct message_peer peer = {"peer", {address, size}};
    struct message_stage_prepare p = {.deployment = 1,
                                      .generation = 1,
                                      .session = SESSION,
                                      .deployment_name = "d",
                                      .model = {b->id.bytes, DIGEST_BYTES},
                                      .manifest = {b->manifest.data, b->manifest.size},
                                      .first_layer = 1,
                                      .end_layer = 2,
                                      .compute = "auto",
                                      .source_machine = "here",
                                      .source_path = from_file ? b->source : "",
                                      .peers = {&peer, from_file ? 0 : 1}};
    pthread_mutex_lock(&b->told.lock);
    b->told.fetched = false;
    pthread_mutex_unlock(&b->told.lock);
    stage_fetch(b, &p);
}

/* The peer says "not here" of everything that it was asked. */
static void say_not_here(struct store_bench *b, uint64_t session, uint32_t batch)
{
    size_t size;
    const uint8_t *address = data_address(b->mine, &size);
    struct data_link *link = NULL;
    assert_int_equal(data_connect(b->peer, address, size, &link, NULL), 0);
    for (size_t i = 0; i < b->decoded.chunks.count; i++) {
        struct data_buffer *out = data_buffer_get(b->peer, DIGEST_BYTES);
        assert_non_null(out);
        memcpy(out->bytes, ((const struct manifest_chunk *)b->decoded.chunks.items)[i].digest.data,
               DIGEST_BYTES);
        data_post(
            link,
            &(struct frame_header){
                .kind = FRAME_CHUNK, .dtype = FRAME_BYTES, .session = session, .batch = batch},
            out, NULL, NULL);
    }
    data_disconnect(&link);
}

/* Everything that was put to the worker before has been looked at. */
static void settle(struct store_bench *b)
{
    pthread_mutex_lock(&b->told.lock);
    b->told.opened = 0;
    pthread_mutex_unlock(&b->told.lock);
    store_worker_open(b->worker, SLOT + 1, 2,
                      (struct pack_span){b->manifest.data, b->manifest.size});
    assert_true(wait_for(b, is_opened));
    store_worker_drop(b->worker, SLOT + 1);
}

static void only_who_was_asked_can_say_that_it_does_not_have_a_chunk(void **state)
{
    struct store_bench *b = *state;
    fetch(b, false);
    assert_true(wait_for(b, is_asked));
    uint32_t mark = b->told.asks[0].batch;
    /* Another deployment's session with the right number, and the right session with numbers that
     * can be guessed. */
    say_not_here(b, OTHER_SESSION, mark);
    say_not_here(b, SESSION, 0);
    say_not_here(b, SESSION, UINT32_MAX);
    settle(b);
    assert_false(is_wanted(&b->told));
    while (!is_wanted(&b->told)) {
        say_not_here(b, SESSION, mark);
        settle(b); /* who has answered is asked for the next ones */
    }
    store_worker_drop(b->worker, SLOT);
}

static struct data_buffer *large_buffer(struct store_bench *b)
{
    return data_buffer_get(b->mine, MANIFEST_CHUNK_BYTES + DIGEST_BYTES);
}

static void chunks_are_served_when_there_is_room_and_orders_do_not_wait_for_it(void **state)
{
    struct store_bench *b = *state;
    struct data_buffer *taken[4096];
    size_t n = 0, size;
    fetch(b, true);
    assert_true(wait_for(b, is_fetched));
    assert_int_equal(b->told.fetched_status, 0);
    data_pool_limit(b->mine, 64 << 20);
    while (n < 4096 && (taken[n] = large_buffer(b)) != NULL)
        n++;
    /* The peer asks for all chunks while no buffer is free. */
    const uint8_t *mine = data_address(b->mine, &size);
    size_t address_size,
        chunks = b->decoded.chunks.count < MAX_WANTS ? b->decoded.chunks.count : MAX_WANTS;
    const uint8_t *address = data_address(b->peer, &address_size);
    uint32_t count = (uint32_t)chunks;
    struct data_link *link = NULL;
    assert_int_equal(data_connect(b->peer, mine, size, &link, NULL), 0);
    struct data_buffer *want =
        data_buffer_get(b->peer, sizeof count + chunks * DIGEST_BYTES + address_size);
    memcpy(want->bytes, &count, sizeof count);
    for (size_t i = 0; i < chunks; i++)
        memcpy(want->bytes + sizeof count + i * DIGEST_BYTES,
               ((const struct manifest_chunk *)b->decoded.chunks.items)[i].digest.data,
               DIGEST_BYTES);
    memcpy(want->bytes + sizeof count + chunks * DIGEST_BYTES, address, address_size);
    data_post(
        link,
        &(struct frame_header){.kind = FRAME_CHUNK_WANT, .dtype = FRAME_BYTES, .session = SESSION},
        want, NULL, NULL);
    uint64_t from = env_now_ns(&env_real);
    for (int i = 0; i < 5; i++)
        settle(b);
    double seconds = (double)(env_now_ns(&env_real) - from) * 1e-9;
    assert_true(seconds < 1.5 * env_time_scale()); /* it used to sleep two seconds a chunk */
    while (n)
        data_buffer_release(b->mine, taken[--n]);
    assert_true(wait_for(b, is_answered));
    data_disconnect(&link);
    store_worker_drop(b->worker, SLOT);
}

static void chunk_that_rotted_on_disk_is_fetched_again_before_it_is_used(void **state)
{
    struct store_bench *b = *state;
    char file[1024], hex[DIGEST_HEX], byte[2] = {0};
    fetch(b, true);
    assert_true(wait_for(b, is_fetched));
    store_worker_drop(b->worker, SLOT);
    digest_hex(&b->id, hex);
    snprintf(file, sizeof file, "%s/models/%s/files/demo-q8_0.gguf", b->folder, hex);
    /* A byte in the middle of some chunk that the stage needs. */
    FILE *good = fopen(demo_model, "rb"), *bad = fopen(file, "r+b");
    long at = 0;
    const struct manifest_chunk *chunks = b->decoded.chunks.items;
    for (size_t i = 0; !at && i < b->decoded.chunks.count; i++) {
        long middle = (long)(chunks[i].offset + chunks[i].bytes / 2);
        fseek(bad, middle, SEEK_SET);
        fseek(good, middle, SEEK_SET);
        byte[0] = (char)fgetc(bad);
        byte[1] = (char)fgetc(good);
        at = byte[0] && byte[0] == byte[1] ? middle : 0;
    }
    assert_true(at > 0);
    fseek(bad, at, SEEK_SET);
    fputc(byte[0] ^ 0x55, bad);
    fclose(bad);
    fetch(b, true);
    assert_true(wait_for(b, is_fetched));
    assert_int_equal(b->told.fetched_status, 0);
    bad = fopen(file, "rb");
    fseek(bad, at, SEEK_SET);
    assert_int_equal((char)fgetc(bad), byte[1]);
    fclose(bad);
    fclose(good);
    store_worker_drop(b->worker, SLOT);
}

static void peer_that_cannot_be_reached_is_given_up(void **state)
{
    struct store_bench *b = *state;
    struct message_peer peer = {"peer", {(const uint8_t *)"no address", 10}};
    struct message_stage_prepare p = {.deployment = 1,
                                      .generation = 1,
                                      .session = SESSION,
                                      .deployment_name = "d",
                                      .model = {b->id.bytes, DIGEST_BYTES},
                                      .manifest = {b->manifest.data, b->manifest.size},
                                      .first_layer = 1,
                                      .end_layer = 2,
                                      .compute = "auto",
                                      .source_machine = "",
                                      .source_path = "",
                                      .peers = {&peer, 1}};
    stage_fetch(b, &p);
    assert_true(wait_for(b, is_wanted));
    store_worker_drop(b->worker, SLOT);
}

/* Nothing of it could be opened: it is no model. */
static void a_share_wants_all_chunks_and_opens_nothing(void **state)
{
    struct store_bench *b = *state;
    static const uint32_t seeds[] = {3, 4, 5};
    struct buffer manifest = test_manifest("net.onnx", seeds, 3);
    struct digest id = manifest_id(manifest.data, manifest.size);
    struct message_share share = {.parts = 1, .n_blocks = 1, .batch = 1};
    const struct message_stage_prepare p = {.deployment = 1,
                                            .generation = 1,
                                            .session = SESSION,
                                            .model = {id.bytes, sizeof id.bytes},
                                            .manifest = {manifest.data, manifest.size},
                                            .end_layer = 1,
                                            .source_machine = "",
                                            .source_path = "",
                                            .share = {&share, 1}};
    stage_fetch(b, &p);
    assert_true(wait_for(b, is_wanted));
    pthread_mutex_lock(&b->told.lock);
    assert_int_equal(b->told.wanted, 3);
    pthread_mutex_unlock(&b->told.lock);
    buffer_free(&manifest);
}

int main(void)
{
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(a_share_wants_all_chunks_and_opens_nothing),
        CLAIM(only_who_was_asked_can_say_that_it_does_not_have_a_chunk),
        CLAIM(chunks_are_served_when_there_is_room_and_orders_do_not_wait_for_it),
        CLAIM(chunk_that_rotted_on_disk_is_fetched_again_before_it_is_used),
        CLAIM(peer_that_cannot_be_reached_is_given_up),
    };
    if (access(demo_model, R_OK) != 0) {
        printf("1..1\nok 1 - the store and its peers # SKIP %s is not here\n", demo_model);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
#undef CLAIM
}
