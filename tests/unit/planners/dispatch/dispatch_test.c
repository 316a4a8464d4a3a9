/* The scheduler's promises: nothing that was sent is late, nothing is booked twice, a probe finds
 * what trying every share finds.
 */
#include <stddef.h>
#include <stdlib.h>

#include "planners/dispatch/arrivals.h"
#include "planners/dispatch/dispatch.h"
#include "planners/dispatch/reservations.h"
#include "planners/pools/pools.h"
#include "tests/test.h"
#include "tests/unit/planners/pools_example.h"

struct served {
    struct example x;
    struct pools_answer answer;
    struct dispatch_topology t;
    int share;
};

static void serve_example(struct served *s, uint64_t seed, int max_batch, int stages)
{
    struct err e = {0};
    *s = (struct served){.share = (int)(seed % 2)};
    example_make(&(struct example_options){.n_kinds = 2,
                                           .counts = {5, 11},
                                           .per_node = 1 + (int)(seed % 3),
                                           .n_models = 2,
                                           .max_stages = stages,
                                           .slo_s = 0.06,
                                           .margin = 0.2,
                                           .nic_bytes_per_s = 4e8,
                                           .max_batch = max_batch,
                                           .shares = 3,
                                           .seed = seed},
                 &s->x);
    struct pools_request rq = {.cluster = &s->x.c,
                               .workload = &s->x.w,
                               .share_devices = (int)(seed % 2),
                               .slo_margin = -1,
                               .time_limit_s = 0.05,
                               .env = &env_real};
    if (pools_plan(&rq, &s->answer, &e) < 0 ||
        dispatch_topology_make(&s->answer.plan, &s->x.c, &s->x.w, (int)(seed % 2), &s->t, &e) < 0)
        fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
}

static void served_free(struct served *s)
{
    dispatch_topology_free(&s->t);
    pools_answer_free(&s->answer);
    example_free(&s->x);
}

/* ---- books of our own: every interval of every resource, which must not overlap ---- */

struct book {
    int resource;
    int64_t start, end;
};

struct auditor {
    const struct dispatch_topology *t;
    struct book *books;
    int n;
    int64_t now;
    int sent, dropped, requests;
};

static void book(struct auditor *a, int resource, int64_t start, int64_t end)
{
    assert_true(start >= a->now && end > start);
    for (int i = 0; i < a->n; i++)
        if (a->books[i].resource == resource && a->books[i].start < end && start < a->books[i].end)
            fail_msg("resource %d is booked twice: [%lld, %lld) and [%lld, %lld)", resource,
                     (long long)start, (long long)end, (long long)a->books[i].start,
                     (long long)a->books[i].end);
    assert_true(a->n < 200000);
    a->books[a->n++] = (struct book){resource, start, end};
}

static void audit(void *ctx, const struct dispatch_action *action)
{
    struct auditor *a = ctx;
    if (action->drop) {
        a->dropped++;
        return;
    }
    const struct dispatch_path *path = action->path;
    const struct dispatch_pipeline *pl = &a->t->pipelines[path->pipeline];
    int64_t ready = a->now;
    a->sent++;
    a->requests += action->n;
    assert_int_equal(pl->model, action->model);
    assert_true(action->n >= 1 && action->n <= pl->batch);
    for (int i = 0; i < action->n; i++)
        assert_true(path->finish_ns <= action->requests[i].deadline_ns);
    for (int s = 0; s < pl->n_stages; s++) {
        const struct dispatch_leg *leg = &path->legs[s];
        int in_pool = leg->share - pl->stages[s].first_share;
        assert_true(in_pool >= 0 && in_pool < pl->stages[s].n_shares);
        if (s > 0) {
            int from = a->t->shares[path->legs[s - 1].share].node,
                to = a->t->shares[leg->share].node;
            assert_true(leg->transfer_start_ns >= ready);
            assert_int_equal(leg->transfer_end_ns - leg->transfer_start_ns,
                             pl->stages[s - 1].transfer_ns[action->n]);
            book(a, a->t->n_shares + 2 * from, leg->transfer_start_ns, leg->transfer_end_ns);
            book(a, a->t->n_shares + 2 * to + 1, leg->transfer_start_ns, leg->transfer_end_ns);
            ready = leg->transfer_end_ns + pl->stages[s - 1].hop_latency_ns;
        }
        assert_true(leg->start_ns >= ready);
        assert_int_equal(leg->end_ns - leg->start_ns, pl->stages[s].compute_ns[action->n]);
        book(a, leg->share, leg->start_ns, leg->end_ns);
        ready = leg->end_ns;
    }
    assert_int_equal(ready, path->finish_ns);
}

