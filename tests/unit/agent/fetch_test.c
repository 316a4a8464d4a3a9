#include <string.h>

#include "agent/fetch.h"
#include "tests/test.h"

static const uint64_t ms = 1000000;

static struct fetch *fetch_of(uint32_t n, int n_peers)
{
    uint32_t numbers[256], bytes[256];
    struct fetch *f;
    for (uint32_t i = 0; i < n; i++) {
        numbers[i] = 10 * i;
        bytes[i] = 100;
    }
    assert_int_equal(fetch_create(numbers, bytes, n, n_peers, &f, NULL), 0);
    return f;
}

static void nothing_is_here(struct fetch *f)
{
    uint32_t chunk;
    while (fetch_local_next(f, &chunk))
        fetch_not_here(f, chunk);
}

TEST(this_box_is_looked_through_first)
{
    struct fetch *f = fetch_of(3, 1);
    uint32_t chunk, asked[FETCH_ASK_CHUNKS];
    int peer;
    size_t n;
    assert_true(fetch_local_next(f, &chunk));
    assert_int_equal(chunk, 0);
    assert_int_equal(fetch_ask(f, 0, &peer, asked), 0);
    fetch_arrived(f, 0, -1, 0);
    assert_true(fetch_local_next(f, &chunk));
    assert_int_equal(chunk, 10);
    fetch_not_here(f, 10);
    assert_int_equal(fetch_ask(f, 0, &peer, asked), 1);
    assert_int_equal(asked[0], 10);
    assert_true(fetch_local_next(f, &chunk));
    fetch_arrived(f, 20, -1, 0);
    fetch_wanted(f, &n);
    assert_int_equal(n, 0); /* the peer may still have it */
    fetch_arrived(f, 10, 0, 0);
    fetch_arrived(f, 10, 0, 0);
    assert_true(fetch_is_done(f));
    assert_int_equal(fetch_done_bytes(f), 300);
    fetch_destroy(&f);
}

TEST(what_no_peer_has_is_wanted_and_an_upload_ends_it)
{
    struct fetch *f = fetch_of(2, 2);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int peer, first;
    size_t n;
    nothing_is_here(f);
    assert_int_equal(fetch_ask(f, 0, &first, asked), 2);
    fetch_refused(f, 0, first, 0);
    fetch_refused(f, 10, first, 0);
    assert_int_equal(fetch_ask(f, 0, &peer, asked), 2);
    assert_int_not_equal(peer, first);
    fetch_refused(f, 0, peer, 0);
    fetch_arrived(f, 10, peer, 0);
    const uint32_t *wanted = fetch_wanted(f, &n);
    assert_int_equal(n, 1);
    assert_int_equal(wanted[0], 0);
    fetch_arrived(f, 0, -1, 0);
    assert_true(fetch_is_done(f));
    fetch_destroy(&f);
}

TEST(a_peer_owes_only_so_much_at_once)
{
    struct fetch *f = fetch_of(100, 1);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int peer;
    size_t n = 0, got;
    nothing_is_here(f);
    while ((got = fetch_ask(f, 0, &peer, asked)) > 0)
        n += got;
    assert_int_equal(n, FETCH_PEER_OUTSTANDING);
    fetch_arrived(f, 30, 0, 0);
    assert_int_equal(fetch_ask(f, 0, &peer, asked), 1);
    assert_int_equal(asked[0], 10 * FETCH_PEER_OUTSTANDING);
    fetch_destroy(&f);
}

TEST(two_peers_share_the_work)
{
    struct fetch *f = fetch_of(16, 2);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int a, b;
    nothing_is_here(f);
    assert_int_equal(fetch_ask(f, 0, &a, asked), FETCH_ASK_CHUNKS);
    assert_int_equal(fetch_ask(f, 0, &b, asked), FETCH_ASK_CHUNKS);
    assert_int_not_equal(a, b);
    fetch_destroy(&f);
}

TEST(silent_newcomer_is_asked_again_and_then_given_up)
{
    struct fetch *f = fetch_of(1, 1);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int peer, times = 0;
    size_t n = 0;
    nothing_is_here(f);
    for (uint64_t now = 0; now <= FETCH_PEER_SILENCE_MS * ms && !n; now += 50 * ms) {
        times += fetch_ask(f, now, &peer, asked) > 0;
        fetch_tick(f, now);
        fetch_wanted(f, &n);
    }
    assert_int_equal(n, 1);
    assert_in_range(times, 4, 7); /* after 0.25, 0.75, 1.75, 3.75, 7.75 s */
    fetch_destroy(&f);
}

