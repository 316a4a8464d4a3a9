/* Messages, keys and data endpoints, with every allocation failing once. */
#include <sys/stat.h>

#include "tests/unit/faults.h"
#include "transport/data.h"
#include "transport/data_late.h"
#include "transport/keys.h"
#include "transport/message.h"

/* ---- messages ---- */

static const uint32_t numbers[] = {1, 2, 3};
static const uint8_t some_bytes[] = {1, 2, 3, 4};
static struct sampling_bias biases[] = {{7, -1.5}, {9, 100}};
static struct message_peer peers[] = {{"a", {some_bytes, 4}}, {"b", {some_bytes, 4}}};
static struct message_model models[] = {{{some_bytes, 4}, 5, "m"}};

static int message_there_and_back(void *ctx)
{
    const struct message *m = ctx;
    struct buffer bytes = {0};
    struct arena arena = {0};
    struct message back;
    struct err e = {0};
    message_encode(m, &bytes);
    int rc = bytes.failed ? HP_ENOMEM : message_decode(bytes.data, bytes.size, &arena, &back, &e);
    rc = rc == 0 && back.type != m->type ? HP_EBUG : rc;
    buffer_free(&bytes);
    arena_free(&arena);
    return rc;
}

TEST(messages_bear_failing_allocations)
{
    struct message all[] = {{.type = MESSAGE_SEQUENCE_OPEN, .id = 4},
                            {.type = MESSAGE_STAGE_PREPARE, .id = 5},
                            {.type = MESSAGE_STORE_STATE},
                            {.type = MESSAGE_ANSWER}};
    all[0].u.sequence_open = (struct message_sequence_open){.deployment = 1,
                                                            .generation = 2,
                                                            .sequence = 3,
                                                            .prompt = {numbers, 3},
                                                            .sampling.bias = {biases, 2}};
    all[1].u.stage_prepare = (struct message_stage_prepare){.deployment = 1,
                                                            .generation = 1,
                                                            .n_stages = 1,
                                                            .deployment_name = "d",
                                                            .model = {some_bytes, 4},
                                                            .manifest = {some_bytes, 4},
                                                            .compute = "auto",
                                                            .source_machine = "x",
                                                            .source_path = "y",
                                                            .peers = {peers, 2}};
    all[2].u.store_state = (struct message_store_state){.models = {models, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        faults_each(message_type_word(all[i].type), message_there_and_back, &all[i]);
    for (int t = MESSAGE_NONE + 1; t < MESSAGE_TYPE_COUNT; t++) {
        struct message empty = {.type = (enum message_type)t, .id = 1};
        faults_each(message_type_word(empty.type), message_there_and_back, &empty);
    }
}

/* ---- keys ---- */

static int keys_kept(void *ctx)
{
    struct key_pair keys, again;
    struct err e = {0};
    char file[96];
    snprintf(file, sizeof file, "%s/key", (const char *)ctx);
    int rc = key_pair_load_or_create(file, &keys, &e);
    rc = rc < 0 ? rc : key_pair_load_or_create(file, &again, &e);
    unlink(file);
    return rc;
}

static void keys_bear_failing_allocations(void **state)
{
    char folder[] = "/tmp/hp-faults-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    faults_each("keys", keys_kept, folder);
    rmdir(folder);
}

/* ---- data endpoints ---- */

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct data_endpoint **d = ctx;
    (void)h;
    data_buffer_release(*d, payload);
}

static void on_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    (void)link;
    (void)why;
}

struct done {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count, status;
};