/* Old books cannot meet new ones. */
static void forget(struct auditor *a)
{
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (a->books[i].end > a->now)
            a->books[n++] = a->books[i];
    a->n = n;
}

/* The models once more in a size that takes `part` of the time, on the same shares. */
static void serve_smaller(struct served *s, const bool *also, double part)
{
    struct dispatch_topology other = {0};
    struct err e = {0};
    int own = s->t.n_pipelines;
    assert_int_equal(
        dispatch_topology_make(&s->answer.plan, &s->x.c, &s->x.w, s->share, &other, &e), 0);
    assert_int_equal(dispatch_topology_add(&s->t, &other, also, &e), 0);
    dispatch_topology_free(&other);
    for (int i = own; i < s->t.n_pipelines; i++) {
        const struct dispatch_pipeline *pl = &s->t.pipelines[i];
        assert_true(pl->beside >= 1 && pl->beside <= own);
        for (int k = 0; k < pl->n_stages; k++)
            for (int n = 1; n <= pl->batch; n++)
                pl->stages[k].compute_ns[n] =
                    (int64_t)((double)pl->stages[k].compute_ns[n] * part) + 1;
    }
}

enum { LINES = 4 };

static void served_audit(struct served *s, uint64_t seed)
{
    struct dispatch *d;
    struct err e = {0};
    struct arrival a;
    int64_t wake[LINES] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    double rates[LINES];
    int arrived = 0, lines = s->t.n_models;
    assert_true(lines <= LINES);
    struct auditor auditor = {.t = &s->t, .books = calloc(200000, sizeof(struct book))};
    struct arrivals *stream = malloc(sizeof *stream);
    assert_non_null(auditor.books);
    assert_int_equal(dispatch_create(&s->t, 0, &d, &e), 0);
    for (int m = 0; m < lines; m++)
        rates[m] = s->t.models[m].rate * (seed % 2 ? 0.8 : 1.3) / (lines > 2 ? 1.4 : 1);
    arrivals_init(stream, ARRIVALS_POISSON, rates, lines, 1.5, seed);
    while (arrivals_next(stream, &a, &e) > 0) {
        for (int m = 0; m < lines; m++)
            if (wake[m] <= a.at_ns) {
                auditor.now = wake[m];
                wake[m] = dispatch_run(d, m, wake[m], audit, &auditor);
                m = -1;
            }
        auditor.now = a.at_ns;
        forget(&auditor);
        assert_int_equal(dispatch_arrive(d, a.model, 0, a.at_ns), 0);
        wake[a.model] = dispatch_run(d, a.model, a.at_ns, audit, &auditor);
        arrived++;
    }
    assert_true(auditor.requests > arrived / 4);
    int waiting = 0;
    for (int m = 0; m < lines; m++)
        waiting += dispatch_waiting(d, m);
    assert_int_equal(auditor.requests + auditor.dropped + waiting, arrived);
    dispatch_destroy(&d);
    free(stream);
    free(auditor.books);
}

TEST(nothing_that_was_sent_is_late_or_booked_twice)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct served s;
        serve_example(&s, seed, 1 + (int)(seed % 4), 1 + (int)(seed % 3));
        served_audit(&s, seed);
        served_free(&s);
    }
}

TEST(models_in_several_sizes_share_what_they_run_on_and_none_is_late_or_booked_twice)
{
    static const bool both[] = {true, true}, second[] = {false, true};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct served s;
        serve_example(&s, seed, 1 + (int)(seed % 4), 1 + (int)(seed % 3));
        serve_smaller(&s, seed % 2 ? both : second, 0.4);
        assert_int_equal(s.t.n_models, seed % 2 ? 4 : 3);
        assert_int_equal(s.t.pipelines[s.t.models[2].first_pipeline].model, 2);
        served_audit(&s, seed);
        served_free(&s);
    }
}

