/* A deployment of three agents that has room for a few sequences only, and the storm that its
 * streams have to outlive. */
#ifndef HP_TESTS_SIM_NARROW_H
#define HP_TESTS_SIM_NARROW_H

#include "coordinator/deployment.h"
#include "tests/sim/failures.h"

enum { NARROW_PAGES = 12 };

/* A deployment that is planned anew has more room, and one learns how long answers are. */
static inline void narrow(struct sim *s)
{
    struct deployment *d = deployment_find(s->core, "toy");
    if (!d)
        return;
    d->kv_tokens = NARROW_PAGES * KV_PAGE_TOKENS;
    d->answer_tokens = 1;
}

/* In a cluster that was just opened: room for twelve sequences of one page, or four of three, and a
 * coordinator that has been taught that answers are short. */
static inline void narrow_begin(struct sim *s, const char *agents, const char *prefix_cache)
{
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    json_t *options =
        json_pack("{s:s, s:i, s:i}", "prefix_cache", prefix_cache, "slice", 8, "max_sequences", 12);
    if (agents)
        json_object_set_new(options, "agents", json_string(agents));
    sim_ask(s, "deploy", json_pack("{s:s, s:o}", "name", "toy", "options", options), &manifest);
    buffer_free(&manifest);
    assert_true(sim_run_until(s, sim_serves, 30000));
    narrow(s);
    s->most_pages = NARROW_PAGES;
    request(s, 10, 1);
    all_finished(s, 60000);
}

/* Where a storm's deployment lies, and what it keeps of prompts, by its seed. */
static inline const char *storm_agents(uint64_t seed)
{
    static const char *const agents[] = {NULL, "a0,a1,a2", "a2,a0", "a1"};
    return agents[seed % 4];
}

static inline const char *storm_cache(uint64_t seed)
{
    static const char *const caches[] = {"on", "shared", "off"};
    return caches[seed / 4 % 3];
}

/* One of so many of those that are down, by chance; 1: all. */
static inline void storm_agents_start(struct sim *s, uint64_t one_of)
{
    for (int k = 0; k < 3; k++)
        if (!sim_agent_alive(s, k) && (one_of == 1 || sim_random(s, one_of) == 0))
            sim_agent_start(s, k);
}

/* Sixty strikes, at most `apart_ms` after one another, over a network that is slow and late; agents
 * that were killed come back. Then all streams have to end. */
static inline void storm(struct sim *s, void (*strike)(struct sim *s, uint64_t seed),
                         uint64_t apart_ms)
{
    s->scored = s->seed % 2;
    s->most_pages = 0;
    s->network.slow_ns = 1000000 * (1 + sim_random(s, 20));
    s->network.late = 0.05;
    s->network.late_ns = 40 * UINT64_C(1000000);
    for (int i = 0; i < 60; i++) {
        strike(s, s->seed);
        narrow(s);
        sim_run_ms(s, sim_random(s, apart_ms));
        storm_agents_start(s, 4);
    }
    s->network.late = 0;
    storm_agents_start(s, 1);
    for (int i = 0; i < 200 && !sim_quiet(s); i++) {
        narrow(s);
        sim_run_ms(s, 20);
    }
    if (!sim_run_until(s, sim_quiet, 120000))
        fail_msg("seed %llu: a stream never ended", (unsigned long long)s->seed);
    sim_run_ms(s, 12000);
}

/* What became of streams. */
struct storm_toll {
    unsigned finished, failed, cancelled;
};

static inline void storm_toll_add(struct storm_toll *t, const struct sim *s)
{
    for (int i = 0; i < s->n_clients; i++) {
        t->finished += s->clients[i].finished;
        t->failed += s->clients[i].failed;
        t->cancelled += s->clients[i].cancelled;
    }
}

#endif
