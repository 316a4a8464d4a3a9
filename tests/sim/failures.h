/* What tests of broken clusters share: a deployment, streams that go on, and what must hold once
 * everything is back. */
#ifndef HP_TESTS_SIM_FAILURES_H
#define HP_TESTS_SIM_FAILURES_H

#include <stdlib.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "tests/sim/cluster.h"
#include "tests/test.h"

static inline void deploy(struct sim *s, const char *agents)
{
    int rc = sim_deploy(s, agents, NULL, 8);
    if (rc < 0)
        fail_msg("seed %llu: %s", (unsigned long long)s->seed, s->answer_error.text);
}

static inline struct sim_client *request(struct sim *s, size_t n, size_t max)
{
    struct err e = {0};
    struct sim_client *c = sim_request(s, n, max, &e);
    if (!c)
        fail_msg("%s", e.text);
    return c;
}

/* A stream that is still going on after so long; prompts whose answer ends earlier by their own are
 * not meant. */
static inline struct sim_client *stream(struct sim *s, uint64_t after_ms)
{
    for (int i = 0; i < 50; i++) {
        struct sim_client *c = request(s, 100, 60);
        sim_run_ms(s, after_ms);
        if (c->open)
            return c;
    }
    fail_msg("no prompt has a long answer");
    return NULL;
}

/* All streams there were have ended with all their tokens. */
static inline void all_finished(struct sim *s, uint64_t limit_ms)
{
    assert_true(sim_run_until(s, sim_quiet, limit_ms));
    for (int i = 0; i < s->n_clients; i++)
        if (!s->clients[i].finished)
            fail_msg("seed %llu: %s", (unsigned long long)s->seed, s->clients[i].why.text);
    assert_int_equal(s->wrong, 0);
}

/* A number that `describe` of the deployment "toy" has in one of its parts. */
static inline uint64_t sim_described(struct sim *s, const char *part, const char *name)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    const json_t *v = json_object_get(json_object_get(s->answer, part), name);
    assert_true(json_is_integer(v));
    return (uint64_t)json_integer_value(v);
}

/* Every stage that agents hold is one of a deployment that there is, as that is now. */
static inline bool sim_has_no_strays(struct sim *s)
{
    for (size_t i = 0; s->core && i < s->core->n_members; i++) {
        const struct member *m = s->core->members[i];
        for (size_t k = 0; member_present(m) && k < m->n_held; k++) {
            const struct message_held_stage *h = &m->held[k];
            const struct deployment *d = deployment_of_id(s->core, h->deployment);
            if (!d || (deployment_serves(d) && h->generation != d->generation))
                return false;
        }
    }
    return true;
}

/* No deployment is on its way to other agents, as one may begin to be in any quiet moment. */
static inline bool sim_is_settled(struct sim *s)
{
    for (size_t i = 0; s->core && i < s->core->n_deployments; i++)
        if (!deployment_serves(s->core->deployments[i]))
            return false;
    return true;
}

/* A request is served as if nothing had been, and `quiet_ms` later nobody keeps anything. */
static inline void is_clean_of(struct sim *s, const char *name, uint64_t quiet_ms)
{
    struct err e = {0};
    struct sim_client *c = sim_request_of(s, name, 60, 20, &e);
    if (!c)
        fail_msg("seed %llu: %s", (unsigned long long)s->seed, e.text);
    if (!sim_run_until(s, sim_quiet, 30000) || !c->finished)
        fail_msg("seed %llu: a request after the faults did not finish: %s",
                 (unsigned long long)s->seed, c->why.text);
    sim_run_ms(s, quiet_ms);
    if (sim_leftovers(s))
        fail_msg("seed %llu: %llu things are left over", (unsigned long long)s->seed,
                 (unsigned long long)sim_leftovers(s));
    sim_run_until(s, sim_is_settled, 5000);
    if (sim_pages_differ(s))
        fail_msg("seed %llu: an agent and its coordinator count other pages",
                 (unsigned long long)s->seed);
    if (!sim_run_until(s, sim_has_no_strays, 5000))
        fail_msg("seed %llu: an agent holds a stage that is of no use any more",
                 (unsigned long long)s->seed);
    if (s->wrong)
        fail_msg("seed %llu: %llu things went wrong", (unsigned long long)s->seed,
                 (unsigned long long)s->wrong);
}

/* What its coordinator says of a deployment that does not serve, and by which events it came there.
 */
static inline void serves_not_fail(struct sim *s, const char *name, uint64_t limit_ms)
{
    int rc = sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", name), NULL);
    char *said = rc < 0 ? NULL : json_dumps(s->answer, JSON_COMPACT);
    fail_msg("seed %llu (trace %016llx): %s does not serve again after %llu s: %s",
             (unsigned long long)s->seed, (unsigned long long)s->trace, name,
             (unsigned long long)limit_ms / 1000, said ? said : s->answer_error.text);
}

static inline void serves_and_is_clean_of(struct sim *s, const char *name,
                                          bool (*serves)(struct sim *s), uint64_t limit_ms)
{
    if (!sim_run_until(s, serves, limit_ms))
        serves_not_fail(s, name, limit_ms);
    is_clean_of(s, name, 1000);
}

static inline void serves_and_is_clean(struct sim *s, uint64_t limit_ms)
{
    serves_and_is_clean_of(s, "toy", sim_serves, limit_ms);
}

/* The seeds of a run: HP_SEED=N replays one, HP_FIRST_SEED and HP_RUNS choose others. */
struct seed_range {
    uint64_t first, n;
};
static inline struct seed_range seeds_of(uint64_t first)
{
    const char *one = getenv("HP_SEED"), *runs = getenv("HP_RUNS"), *from = getenv("HP_FIRST_SEED");
    if (one)
        return (struct seed_range){strtoull(one, NULL, 10), 1};
    return (struct seed_range){from ? strtoull(from, NULL, 10) : first,
                               runs ? strtoull(runs, NULL, 10) : 200};
}

#endif