/* ---- a probe, done slowly ---- */

struct tables {
    struct reservation_line *shares, *up, *down;
};

/* The earliest end of one stage over all shares of its pool, for a batch that is ready on `from` (a
 * node; -1: the first stage) (algorithm 2). */
static int64_t slow_stage(const struct dispatch_topology *t, const struct tables *w,
                          const struct dispatch_pipeline *pl, int s, int n, int from, int64_t ready)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < pl->stages[s].n_shares; i++) {
        int share = pl->stages[s].first_share + i;
        int64_t at = ready;
        if (s > 0) {
            int64_t moved = pl->stages[s - 1].transfer_ns[n];
            at = line_earliest_both(&w->up[from], &w->down[t->shares[share].node], ready, moved) +
                 moved + pl->stages[s - 1].hop_latency_ns;
        }
        at = line_earliest(&w->shares[share], at, pl->stages[s].compute_ns[n]) +
             pl->stages[s].compute_ns[n];
        best = at < best ? at : best;
    }
    return best;
}

static void enter(const struct dispatch_topology *t, struct tables *w,
                  const struct dispatch_path *path)
{
    for (int s = 0; s < t->pipelines[path->pipeline].n_stages; s++) {
        const struct dispatch_leg *leg = &path->legs[s];
        assert_true(line_reserve(&w->shares[leg->share], INT64_MIN, leg->start_ns, leg->end_ns, 0));
        if (s == 0)
            continue;
        assert_true(line_reserve(&w->up[t->shares[path->legs[s - 1].share].node], INT64_MIN,
                                 leg->transfer_start_ns, leg->transfer_end_ns, 0));
        assert_true(line_reserve(&w->down[t->shares[leg->share].node], INT64_MIN,
                                 leg->transfer_start_ns, leg->transfer_end_ns, 0));
    }
}

TEST(a_probe_finds_what_trying_every_share_finds)
{
    int compared = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct served s;
        struct dispatch *d;
        struct err e = {0};
        uint64_t random = seed;
        serve_example(&s, seed, 3, 2);
        struct tables w = {calloc((size_t)s.t.n_shares, sizeof(struct reservation_line)),
                           calloc((size_t)s.t.n_nodes, sizeof(struct reservation_line)),
                           calloc((size_t)s.t.n_nodes, sizeof(struct reservation_line))};
        assert_true(w.shares && w.up && w.down);
        assert_int_equal(dispatch_create(&s.t, 0, &d, &e), 0);
        int64_t now = 0;
        for (uint32_t i = 0; i < 150; i++) {
            struct dispatch_path path;
            int pipeline = (int)(random_unit(&random) * s.t.n_pipelines),
                n = 1 + (int)(random_unit(&random) * s.t.pipelines[pipeline].batch);
            now += (int64_t)(random_unit(&random) * 1e6);
            dispatch_probe(d, pipeline, n, now, &path);
            const struct dispatch_pipeline *pl = &s.t.pipelines[pipeline];
            int64_t ready = now;
            for (int st = 0, from = -1; st < pl->n_stages; st++) {
                assert_int_equal(path.legs[st].end_ns,
                                 slow_stage(&s.t, &w, pl, st, n, from, ready));
                ready = path.legs[st].end_ns;
                from = s.t.shares[path.legs[st].share].node;
                compared++;
            }
            dispatch_reserve(d, &path, now, i);
            enter(&s.t, &w, &path);
        }
        for (int i = 0; i < s.t.n_shares; i++)
            line_free(&w.shares[i]);
        for (int i = 0; i < s.t.n_nodes; i++) {
            line_free(&w.up[i]);
            line_free(&w.down[i]);
        }
        free(w.shares);
        free(w.up);
        free(w.down);
        dispatch_destroy(&d);
        served_free(&s);
    }
    assert_true(compared > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_was_sent_is_late_or_booked_twice),
        cmocka_unit_test(
            models_in_several_sizes_share_what_they_run_on_and_none_is_late_or_booked_twice),
        cmocka_unit_test(a_probe_finds_what_trying_every_share_finds),
    };
    return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
