/* Rows that UCX sends from memory of a device and receives there: here memory that no load and no
 * store of this process reaches, by a UCX that knows it (tests/ucx_device.h). */
#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/ucx_device.h"
#include "ucx_fixture.h"

enum { RUNS = 3, PIECES = 2, ROWS_BYTES = 200000, PIECE_BYTES = 1 << 18, HEAD = RUNS * 24 };

static atomic_bool listed = true, lost;
static atomic_int header_cut; /* so many bytes of a run table are not sent */
static atomic_int posted;     /* rows that a device awaits, and has awaited */
static atomic_bool
    stalls; /* whoever sends rows of the host's stands still once they are announced */

static bool device_is_listed(void)
{
    return listed;
}

static int device_reach(void *host, void *device, size_t bytes, bool to_device)
{
    uintptr_t page = (uintptr_t)device & ~(uintptr_t)4095;
    size_t span = ((uintptr_t)device + bytes - page + 4095) & ~(size_t)4095;
    if (lost)
        return -1;
    if (mprotect((void *)page, span, PROT_READ | PROT_WRITE) != 0)
        abort(); /* it has been freed */
    memcpy(to_device ? device : host, to_device ? host : device, bytes);
    mprotect((void *)page, span, PROT_NONE);
    return 0;
}

static size_t device_header_bytes(size_t bytes)
{
    return bytes > FRAME_HEADER_BYTES ? bytes - (size_t)header_cut : bytes;
}

static void device_note(const char *what, size_t bytes)
{
    posted += strcmp(what, "posted") == 0;
    while (stalls && bytes == ROWS_BYTES && strcmp(what, "host_sent") == 0)
        usleep(1000);
}

/* ---- an end with a device ---- */

struct device_end {
    struct ucx_end end;
    uint8_t *memory;
    struct data_reserve *reserve;
    atomic_int entered, over;
    struct data_buffer *kept[8]; /* frames that came, under the end's lock */
    int n_kept;
    bool keeps;
    atomic_bool stalls; /* it stands still when a frame comes */
};

static void keep_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct device_end *d = ctx;
    (void)h;
    while (d->stalls)
        usleep(1000);
    if (d->keeps) {
        pthread_mutex_lock(&d->end.lock);
        d->kept[d->n_kept++] = payload;
        pthread_mutex_unlock(&d->end.lock);
    } else {
        data_buffer_release(d->end.d, payload);
    }
    end_count(&d->end, &d->end.frames);
}

static void on_enter(void *ctx)
{
    ((struct device_end *)ctx)->entered++;
}

static void on_over(void *ctx)
{
    ((struct device_end *)ctx)->over++;
}

static struct data_lent lent_of(struct device_end *d)
{
    return (struct data_lent){.kind = MEMORY_CUDA,
                              .memory = d->memory,
                              .n = PIECES,
                              .bytes = PIECE_BYTES,
                              .enter = on_enter,
                              .over = on_over,
                              .ctx = d};
}