TEST(peer_that_answered_some_is_asked_again_for_the_rest)
{
    struct fetch *f = fetch_of(2, 1);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int peer;
    nothing_is_here(f);
    assert_int_equal(fetch_ask(f, 0, &peer, asked), 2);
    fetch_arrived(f, 0, 0, 100 * ms);
    fetch_tick(f, 1000 * ms);
    assert_int_equal(fetch_ask(f, 1000 * ms, &peer, asked), 0); /* its link may be slow */
    fetch_tick(f, 1100 * ms);
    assert_int_equal(fetch_ask(f, 1100 * ms, &peer, asked), 1);
    assert_int_equal(asked[0], 10);
    /* Asking again is no sign of life. */
    size_t n = 0;
    for (uint64_t now = 1100 * ms; now < 100 * ms + FETCH_PEER_SILENCE_MS * ms; now += 50 * ms) {
        fetch_tick(f, now);
        fetch_ask(f, now, &peer, asked);
        fetch_wanted(f, &n);
        assert_int_equal(n, 0);
    }
    fetch_tick(f, 100 * ms + FETCH_PEER_SILENCE_MS * ms);
    fetch_wanted(f, &n);
    assert_int_equal(n, 1);
    fetch_destroy(&f);
}

TEST(lost_peer_gives_its_chunks_back)
{
    struct fetch *f = fetch_of(4, 2);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int a, b;
    size_t n;
    nothing_is_here(f);
    assert_int_equal(fetch_ask(f, 0, &a, asked), 4);
    fetch_peer_lost(f, a);
    assert_int_equal(fetch_ask(f, 0, &b, asked), 4);
    assert_int_not_equal(a, b);
    fetch_peer_lost(f, b);
    fetch_wanted(f, &n);
    assert_int_equal(n, 4);
    fetch_destroy(&f);
}

TEST(what_could_not_be_asked_is_asked_later_of_the_same_peer)
{
    struct fetch *f = fetch_of(20, 1);
    uint32_t asked[FETCH_ASK_CHUNKS];
    int peer;
    size_t n;
    nothing_is_here(f);
    assert_int_equal(fetch_ask(f, 0, &peer, asked), FETCH_ASK_CHUNKS);
    fetch_unask(f, peer, asked, FETCH_ASK_CHUNKS);
    fetch_wanted(f, &n);
    assert_int_equal(n, 0); /* the peer may have them all */
    /* However long no buffer was free: its silence begins when it is asked. */
    uint64_t late = 3 * FETCH_PEER_SILENCE_MS * ms;
    assert_int_equal(fetch_ask(f, late, &peer, asked), FETCH_ASK_CHUNKS);
    assert_int_equal(peer, 0);
    assert_int_equal(asked[0], 0);
    fetch_tick(f, late + FETCH_PEER_SILENCE_MS * ms / 2);
    fetch_wanted(f, &n);
    assert_int_equal(n, 0);
    fetch_destroy(&f);
}

static bool all_but_twenty(const void *ctx, uint32_t chunk)
{
    (void)ctx;
    return chunk != 20;
}

TEST(what_the_store_lost_again_is_looked_for_again)
{
    struct fetch *f = fetch_of(3, 1);
    uint32_t chunk;
    for (uint32_t i = 0; i < 3; i++)
        fetch_arrived(f, 10 * i, -1, 0);
    assert_true(fetch_is_done(f));
    assert_int_equal(fetch_recheck(f, all_but_twenty, NULL), 1);
    assert_false(fetch_is_done(f));
    assert_int_equal(fetch_done_bytes(f), 200);
    assert_true(fetch_local_next(f, &chunk));
    assert_int_equal(chunk, 20);
    fetch_arrived(f, 20, -1, 0);
    assert_true(fetch_is_done(f));
    fetch_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_box_is_looked_through_first),
        cmocka_unit_test(what_no_peer_has_is_wanted_and_an_upload_ends_it),
        cmocka_unit_test(a_peer_owes_only_so_much_at_once),
        cmocka_unit_test(two_peers_share_the_work),
        cmocka_unit_test(silent_newcomer_is_asked_again_and_then_given_up),
        cmocka_unit_test(peer_that_answered_some_is_asked_again_for_the_rest),
        cmocka_unit_test(lost_peer_gives_its_chunks_back),
        cmocka_unit_test(what_could_not_be_asked_is_asked_later_of_the_same_peer),
        cmocka_unit_test(what_the_store_lost_again_is_looked_for_again),
    };
    return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
