/* Pages of the KV cache: taken as sequences grow, counted, shared, copied before they are written
 * to, and given back. Bytes are looked at through the plain backend, whose pages are easily read.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/kv_transfer.h"
#include "common/env.h"
#include "tests/test.h"

enum { PAGE = KV_PAGE_TOKENS, GROUPS = 2, WINDOW = 100, AHEAD = 2 * PAGE };

struct cache_fixture {
    struct device *d;
    struct stream *s;
    struct kv_groups kinds;
    struct kv_cache c;
};

/* Two groups, the second with a window; blocks 3 and 4 of the first, block 0 of the second. */
static void cache_open(struct cache_fixture *f, uint64_t tokens, uint32_t max_sequences)
{
    const struct device_config plain = {.kernels = "plain"};
    const struct kv_room room = {tokens, max_sequences, AHEAD};
    struct err e = {0};
    *f = (struct cache_fixture){
        .kinds = {.n = GROUPS,
                  .layouts = {{.n_blocks = 2, .n_kv_heads = 1, .head_dim = 4, .format = KV_F32},
                              {.n_blocks = 1, .n_kv_heads = 2, .head_dim = 6, .window = WINDOW}},
                  .first_block = {3, 0}}};
    assert_int_equal(device_open(&plain, &f->d, &e), 0);
    assert_int_equal(f->d->backend->stream_create(f->d, &f->s, &e), 0);
    assert_int_equal(kv_cache_init(&f->c, f->d, &f->kinds, &room, &e), 0);
}

static void cache_close(struct cache_fixture *f)
{
    kv_cache_fini(&f->c);
    f->d->backend->stream_destroy(&f->s);
    device_close(&f->d);
}

static uint32_t pages_out(const struct cache_fixture *f, int group)
{
    return f->c.pools[group].n_pages - f->c.pools[group].n_free;
}

/* Tokens come, and nobody takes them back. */
static int grow(struct cache_fixture *f, uint64_t id, uint32_t n)
{
    struct kv_sequence *s = kv_cache_find(&f->c, id);
    int rc = kv_cache_grow(&f->c, f->s, s, n, NULL);
    if (rc == 0) {
        s->length += n;
        kv_cache_settle(&f->c, s, s->length);
    }
    return rc;
}

static struct kv_range range_of(uint32_t first, uint32_t count)
{
    return (struct kv_range){0, 3, 2, first, count};
}

/* What stands in the cache of tokens [first, first + count) of the first group. */
static void read_back(struct cache_fixture *f, uint64_t id, uint32_t first, uint32_t count,
                      uint8_t *out)
{
    struct kv_range r = range_of(first, count);
    struct err e = {0};
    if (kv_transfer_export(&f->c, f->s, id, &r, out, &e) < 0)
        fail_msg("%s", e.text);
}

/* The same bytes for every token and block, as a forward pass would write them. */
static void write_all(struct cache_fixture *f, uint64_t id, uint32_t first, uint32_t count,
                      int byte)
{
    struct kv_part part = {0, 2, first, count};
    size_t bytes = (size_t)2 * count * 2 * 4 * sizeof(float);
    void *data = malloc(bytes);
    memset(data, byte, bytes);
    f->d->backend->kv_import(f->s, &f->c.groups[0], kv_cache_find(&f->c, id)->pages[0], &part,
                             data);
    free(data);
}

static int first_byte(struct cache_fixture *f, uint64_t id, uint32_t token)
{
    uint8_t out[2 * 2 * 4 * sizeof(float)];
    read_back(f, id, token, 1, out);
    for (size_t i = 1; i < sizeof out; i++)
        assert_int_equal(out[i], out[0]);
    return out[0];
}

