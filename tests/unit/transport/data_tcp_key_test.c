/* What the holder of one key may do to data_tcp: run twice, knock without end, and read nothing.
 * Waits: until who reads nothing is given up. */
#include "tcp_fixture.h"

static void member_make(struct raw *r, struct end *of)
{
    struct end name = {0};
    assert_int_equal(key_pair_create(&name.keys, NULL), 0);
    assert_true(raw_init(r, &name.keys));
    admit(of, &name);
}

/* Another process that holds the same key. */
static void open_twin(struct end *twin, const struct end *of)
{
    struct err e = {0};
    memset(twin, 0, sizeof *twin);
    pthread_mutex_init(&twin->lock, NULL);
    pthread_cond_init(&twin->changed, NULL);
    twin->keys = of->keys;
    struct data_config c = {
        .network = "lo", .keys = twin->keys, .callbacks = {twin, on_frame, on_down}};
    if (data_open_tcp(&c, &twin->d, &e) < 0)
        fail_msg("%s", e.text);
}

TEST(two_processes_with_one_key_send_side_by_side)
{
    enum { FRAMES = 20 };
    struct end a, twin, b;
    open_end(&a, data_open_tcp, 0);
    open_twin(&twin, &a);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    struct data_link *one = link_to(&a, &b), *two = link_to(&twin, &b);
    for (int i = 0; i < FRAMES; i++) {
        post(&a, one, SESSION, 1 << 20);
        post(&twin, two, SESSION, 1 << 20);
        assert_true(wait_for(&b, &b.frames, 2 * i + 2));
    }
    assert_true(wait_for(&a, &a.done, FRAMES) && wait_for(&twin, &twin.done, FRAMES));
    assert_int_equal(look_at(&a, &a.failed) + look_at(&a, &a.downs) + look_at(&twin, &twin.failed) +
                         look_at(&twin, &twin.downs),
                     0);
    data_disconnect(&one);
    data_disconnect(&two);
    data_close(&a.d);
    data_close(&twin.d);
    data_close(&b.d);
}

TEST(one_key_holds_a_few_connections_and_no_more)
{
    struct end b;
    struct raw knocks[TCP_MAX_OF_KEY + 4];
    open_end(&b, data_open_tcp, 0);
    member_make(&knocks[0], &b);
    for (int i = 0; i < TCP_MAX_OF_KEY + 4; i++) {
        knocks[i] = (struct raw){.fd = -1, .keys = knocks[0].keys};
        assert_true(prove(&knocks[i], &b)); /* says nothing after that */
    }
    for (int i = TCP_MAX_OF_KEY; i < TCP_MAX_OF_KEY + 4; i++)
        assert_true(raw_is_closed_within(knocks[i].fd, 1000));
    assert_true(EVENTUALLY(refused(&b) >= 4)); /* counted a moment after the close */
    assert_int_equal(refused(&b), 4);
    for (int i = 0; i < TCP_MAX_OF_KEY + 4; i++)
        raw_close(&knocks[i]);
    data_close(&b.d);
}

TEST(a_member_whose_heart_beats_but_reads_nothing_is_given_up)
{
    enum { FRAMES = 300 };
    struct end a;
    struct raw r;
    struct data_link *link;
    char text[DATA_ADDRESS_TEXT];
    uint8_t frame[FRAME_HEADER_BYTES];
    double scale = env_time_scale();
    char scaled[32];
    snprintf(scaled, sizeof scaled, "%g", scale / 5);
    setenv("HP_TIME_SCALE", scaled, 1);
    open_end(&a, data_open_tcp, 0);
    member_make(&r, &a);
    assert_true(prove(&r, &a));
    raw_hello(&r);
    struct data_address where = {.kind = DATA_KIND_TCP, .host = "127.0.0.1", .port = 9};
    memcpy(where.key, r.key, KEY_BYTES);
    size_t n = data_address_print(&where, text);
    assert_true(raw_hear_kind(&r, RECORD_HELLO));
    data_allow(a.d, SESSION, NULL, NULL);
    raw_header(frame, SESSION, 0);
    raw_say(&r, RECORD_FRAME, 0, frame, sizeof frame);
    assert_true(wait_for(&a, &a.frames, 1)); /* so the greeting, which came before, is there, and
                                                what is posted goes over this connection */
    assert_int_equal(data_connect(a.d, (const uint8_t *)text, n, &link, NULL), 0);
    for (int i = 0; i < FRAMES; i++)
        post(&a, link, SESSION, 60000); /* more than the sockets take */
    for (int i = 0; i < 250 && !look_at(&a, &a.downs); i++) {
        raw_say(&r, RECORD_BEAT, 0, NULL, 0);
        nanosleep(&(struct timespec){0, (long)(50e6 * scale)}, NULL);
    }
    assert_int_equal(look_at(&a, &a.downs), 1);
    assert_non_null(strstr(a.why.text, "has read nothing"));
    assert_true(wait_for(&a, &a.done, FRAMES));
    struct data_stats stats;
    data_stats(a.d, &stats);
    assert_int_equal(stats.buffers_bytes, 0);
    raw_close(&r);
    data_disconnect(&link);
    data_close(&a.d);
    snprintf(scaled, sizeof scaled, "%g", scale);
    setenv("HP_TIME_SCALE", scaled, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_with_one_key_send_side_by_side),
        cmocka_unit_test(one_key_holds_a_few_connections_and_no_more),
        cmocka_unit_test(a_member_whose_heart_beats_but_reads_nothing_is_given_up),
    };
    return cmocka_run_group_tests_name("data_tcp: one key", tests, NULL, NULL);
}