static void device_end_open_within(struct device_end *d, enum memory_kind kind,
                                   uint64_t pool_limit_bytes)
{
    struct err e = {0};
    memset(d, 0, sizeof *d);
    end_prepare(&d->end);
    d->keeps = true;
    d->memory =
        mmap(NULL, (size_t)PIECES * PIECE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(d->memory != MAP_FAILED);
    struct data_config c = {.network = "lo",
                            .host = "127.0.0.1",
                            .keys = d->end.keys,
                            .device = kind,
                            .pool_limit_bytes = pool_limit_bytes,
                            .callbacks = {d, keep_frame, on_down}};
    if (data_open_ucx(&c, &d->end.d, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(data_allow(d->end.d, SESSION, NULL, &e), 0);
}

static void device_end_open(struct device_end *d, enum memory_kind kind)
{
    device_end_open_within(d, kind, 0);
}

static void device_lend(struct device_end *d)
{
    struct err e = {0};
    struct data_lent lent = lent_of(d);
    if (data_reserve_open_device(d->end.d, &lent, &d->reserve, &e) < 0)
        fail_msg("%s", e.text);
}

static void device_end_close(struct device_end *d)
{
    for (int i = 0; i < d->n_kept; i++)
        data_buffer_release(d->end.d, d->kept[i]);
    if (d->reserve) {
        data_receive_end(d->end.d, d->reserve);
        data_reserve_close(&d->reserve);
    }
    data_close(&d->end.d);
    pthread_mutex_destroy(&d->end.lock);
    munmap(d->memory, (size_t)PIECES * PIECE_BYTES);
}

/* ---- frames ---- */

static uint8_t byte_at(size_t i, uint8_t seed)
{
    return (uint8_t)(i * 7 + (i >> 8) + seed);
}

static struct data_buffer *buffer_of(struct device_end *d, bool on_device, uint8_t seed)
{
    uint8_t *rows = malloc(ROWS_BYTES);
    assert_non_null(rows);
    for (size_t i = 0; i < ROWS_BYTES; i++)
        rows[i] = byte_at(i, seed);
    struct data_buffer *b = on_device ? data_reserve_get_device(d->reserve, HEAD, HEAD + ROWS_BYTES)
                                      : data_buffer_get(d->end.d, HEAD + ROWS_BYTES);
    assert_non_null(b);
    memset(b->bytes, seed, HEAD);
    if (on_device)
        assert_int_equal(device_reach(rows, b->device, ROWS_BYTES, true), 0);
    else
        memcpy(b->bytes + HEAD, rows, ROWS_BYTES);
    free(rows);
    return b;
}

static const struct frame_header activation = {
    .kind = FRAME_ACTIVATION, .session = SESSION, .n_runs = RUNS};

static void buffer_check(const struct data_buffer *b, bool on_device, uint8_t seed)
{
    uint8_t *rows = malloc(ROWS_BYTES);
    assert_non_null(rows);
    assert_int_equal(b->size, HEAD + ROWS_BYTES);
    assert_int_equal(b->device != NULL, on_device);
    for (int i = 0; i < HEAD; i++)
        assert_int_equal(b->bytes[i], seed);
    if (on_device)
        assert_int_equal(device_reach(rows, b->device, ROWS_BYTES, false), 0);
    else
        memcpy(rows, b->bytes + HEAD, ROWS_BYTES);
    for (size_t i = 0; i < ROWS_BYTES; i++)
        if (rows[i] != byte_at(i, seed))
            fail_msg("byte %zu of the rows is another", i);
    free(rows);
}

static struct data_stats stats_of(const struct device_end *d)
{
    struct data_stats s;
    data_stats(d->end.d, &s);
    return s;
}

/* A link from one to the other, whose frames of SESSION come into its device's memory. */
static struct data_link *pair_open(struct device_end *from, enum memory_kind kind,
                                   struct device_end *to)
{
    device_end_open(from, kind);
    device_end_open(to, MEMORY_CUDA);
    admit(&to->end, &from->end);
    device_lend(to);
    assert_int_equal(data_receive_into(to->end.d, SESSION, to->reserve, NULL), 0);
    return link_up(&from->end, &to->end);
}

static void pair_close(struct data_link **link, struct device_end *from, struct device_end *to)
{
    data_disconnect(link);
    device_end_close(from);
    device_end_close(to);
}

TEST(rows_go_from_a_device_or_the_host_to_a_device_or_the_host)
{
    static const struct {
        bool from, to;
    } cases[] = {{true, true}, {true, false}, {false, true}, {false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_end a, b;
        device_end_open(&a, MEMORY_CUDA);
        device_end_open(&b, MEMORY_CUDA);
        admit(&b.end, &a.end);
        device_lend(&a);
        device_lend(&b);
        if (cases[i].to)
            assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
        struct data_link *link = link_to(&a.end, &b.end);
        assert_true(data_link_takes(link, MEMORY_CUDA));
        data_post(link, &activation, buffer_of(&a, cases[i].from, 5), on_done, &a.end);
        assert_true(wait_for(&b.end, &b.end.frames, 1));
        assert_true(wait_for(&a.end, &a.end.done, 1));
        assert_int_equal(a.end.failed, 0);
        buffer_check(b.kept[0], cases[i].to, 5);
        assert_int_equal(stats_of(&a).device_sent, cases[i].from);
        assert_int_equal(stats_of(&b).device_received, cases[i].to);
        assert_int_equal(a.entered, cases[i].from);
        assert_int_equal(b.entered, cases[i].to);
        data_disconnect(&link);
        device_end_close(&a);
        device_end_close(&b);
        assert_int_equal(a.over, 1);
        assert_int_equal(b.over, 1);
    }
}

TEST(rows_for_which_no_piece_is_free_come_to_the_host)
{
    enum { FRAMES = PIECES + 2 };
    struct device_end a, b;
    device_end_open(&a, MEMORY_HOST);
    device_end_open(&b, MEMORY_CUDA);
    admit(&b.end, &a.end);
    device_lend(&b);
    assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
    struct data_link *link = link_to(&a.end, &b.end);
    for (uint8_t i = 0; i < FRAMES; i++)
        data_post(link, &activation, buffer_of(&a, false, i), on_done, &a.end);
    assert_true(wait_for(&b.end, &b.end.frames, FRAMES));
    int on_device = 0;
    for (int i = 0; i < FRAMES; i++) {
        on_device += b.kept[i]->device != NULL;
        buffer_check(b.kept[i], b.kept[i]->device != NULL, b.kept[i]->bytes[0]);
    }
    assert_int_equal(on_device, PIECES);
    pair_close(&link, &a, &b);
}

/* The host has room for one frame, which is there; one more for the host waits before them. */
TEST(rows_that_wait_come_when_a_piece_is_back_whoever_waits_for_the_hosts_memory)
{
    struct device_end a, b;
    struct frame_header to_host = activation;
    to_host.session = SESSION + 1;
    device_end_open(&a, MEMORY_HOST);
    device_end_open_within(&b, MEMORY_CUDA, HEAD + ROWS_BYTES);
    admit(&b.end, &a.end);
    device_lend(&b);
    assert_int_equal(data_allow(b.end.d, SESSION + 1, NULL, NULL), 0);
    assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
    struct data_link *link = link_up(&a.end, &b.end);
    int frames = look_at(&b.end, &b.end.frames);
    data_post(link, &to_host, buffer_of(&a, false, 1), NULL, NULL);
    assert_true(wait_for(&b.end, &b.end.frames, frames += 1));
    for (int i = 0; i < PIECES; i++)
        data_post(link, &activation, buffer_of(&a, false, 2), NULL, NULL);
    assert_true(wait_for(&b.end, &b.end.frames, frames += PIECES));
    int last = frames - 1;
    data_post(link, &to_host, buffer_of(&a, false, 8), NULL, NULL);
    data_post(link, &activation, buffer_of(&a, false, 9), NULL, NULL);
    post(&a.end, link, 100); /* behind them, and small: when it is there they wait */
    assert_true(wait_for(&b.end, &b.end.frames, frames += 1));
    buffer_check(b.kept[last], true, 2);
    data_buffer_release(b.end.d, b.kept[last]);
    b.kept[last] = NULL;
    assert_true(wait_for(&b.end, &b.end.frames, frames + 1));
    buffer_check(b.kept[frames], true, 9);
    pair_close(&link, &a, &b);
}

TEST(a_header_with_less_than_its_run_table_is_dropped)
{
    static const int cuts[] = {1, 24, HEAD - 1, HEAD};
    struct device_end a, b;
    struct data_link *link = pair_open(&a, MEMORY_CUDA, &b);
    device_lend(&a);
    int frames = look_at(&b.end, &b.end.frames);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        header_cut = cuts[i];
        data_post(link, &activation, buffer_of(&a, i % 2, 1), NULL, NULL);
        assert_true(EVENTUALLY(stats_of(&b).dropped_malformed == i + 1));
    }
    header_cut = 0;
    data_post(link, &activation, buffer_of(&a, true, 9), NULL, NULL);
    assert_true(wait_for(&b.end, &b.end.frames, frames + 1));
    buffer_check(b.kept[b.n_kept - 1], true, 9);
    pair_close(&link, &a, &b);
}

TEST(small_frames_and_long_tables_never_go_by_a_device)
{
    struct device_end a;
    device_end_open(&a, MEMORY_CUDA);
    device_lend(&a);
    assert_null(data_reserve_get(a.reserve, 100));
    assert_null(data_reserve_get_device(a.reserve, HEAD, HEAD + DATA_CONTROL_BYTES));
    assert_null(data_reserve_get_device(a.reserve, DATA_HEAD_BYTES + 1, ROWS_BYTES));
    assert_null(data_reserve_get_device(a.reserve, HEAD, HEAD + PIECE_BYTES + 1));
    struct data_buffer *b = data_reserve_get_device(a.reserve, HEAD, HEAD + PIECE_BYTES);
    assert_non_null(b);
    data_buffer_release(a.end.d, b);
    device_end_close(&a);
}

TEST(a_ucx_without_cuda_takes_no_device_memory_and_neither_does_a_link_to_itself)
{
    struct device_end a;
    struct err e = {0};
    listed = false;
    device_end_open(&a, MEMORY_CUDA);
    listed = true;
    struct data_lent lent = lent_of(&a);
    assert_false(data_takes(a.end.d, MEMORY_CUDA));
    assert_int_equal(data_reserve_open_device(a.end.d, &lent, &a.reserve, &e), HP_EUNSUPPORTED);
    assert_null(a.reserve);
    device_end_close(&a);
    assert_int_equal(a.over, 0);

    device_end_open(&a, MEMORY_HOST); /* nobody asked */
    assert_false(data_takes(a.end.d, MEMORY_CUDA));
    device_end_close(&a);

    device_end_open(&a, MEMORY_CUDA);
    assert_true(data_takes(a.end.d, MEMORY_CUDA));
    struct data_link *own = link_to(&a.end, &a.end);
    assert_false(data_link_takes(own, MEMORY_CUDA));
    data_disconnect(&own);
    device_end_close(&a);
}

TEST(memory_is_over_when_the_last_buffer_is_back_and_not_before)
{
    struct device_end a;
    device_end_open(&a, MEMORY_CUDA);
    device_lend(&a);
    struct data_buffer *one = data_reserve_get_device(a.reserve, HEAD, HEAD + ROWS_BYTES),
                       *two = data_reserve_get_device(a.reserve, HEAD, HEAD + ROWS_BYTES);
    assert_null(data_reserve_get_device(a.reserve, HEAD, HEAD + ROWS_BYTES));
    assert_int_equal(labs((uint8_t *)one->device - (uint8_t *)two->device), PIECE_BYTES);
    data_reserve_close(&a.reserve);
    data_buffer_release(a.end.d, two);
    assert_int_equal(a.over, 0);
    data_buffer_release(a.end.d, one);
    assert_int_equal(a.over, 1);
    device_end_close(&a);
    assert_int_equal(a.over, 1);
}

TEST(a_session_that_is_revoked_or_told_so_receives_by_the_host_again)
{
    struct device_end a, b;
    device_end_open(&a, MEMORY_HOST);
    device_end_open(&b, MEMORY_CUDA);
    admit(&b.end, &a.end);
    device_lend(&b);
    assert_int_equal(data_receive_into(b.end.d, SESSION + 1, b.reserve, NULL), HP_ENOENT);
    assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
    data_revoke(b.end.d, SESSION);
    assert_int_equal(data_allow(b.end.d, SESSION, NULL, NULL), 0);
    struct data_link *link = link_to(&a.end, &b.end);
    data_post(link, &activation, buffer_of(&a, false, 1), on_done, &a.end);
    assert_true(wait_for(&b.end, &b.end.frames, 1));
    buffer_check(b.kept[0], false, 1);
    assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
    data_receive_end(b.end.d, b.reserve);
    data_post(link, &activation, buffer_of(&a, false, 2), on_done, &a.end);
    assert_true(wait_for(&b.end, &b.end.frames, 2));
    buffer_check(b.kept[1], false, 2);
    pair_close(&link, &a, &b);
}

/* Both ends: what was lent comes back, and the memory is touched by nobody after that. */
TEST(a_device_that_is_lost_gives_its_memory_back_and_ends_the_link)
{
    struct device_end a, b;
    struct data_link *link = pair_open(&a, MEMORY_CUDA, &b);
    device_lend(&a);
    struct data_buffer *payload = buffer_of(&a, true, 1);
    int failed = look_at(&a.end, &a.end.failed);
    lost = true;
    data_post(link, &activation, payload, on_done, &a.end);
    assert_true(wait_for(&a.end, &a.end.failed, failed + 1));
    assert_true(wait_for(&a.end, &a.end.downs, 1));
    assert_null(data_reserve_get_device(a.reserve, HEAD, HEAD + ROWS_BYTES));
    pair_close(&link, &a, &b);
    lost = false;
    assert_int_equal(a.over, 1);
    assert_int_equal(b.over, 1);
}

/* Its sender thinks that the frame has come. */
TEST(rows_that_a_device_does_not_take_end_the_link_and_the_next_come_to_the_host)
{
    struct device_end a, b;
    struct data_link *link = pair_open(&a, MEMORY_HOST, &b);
    int frames = look_at(&b.end, &b.end.frames), downs = look_at(&a.end, &a.end.downs);
    lost = true;
    data_post(link, &activation, buffer_of(&a, false, 1), NULL, NULL);
    assert_true(wait_for(&a.end, &a.end.downs, downs + 1));
    assert_int_equal(look_at(&b.end, &b.end.frames), frames);
    data_disconnect(&link);
    link = link_up(&a.end, &b.end);
    frames = look_at(&b.end, &b.end.frames);
    data_post(link, &activation, buffer_of(&a, false, 2), NULL, NULL);
    assert_true(wait_for(&b.end, &b.end.frames, frames + 1));
    buffer_check(b.kept[b.n_kept - 1], false, 2);
    lost = false;
    pair_close(&link, &a, &b);
    assert_int_equal(b.over, 1);
}

TEST(rows_come_into_the_device_again_after_peers_that_went_in_mid_transfer)
{
    enum { PEERS = 8 };
    struct device_end b;
    device_end_open(&b, MEMORY_CUDA);
    b.keeps = false;
    device_lend(&b);
    assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
    for (int i = 0; i < PEERS; i++) {
        struct device_end a;
        device_end_open(&a, MEMORY_HOST);
        admit(&b.end, &a.end);
        struct data_link *link = link_up(&a.end, &b.end);
        uint64_t before = stats_of(&b).device_received;
        data_post(link, &activation, buffer_of(&a, false, 1), NULL, NULL);
        assert_true(EVENTUALLY(stats_of(&b).device_received > before));
        for (int k = 0; k < PIECES; k++)
            data_post(link, &activation, buffer_of(&a, false, 2), NULL, NULL);
        if (i % 2)
            usleep((useconds_t)(50 * i));
        data_disconnect(&link);
        device_end_close(&a);
    }
    device_end_close(&b);
    assert_int_equal(b.over, 1);
}

/* Their connections stand, and nothing moves on them. */
TEST(memory_comes_back_from_a_peer_that_announces_rows_and_does_not_send_them)
{
    struct device_end a, b;
    struct data_link *link = pair_open(&a, MEMORY_HOST, &b);
    int before = posted;
    stalls = true;
    data_post(link, &activation, buffer_of(&a, false, 1), NULL, NULL);
    assert_true(EVENTUALLY(posted > before));
    data_receive_end(b.end.d, b.reserve);
    data_reserve_close(&b.reserve);
    data_revoke(b.end.d, SESSION);
    assert_int_equal(b.over, 0);
    assert_true(EVENTUALLY(b.over == 1));
    stalls = false;
    assert_true(wait_for(&a.end, &a.end.downs, 1));
    pair_close(&link, &a, &b);
}

TEST(memory_comes_back_from_a_peer_that_does_not_take_what_is_sent)
{
    struct device_end a, b;
    device_end_open(&a, MEMORY_CUDA);
    device_end_open(&b, MEMORY_HOST);
    admit(&b.end, &a.end);
    device_lend(&a);
    struct data_link *link = link_up(&a.end, &b.end);
    int frames = look_at(&b.end, &b.end.frames);
    b.stalls = true;
    post(&a.end, link, 100);
    data_post(link, &activation, buffer_of(&a, true, 1), NULL, NULL);
    data_disconnect(&link);
    data_reserve_close(&a.reserve);
    assert_int_equal(a.over, 0);
    assert_true(EVENTUALLY(a.over == 1));
    b.stalls = false;
    assert_true(wait_for(&b.end, &b.end.frames, frames + 1));
    device_end_close(&a);
    device_end_close(&b);
}

TEST(a_peer_that_goes_in_mid_transfer_leaves_no_memory_behind)
{
    enum { TRIES = 12 };
    for (int i = 0; i < TRIES; i++) {
        struct device_end a, b;
        device_end_open(&a, MEMORY_CUDA);
        device_end_open(&b, MEMORY_CUDA);
        b.keeps = false;
        admit(&b.end, &a.end);
        device_lend(&a);
        device_lend(&b);
        assert_int_equal(data_receive_into(b.end.d, SESSION, b.reserve, NULL), 0);
        struct data_link *link = link_up(&a.end, &b.end);
        for (int k = 0; k < PIECES; k++)
            data_post(link, &activation, buffer_of(&a, true, (uint8_t)k), on_done, &a.end);
        if (i % 3)
            usleep((useconds_t)(50 * i));
        data_disconnect(&link);
        if (i % 2) { /* whichever goes first */
            device_end_close(&a);
            device_end_close(&b);
        } else {
            device_end_close(&b);
            device_end_close(&a);
        }
        assert_int_equal(a.over, 1);
        assert_int_equal(b.over, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_from_a_device_or_the_host_to_a_device_or_the_host),
        cmocka_unit_test(rows_for_which_no_piece_is_free_come_to_the_host),
        cmocka_unit_test(
            rows_that_wait_come_when_a_piece_is_back_whoever_waits_for_the_hosts_memory),
        cmocka_unit_test(a_header_with_less_than_its_run_table_is_dropped),
        cmocka_unit_test(small_frames_and_long_tables_never_go_by_a_device),
        cmocka_unit_test(
            a_ucx_without_cuda_takes_no_device_memory_and_neither_does_a_link_to_itself),
        cmocka_unit_test(memory_is_over_when_the_last_buffer_is_back_and_not_before),
        cmocka_unit_test(a_session_that_is_revoked_or_told_so_receives_by_the_host_again),
        cmocka_unit_test(a_device_that_is_lost_gives_its_memory_back_and_ends_the_link),
        cmocka_unit_test(
            rows_that_a_device_does_not_take_end_the_link_and_the_next_come_to_the_host),
        cmocka_unit_test(rows_come_into_the_device_again_after_peers_that_went_in_mid_transfer),
        cmocka_unit_test(memory_comes_back_from_a_peer_that_announces_rows_and_does_not_send_them),
        cmocka_unit_test(memory_comes_back_from_a_peer_that_does_not_take_what_is_sent),
        cmocka_unit_test(a_peer_that_goes_in_mid_transfer_leaves_no_memory_behind),
    };
    setenv("HP_TEST_UCX_UNWANTED_MS", "1000", 1);
    return cmocka_run_group_tests_name("ucx_device", tests, NULL, NULL);
}