TEST(pages_are_taken_when_tokens_come_and_given_back_at_the_end)
{
    struct cache_fixture f;
    cache_open(&f, 640, 4);
    assert_int_equal(kv_cache_open(&f.c, 1, 300, 0, NULL), 0);
    assert_int_equal(pages_out(&f, 0), 0);
    assert_int_equal(f.c.account.used, 5);
    static const struct {
        uint32_t more, pages;
    } steps[] = {{1, 1}, {62, 1}, {1, 1}, {1, 2}, {63, 2}, {65, 4}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(grow(&f, 1, steps[i].more), 0);
        assert_int_equal(pages_out(&f, 0), steps[i].pages);
    }
    struct err e = {0};
    struct kv_sequence *s = kv_cache_find(&f.c, 1);
    assert_int_equal(kv_cache_grow(&f.c, f.s, s, 300, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "room for 300 tokens"));
    assert_int_equal(pages_out(&f, 0), 4);
    kv_cache_close(&f.c, 1);
    assert_int_equal(pages_out(&f, 0), 0);
    assert_int_equal(pages_out(&f, 1), 0);
    assert_int_equal(f.c.account.used, 0);
    cache_close(&f);
}

TEST(what_is_taken_back_gives_its_pages_back)
{
    struct cache_fixture f;
    cache_open(&f, 640, 4);
    assert_int_equal(kv_cache_open(&f.c, 1, 400, 0, NULL), 0);
    assert_int_equal(grow(&f, 1, 70), 0);
    struct kv_sequence *s = kv_cache_find(&f.c, 1);
    for (int twice = 0; twice < 2; twice++) { /* a batch that fails, and one after it */
        assert_int_equal(kv_cache_grow(&f.c, f.s, s, 100, NULL), 0);
        s->length += 100;
    }
    assert_int_equal(pages_out(&f, 0), 5);
    kv_cache_cut(&f.c, s, 170);
    assert_int_equal(pages_out(&f, 0), 3);
    kv_cache_cut(&f.c, s, 70);
    assert_int_equal(pages_out(&f, 0), 2);
    assert_int_equal(pages_out(&f, 1), 2);
    assert_int_equal(s->length, 70);
    assert_int_equal(s->settled, 70);
    cache_close(&f);
}

TEST(a_group_with_a_window_keeps_what_the_next_token_sees_and_no_more)
{
    struct cache_fixture f;
    cache_open(&f, 64000, 2);
    /* Its pool is as large as two sequences can use, and not as large as all tokens. */
    assert_int_equal(f.c.pools[0].n_pages, 64000 / PAGE + 2);
    assert_int_equal(f.c.pools[1].n_pages, 2 * ((WINDOW + AHEAD + PAGE - 1) / PAGE + 1));
    for (uint64_t id = 1; id <= 2; id++)
        assert_int_equal(kv_cache_open(&f.c, id, 30000, 0, NULL), 0);
    for (uint32_t i = 0; i < 400; i++)
        for (uint64_t id = 1; id <= 2; id++) {
            struct kv_sequence *s = kv_cache_find(&f.c, id);
            uint32_t n = i % 7 ? 1 + i % PAGE : PAGE;
            /* Two batches under way, then the first is through. */
            assert_int_equal(kv_cache_grow(&f.c, f.s, s, n, NULL), 0);
            s->length += n;
            assert_int_equal(kv_cache_grow(&f.c, f.s, s, PAGE, NULL), 0);
            kv_cache_settle(&f.c, s, s->length);
            uint32_t seen = kv_first_seen(WINDOW, s->length);
            assert_true(kv_cache_has(s, 1, seen, s->length - seen));
            assert_int_equal(s->held[1].first, seen / PAGE);
            assert_int_equal(s->held[0].first, 0);
        }
    for (uint64_t id = 1; id <= 2; id++)
        kv_cache_close(&f.c, id);
    assert_int_equal(pages_out(&f, 1), 0);
    cache_close(&f);
}

