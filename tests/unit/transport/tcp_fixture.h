/* Endpoints of data_tcp in this process, and sockets of our own against them. */
#ifndef HP_TESTS_TCP_FIXTURE_H
#define HP_TESTS_TCP_FIXTURE_H

#include "data_fixture.h"
#include "eventually.h"
#include "tests/attack/raw.h"

enum { SESSION = RAW_SESSION };

static inline struct data_address address_of(const struct end *end)
{
    struct data_address a;
    size_t size;
    const uint8_t *text = data_address(end->d, &size);
    assert_int_equal(data_address_parse(text, size, &a, NULL), 0);
    return a;
}

static inline int dial(const struct end *to)
{
    struct data_address a = address_of(to);
    int fd = raw_dial(&a);
    assert_true(fd >= 0);
    return fd;
}

static inline void raw_keys(struct raw *r)
{
    struct key_pair keys;
    assert_int_equal(key_pair_create(&keys, NULL), 0);
    assert_true(raw_init(r, &keys));
}

static inline bool prove(struct raw *r, const struct end *to)
{
    struct data_address a = address_of(to);
    return raw_prove(r, &a);
}

static inline void admit_key(struct end *end, const uint8_t key[KEY_BYTES])
{
    assert_in_range(end->n_friends, 0, 7);
    memcpy(end->friends[end->n_friends++], key, KEY_BYTES);
    assert_int_equal(data_peers_allow(end->d, (const uint8_t(*)[KEY_BYTES])end->friends,
                                      (size_t)end->n_friends, NULL),
                     0);
}

static inline uint64_t refused(const struct end *end)
{
    struct data_stats stats;
    data_stats(end->d, &stats);
    return stats.refused_strangers;
}

static inline bool refused_reaches(const struct end *end, uint64_t n)
{
    return EVENTUALLY(refused(end) >= n);
}

/* Two endpoints that talk; whatever is done to the second, they must go on talking. */
struct couple {
    struct end a, b;
    struct data_link *link;
    int posted;
};

static inline void couple_open(struct couple *c)
{
    c->posted = 0;
    open_end(&c->a, data_open_tcp, 0);
    open_end(&c->b, data_open_tcp, 0);
    data_allow(c->b.d, SESSION, NULL, NULL);
    c->link = link_to(&c->a, &c->b);
}

static inline void couple_talks(struct couple *c)
{
    post(&c->a, c->link, SESSION, 1000);
    post(&c->a, c->link, SESSION, 200000);
    c->posted += 2;
    assert_true(wait_for(&c->b, &c->b.frames, c->posted));
    assert_true(wait_for(&c->a, &c->a.done, c->posted));
    assert_int_equal(look_at(&c->a, &c->a.failed) + look_at(&c->a, &c->a.downs) +
                         look_at(&c->b, &c->b.downs),
                     0);
}

static inline void couple_close(struct couple *c)
{
    data_disconnect(&c->link);
    data_close(&c->a.d);
    data_close(&c->b.d);
}

#endif