static void on_done(void *ctx, int status)
{
    struct done *d = ctx;
    pthread_mutex_lock(&d->lock);
    d->count++;
    d->status = status;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

/* Opens an endpoint that talks to itself, and sends a frame: `done` must come whatever fails, and
 * once. */
static int frame_to_itself(int (*open_kind)(const struct data_config *, struct data_endpoint **,
                                            struct err *))
{
    static const uint8_t from_anybody[1][KEY_BYTES];
    struct data_endpoint *d = NULL;
    struct data_link *link = NULL;
    struct done done = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct data_config c = {.network = "lo", .callbacks = {&d, on_frame, on_link_down}};
    struct err e = {0};
    size_t size;
    int rc = key_pair_create(&c.keys, &e);
    rc = rc < 0 ? rc : open_kind(&c, &d, &e);
    if (rc < 0)
        return rc;
    rc = data_peers_allow(d, from_anybody, 1, &e);
    rc = rc < 0 ? rc : data_allow(d, 7, NULL, &e);
    const uint8_t *address = data_address(d, &size);
    rc = rc < 0 ? rc : data_connect(d, address, size, &link, &e);
    struct data_buffer *b = rc == 0 ? data_buffer_get(d, 1000) : NULL;
    if (rc == 0 && !b)
        rc = HP_ENOMEM;
    if (b) {
        data_post(link,
                  &(struct frame_header){.kind = FRAME_PROBE, .dtype = FRAME_BYTES, .session = 7},
                  b, on_done, &done);
        pthread_mutex_lock(&done.lock);
        while (!done.count)
            pthread_cond_wait(&done.changed, &done.lock);
        rc = done.status == 0 || done.status == HP_ENOMEM ? done.status
             : done.status == HP_ELINK                    ? HP_ENOMEM
                                       : done.status; /* no memory breaks a link */
        pthread_mutex_unlock(&done.lock);
    }
    if (link)
        data_disconnect(&link);
    data_close(&d);
    return done.count > 1 ? HP_EBUG : rc;
}

static int inproc_used(void *ctx)
{
    (void)ctx;
    return frame_to_itself(data_open_inproc);
}

static int frame_late(struct data_endpoint *from, struct data_endpoint *to, struct done *done)
{
    struct data_link *link = NULL;
    struct err e = {0};
    size_t size;
    const uint8_t *address = data_address(to, &size);
    int rc = data_late_set(
        from, &(struct data_lateness){.delay_ns = 1000000, .for_ns = UINT64_C(3600000000000)}, &e);
    rc = rc < 0 ? rc : data_connect(from, address, size, &link, &e);
    if (rc < 0)
        return rc;
    data_post(link, &(struct frame_header){.kind = FRAME_PROBE, .dtype = FRAME_BYTES}, NULL,
              on_done, done);
    data_disconnect(&link);
    pthread_mutex_lock(&done->lock);
    while (!done->count)
        pthread_cond_wait(&done->changed, &done->lock);
    rc = done->status;
    pthread_mutex_unlock(&done->lock);
    return rc;
}

static int late_used(void *ctx)
{
    struct data_endpoint *from = NULL, *to = NULL;
    struct done done = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct data_config c = {.callbacks = {&from, on_frame, on_link_down}};
    struct err e = {0};
    (void)ctx;
    int rc = data_open_inproc(&c, &from, &e);
    rc = rc < 0 ? rc : data_late_open(from, &e);
    rc = rc < 0 ? rc : data_open_inproc(&c, &to, &e);
    rc = rc < 0 ? rc : frame_late(from, to, &done);
    data_close(&from);
    data_close(&to);
    return done.count > 1 ? HP_EBUG : rc;
}

/* What happens on the caller's thread: its own is another's business. */
static int endpoint_opened(int (*open_kind)(const struct data_config *, struct data_endpoint **,
                                            struct err *))
{
    static const uint8_t some_key[1][KEY_BYTES];
    struct data_endpoint *d = NULL;
    struct data_link *link = NULL;
    struct data_config c = {.network = "lo", .callbacks = {&d, on_frame, on_link_down}};
    struct err e = {0};
    size_t size;
    int rc = key_pair_create(&c.keys, &e);
    rc = rc < 0 ? rc : open_kind(&c, &d, &e);
    if (rc < 0)
        return rc;
    rc = data_peers_allow(d, some_key, 1, &e);
    rc = rc < 0 ? rc : data_allow(d, 7, NULL, &e);
    const uint8_t *address = data_address(d, &size);
    rc = rc < 0 ? rc : data_connect(d, address, size, &link, &e);
    if (link)
        data_disconnect(&link);
    data_close(&d);
    return rc;
}

static int tcp_opened(void *ctx)
{
    (void)ctx;
    return endpoint_opened(data_open_tcp);
}

static int ucx_opened(void *ctx)
{
    (void)ctx;
    return endpoint_opened(data_open_ucx);
}

TEST(endpoints_bear_failing_allocations)
{
    faults_each("in-process endpoint", inproc_used, NULL);
    faults_each("endpoint whose frames are late", late_used, NULL);
    faults_each("tcp endpoint", tcp_opened, NULL);
    assert_int_equal(ucx_opened(NULL), 0); /* UCX keeps some things for good */
    faults_each("ucx endpoint", ucx_opened, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_bear_failing_allocations),
        cmocka_unit_test(keys_bear_failing_allocations),
        cmocka_unit_test(endpoints_bear_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