TEST(a_shared_prefix_takes_no_pages_until_somebody_writes)
{
    struct cache_fixture f;
    cache_open(&f, 2000, 4);
    assert_int_equal(kv_cache_open(&f.c, 1, 400, 0, NULL), 0);
    assert_int_equal(grow(&f, 1, 150), 0);
    write_all(&f, 1, 0, 150, 11);
    uint32_t before = pages_out(&f, 0);
    assert_int_equal(kv_cache_open_some(&f.c, 2, 400, 400, 100, 1, NULL), 0);
    assert_int_equal(kv_cache_open_some(&f.c, 3, 400, 400, 128, 1, NULL), 0);
    assert_int_equal(pages_out(&f, 0), before);
    assert_int_equal(first_byte(&f, 2, 99), 11);
    /* Sequence 2 goes on within a page that all three have, 3 at the end of its last one. */
    assert_int_equal(grow(&f, 2, 1), 0);
    assert_int_equal(pages_out(&f, 0), before + 1);
    write_all(&f, 2, 100, 1, 22);
    assert_int_equal(grow(&f, 3, 1), 0);
    assert_int_equal(pages_out(&f, 0), before + 2);
    write_all(&f, 3, 128, 1, 33);
    assert_int_equal(first_byte(&f, 2, 99), 11);
    assert_int_equal(first_byte(&f, 2, 100), 22);
    assert_int_equal(first_byte(&f, 3, 100), 11);
    assert_int_equal(first_byte(&f, 3, 128), 33);
    assert_int_equal(first_byte(&f, 1, 100), 11);
    assert_int_equal(first_byte(&f, 1, 128), 11);
    /* Whoever wrote them first may leave: the others keep what they see. */
    kv_cache_close(&f.c, 1);
    assert_int_equal(first_byte(&f, 2, 0), 11);
    assert_int_equal(first_byte(&f, 3, 127), 11);
    write_all(&f, 3, 70, 1, 44); /* 2 has no part in that page any more, so it is not copied */
    kv_cache_close(&f.c, 3);
    assert_int_equal(first_byte(&f, 2, 70), 11);
    kv_cache_close(&f.c, 2);
    assert_int_equal(pages_out(&f, 0), 0);
    assert_int_equal(pages_out(&f, 1), 0);
    cache_close(&f);
}

TEST(what_is_kept_has_its_tokens_and_the_place_of_none_that_runs)
{
    struct cache_fixture f;
    struct err e = {0};
    cache_open(&f, 400, 2);
    assert_false(f.c.narrow);
    assert_int_equal(kv_cache_open(&f.c, 1, 300, 0, NULL), 0);
    assert_int_equal(grow(&f, 1, 90), 0);
    write_all(&f, 1, 0, 90, 11);
    assert_int_equal(kv_cache_keep(&f.c, 1, 91, &e), HP_EINVAL);
    assert_int_equal(kv_cache_keep(&f.c, 9, 1, &e), HP_ENOENT);
    assert_int_equal(kv_cache_keep(&f.c, 1, 0, &e), HP_EINVAL);
    assert_int_equal(f.c.account.used, 5);
    assert_int_equal(kv_cache_keep(&f.c, 1, 80, &e), 0);
    assert_int_equal(f.c.account.used, 2);
    assert_int_equal(f.c.account.used_growing, 0);
    /* Both places are free still, and what begins with it sees what it wrote. */
    assert_int_equal(kv_cache_open_some(&f.c, 2, 200, 200, 80, 1, &e), 0);
    assert_int_equal(kv_cache_open_some(&f.c, 3, 200, 200, 70, 1, &e), 0);
    assert_int_equal(kv_cache_open_some(&f.c, 4, 80, 80, 80, 1, &e), HP_EBUSY);
    assert_int_equal(f.c.account.used, 2 + 3 + 3);
    assert_int_equal(grow(&f, 2, 60), 0);
    write_all(&f, 2, 80, 60, 22);
    assert_int_equal(first_byte(&f, 2, 79), 11);
    assert_int_equal(first_byte(&f, 1, 79), 11);
    assert_int_equal(kv_cache_keep(&f.c, 1, 64, &e), 0); /* shorter */
    assert_int_equal(f.c.account.used, 1 + 3 + 3);
    kv_cache_close(&f.c, 1);
    assert_int_equal(first_byte(&f, 3, 69), 11);
    assert_int_equal(f.c.account.used, 1 + 3 + 3);
    kv_cache_close(&f.c, 2);
    kv_cache_close(&f.c, 3);
    assert_int_equal(f.c.account.used, 0);
    assert_int_equal(pages_out(&f, 0) + pages_out(&f, 1), 0);
    cache_close(&f);
}

TEST(beside_narrow_windows_those_that_are_kept_take_places)
{
    struct cache_fixture f;
    struct err e = {0};
    cache_open(&f, 4000, 2);
    assert_true(f.c.narrow);
    assert_int_equal(kv_cache_open(&f.c, 1, 1000, 0, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(grow(&f, 1, 64), 0);
    assert_int_equal(kv_cache_keep(&f.c, 1, 100, &e), HP_EINVAL); /* its window has passed */
    assert_int_equal(kv_cache_keep(&f.c, 1, 319, &e), 0);
    assert_int_equal(kv_cache_open_some(&f.c, 2, 1000, 1000, 319, 1, &e), 0);
    assert_int_equal(kv_cache_open(&f.c, 3, 10, 0, &e), HP_EBUSY);
    kv_cache_close(&f.c, 1);
    assert_int_equal(kv_cache_open(&f.c, 3, 10, 0, &e), 0);
    cache_close(&f);
}

TEST(a_thousand_sequences_with_a_common_prompt_store_it_once)
{
    enum { N = 1000, PROMPT = 2000 };
    struct cache_fixture f;
    struct err e = {0};
    cache_open(&f, 3000, N);
    assert_int_equal(kv_cache_open(&f.c, 1, PROMPT + 10, 0, NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(grow(&f, 1, 100), 0);
    write_all(&f, 1, 0, PROMPT, 11);
    uint32_t before = pages_out(&f, 0);
    for (uint64_t id = 2; id <= N; id++)
        assert_int_equal(kv_cache_open_some(&f.c, id, PROMPT + 10, PROMPT + 10, PROMPT, 1, &e), 0);
    assert_int_equal(pages_out(&f, 0), before);
    for (uint64_t id = 1; id <= N; id++)
        assert_int_equal(grow(&f, id, 10), 0);
    assert_int_equal(pages_out(&f, 0), before + N - 1); /* each its own last page */
    assert_int_equal(first_byte(&f, N, 0), 11);
    for (uint64_t id = 1; id <= N; id++)
        kv_cache_close(&f.c, id);
    assert_int_equal(pages_out(&f, 0), 0);
    cache_close(&f);
}

TEST(a_sequence_grows_within_what_is_reserved_and_no_further)
{
    struct cache_fixture f;
    cache_open(&f, 4 * PAGE, 1); /* and one page more */
    assert_int_equal(kv_cache_open_some(&f.c, 1, 4 * PAGE, 5 * PAGE, 0, 0, NULL), HP_EINVAL);
    assert_int_equal(kv_cache_open_some(&f.c, 1, 4 * PAGE, 2 * PAGE, 0, 0, NULL), 0);
    assert_int_equal(f.c.account.used, 2);
    assert_int_equal(grow(&f, 1, 2 * PAGE), 0);
    assert_int_equal(grow(&f, 1, 1), HP_EBUSY);
    assert_int_equal(kv_cache_reserve(&f.c, 1, 3 * PAGE, NULL), 0);
    assert_int_equal(grow(&f, 1, 1), 0);
    assert_int_equal(kv_cache_reserve(&f.c, 1, PAGE, NULL), 0); /* it has more */
    assert_int_equal(f.c.account.used, 3);
    assert_int_equal(kv_cache_reserve(&f.c, 1, 4 * PAGE + 1, NULL), HP_EINVAL);
    assert_int_equal(kv_cache_reserve(&f.c, 2, PAGE, NULL), HP_EINVAL);
    kv_cache_close(&f.c, 1);
    assert_int_equal(f.c.account.used, 0);
    cache_close(&f);
}

TEST(what_cannot_be_shared_is_refused_and_changes_nothing)
{
    struct cache_fixture f;
    struct err e = {0};
    cache_open(&f, 2000, 3);
    assert_int_equal(kv_cache_open(&f.c, 1, 1000, 0, NULL), 0);
    assert_int_equal(grow(&f, 1, 400), 0);
    struct kv_sequence *s = kv_cache_find(&f.c, 1);
    assert_int_equal(kv_cache_grow(&f.c, f.s, s, 50, NULL), 0);
    s->length += 50; /* a batch that is under way */
    uint32_t before = pages_out(&f, 0);
    static const struct {
        uint64_t id, from;
        uint32_t room, length;
        int code;
        const char *says;
    } cases[] = {
        {2, 9, 600, 10, HP_ENOENT, "sequence 9"},
        {2, 1, 600, 401, HP_EINVAL, "has 400 tokens to share, not 401"},
        {2, 1, 600, 200, HP_EINVAL, "has given back"}, /* the window began behind it */
        {2, 1, 300, 400, HP_EINVAL, "room for 300 tokens cannot begin with 400"},
        {1, 1, 600, 400, HP_EEXIST, "open already"},
        {2, 1, 1700, 400, HP_EBUSY, "19 pages of 64 tokens of KV cache are free, 21 are needed"},
        {2, 1, 2001, 400, HP_EINFEASIBLE, "2000 in all"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(kv_cache_open_some(&f.c, cases[i].id, cases[i].room, cases[i].room,
                                            cases[i].length, cases[i].from, &e),
                         cases[i].code);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
        assert_int_equal(pages_out(&f, 0), before);
        assert_int_equal(f.c.account.used, 16);
    }
    assert_int_equal(kv_cache_open_some(&f.c, 2, 600, 600, 400, 1, &e), 0);
    cache_close(&f);
}

/* However sequences share, grow, fail and end: who has room never lacks a page, each page is
 * counted by those who have it, and all come back. */
TEST(chance_neither_loses_a_page_nor_runs_out_of_them)
{
    enum { SEQUENCES = 6, ROOM = 300, STEPS = 4000 };
    struct cache_fixture f;
    uint64_t seed = 4, next = 1, open[SEQUENCES];
    int n = 0;
    cache_open(&f, SEQUENCES * ROOM, SEQUENCES);
    for (int i = 0; i < STEPS; i++) {
        uint32_t k = n ? (uint32_t)(random_next(&seed) % (uint64_t)n) : 0;
        struct kv_sequence *s = n ? kv_cache_find(&f.c, open[k]) : NULL;
        uint32_t action = (uint32_t)(random_next(&seed) % 8),
                 some = 1 + (uint32_t)(random_next(&seed) % 60);
        if (!s || (action == 0 && n < SEQUENCES)) {
            assert_int_equal(kv_cache_open(&f.c, next, ROOM, action ? 0 : some, NULL), 0);
            open[n++] = next++;
        } else if (action == 1 && n < SEQUENCES && !s->n_awaited) {
            assert_int_equal(kv_cache_open_some(&f.c, next, ROOM, ROOM, s->settled, open[k], NULL),
                             0);
            open[n++] = next++;
        } else if (action == 2) {
            kv_cache_close(&f.c, open[k]);
            open[k] = open[--n];
        } else if (some <= ROOM - s->length) {
            uint32_t length = s->length;
            assert_int_equal(kv_cache_grow(&f.c, f.s, s, some, NULL), 0);
            s->length += some;
            if (action == 3)
                kv_cache_cut(&f.c, s, length);
            else
                kv_cache_settle(&f.c, s, s->length);
        }
        for (int g = 0; g < GROUPS; g++) {
            uint64_t holders = 0, held = 0;
            for (uint32_t p = 0; p < f.c.pools[g].n_pages; p++)
                holders += f.c.pools[g].holders[p];
            for (int q = 0; q < n; q++) {
                const struct kv_pages *h = &kv_cache_find(&f.c, open[q])->held[g];
                held += h->end - h->first;
            }
            assert_int_equal(holders, held);
        }
    }
    while (n)
        kv_cache_close(&f.c, open[--n]);
    for (int g = 0; g < GROUPS; g++)
        assert_int_equal(pages_out(&f, g), 0);
    cache_close(&f);
}

/* Every page of every block once, in any order and as often as one likes; then it may run, and
 * nothing that comes late changes it. */
TEST(what_a_sequence_begins_with_is_awaited_until_all_of_it_has_come)
{
    enum { LENGTH = 250 };
    struct cache_fixture f;
    uint8_t data[8192] = {0}, late[8192];
    struct kv_range pieces[32], r;
    struct kv_cursor at = {0};
    struct err e = {0};
    size_t n = 0;
    uint64_t seed = 2, bytes = 0;
    cache_open(&f, 640, 2);
    struct kv_shape shape = kv_groups_shape(&f.kinds);
    assert_int_equal(kv_cache_open(&f.c, 1, 300, LENGTH, NULL), 0);
    struct kv_sequence *s = kv_cache_find(&f.c, 1);
    assert_int_equal(s->n_awaited, 2 * 4 + 2); /* two blocks of four pages, one of two */
    while (kv_shape_next(&shape, LENGTH, 2048, &at, &r)) {
        assert_true(kv_shape_bytes(&shape, &r) <= 4096 && r.first % PAGE == 0);
        bytes += kv_shape_bytes(&shape, &r);
        pieces[n++] = r;
    }
    uint32_t seen = kv_first_seen(WINDOW, LENGTH) / PAGE * PAGE;
    assert_int_equal(bytes, LENGTH * 2 * 32 + (LENGTH - seen) * 48);
    for (size_t i = 0; i < 3 * n; i++) { /* some twice, most of them out of order */
        size_t k = i < 2 * n ? random_next(&seed) % n : i - 2 * n;
        memset(data, 7, sizeof data);
        assert_int_equal(kv_transfer_export(&f.c, f.s, 1, &pieces[k], late, &e),
                         s->n_awaited ? HP_EBUSY : 0);
        assert_int_equal(kv_transfer_import(&f.c, f.s, 1, &pieces[k], data, &e), 0);
    }
    assert_int_equal(s->n_awaited, 0);
    memset(late, 99, sizeof late);
    assert_int_equal(kv_transfer_import(&f.c, f.s, 1, &pieces[0], late, &e), 0);
    assert_int_equal(first_byte(&f, 1, 0), 7);
    assert_int_equal(first_byte(&f, 1, LENGTH - 1), 7);
    cache_close(&f);
}

TEST(ranges_that_are_not_there_are_refused)
{
    struct cache_fixture f;
    struct err e = {0};
    uint8_t data[16384] = {0};
    cache_open(&f, 640, 2);
    static const struct {
        struct kv_range range;
        bool exported, imported;
    } cases[] = {
        {{0, 3, 2, 0, 64}, true, true},           {{0, 4, 1, 128, 2}, true, true},
        {{1, 0, 1, 0, 130}, true, true},          {{0, 3, 2, 0, 4}, true, false},
        {{0, 3, 2, 1, 63}, true, false},          {{2, 0, 1, 0, 64}, false, false},
        {{0, 2, 2, 0, 64}, false, false},         {{0, 4, 2, 0, 64}, false, false},
        {{0, 3, 0, 0, 64}, false, false},         {{0, 3, 2, 0, 0}, false, false},
        {{0, 3, 2, 128, 4}, false, false},        {{0, 3, UINT32_MAX, 0, 1}, false, false},
        {{0, 3, 1, UINT32_MAX, 2}, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct kv_range *r = &cases[i].range;
        assert_int_equal(kv_cache_open(&f.c, 1, 200, 130, NULL), 0);
        assert_int_equal(kv_transfer_import(&f.c, f.s, 1, r, data, &e) == 0, cases[i].imported);
        kv_cache_close(&f.c, 1);
        assert_int_equal(kv_transfer_export(&f.c, f.s, 1, r, data, &e), HP_ENOENT);
        assert_int_equal(kv_transfer_import(&f.c, f.s, 1, r, data, &e), HP_ENOENT);
        assert_int_equal(kv_cache_open(&f.c, 1, 200, 0, NULL), 0);
        assert_int_equal(kv_cache_grow(&f.c, f.s, kv_cache_find(&f.c, 1), 130, NULL), 0);
        kv_cache_find(&f.c, 1)->length = kv_cache_find(&f.c, 1)->settled = 130;
        assert_int_equal(kv_transfer_export(&f.c, f.s, 1, r, data, &e) == 0, cases[i].exported);
        assert_int_equal(kv_transfer_import(&f.c, f.s, 1, r, data, &e), HP_EINVAL);
        kv_cache_close(&f.c, 1);
    }
    cache_close(&f);
}

/* It takes pages for what comes alone, and gives up those that no window sees any more. */
TEST(pages_of_another_and_those_that_come_are_counted_once)
{
    struct cache_fixture f;
    struct err e = {0};
    uint8_t data[2 * PAGE * 2 * 6 * sizeof(float) * 2] = {0};
    cache_open(&f, 2000, 4);
    assert_int_equal(kv_cache_open(&f.c, 1, 400, 0, NULL), 0);
    assert_int_equal(grow(&f, 1, 130), 0);
    write_all(&f, 1, 0, 130, 5);
    uint32_t before = pages_out(&f, 0), windowed = pages_out(&f, 1);
    assert_int_equal(kv_cache_open_some(&f.c, 2, 400, 320, 128, 1, &e), 0);
    assert_int_equal(kv_cache_await(&f.c, 2, 321, &e), HP_EINVAL); /* not reserved */
    assert_int_equal(kv_cache_await(&f.c, 2, 256, &e), 0);
    assert_int_equal(pages_out(&f, 0), before + 2);
    assert_int_equal(pages_out(&f, 1),
                     windowed + 2); /* from token 157 on: its page, and one more */
    assert_int_equal(kv_cache_find(&f.c, 2)->n_awaited, 2 * 2 + 2);
    struct kv_range all = range_of(0, 256), page = range_of(64, 64);
    assert_int_equal(kv_transfer_import(&f.c, f.s, 2, &all, data, &e), HP_EINVAL);
    assert_int_equal(kv_transfer_import(&f.c, f.s, 2, &page, data, &e), 0); /* is there */
    assert_int_equal(first_byte(&f, 1, 70), 5);
    kv_cache_close(&f.c, 2);
    assert_int_equal(pages_out(&f, 0), before);
    assert_int_equal(pages_out(&f, 1), windowed);
    cache_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_taken_when_tokens_come_and_given_back_at_the_end),
        cmocka_unit_test(what_is_taken_back_gives_its_pages_back),
        cmocka_unit_test(a_group_with_a_window_keeps_what_the_next_token_sees_and_no_more),
        cmocka_unit_test(a_shared_prefix_takes_no_pages_until_somebody_writes),
        cmocka_unit_test(what_is_kept_has_its_tokens_and_the_place_of_none_that_runs),
        cmocka_unit_test(beside_narrow_windows_those_that_are_kept_take_places),
        cmocka_unit_test(a_thousand_sequences_with_a_common_prompt_store_it_once),
        cmocka_unit_test(what_cannot_be_shared_is_refused_and_changes_nothing),
        cmocka_unit_test(chance_neither_loses_a_page_nor_runs_out_of_them),
        cmocka_unit_test(what_a_sequence_begins_with_is_awaited_until_all_of_it_has_come),
        cmocka_unit_test(a_sequence_grows_within_what_is_reserved_and_no_further),
        cmocka_unit_test(pages_of_another_and_those_that_come_are_counted_once),
        cmocka_unit_test(ranges_that_are_not_there_are_refused),
    };
    return cmocka_run_group_tests_name("kv_cache", tests, NULL, NULL);
}
