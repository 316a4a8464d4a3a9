#include "planners/coldstart/search.h"

#include <math.h>

#include "planners/coldstart/changes.h"

void search_budget_start(struct search_budget *b)
{
    b->started_ns = b->env ? env_now_ns(b->env) : 0;
    b->told_ns = b->started_ns;
    b->used = 0;
    b->progress = 0;
}

double search_budget_look(struct search_budget *b)
{
    double by_count = b->evaluations ? (double)b->used / (double)b->evaluations : 0, by_time = 0;
    if (b->seconds > 0)
        by_time = (double)(env_now_ns(b->env) - b->started_ns) * 1e-9 / b->seconds;
    b->progress = fmin(1, fmax(by_count, by_time));
    return b->progress;
}

int search_init(struct coldstart_search *s, const struct coldstart_problem *p,
                struct search_budget *budget, uint64_t seed, struct err *e)
{
    *s = (struct coldstart_search){.p = p,
                                   .budget = budget,
                                   .random = seed,
                                   .current_s = INFINITY,
                                   .best_s = INFINITY,
                                   .window_to = 1};
    int capacity = 2 * p->n_params + p->n_ops + 1, rc = timing_init(&s->timing, p, capacity, e);
    if (rc < 0)
        return rc;
    s->picked = arena_alloc(&s->arena, 2 * (size_t)p->n_nodes, sizeof *s->picked);
    s->class_picked = arena_alloc(&s->arena, (size_t)p->n_nodes, sizeof *s->class_picked);
    s->segments = arena_alloc(&s->arena, (size_t)p->n_ops, sizeof *s->segments);
    s->n_segments = s->segments ? dominators_find(p, s->segments) : HP_ENOMEM;
    if (s->n_segments < 0 || !s->picked || !s->class_picked ||
        moves_init(&s->moves, p, capacity) < 0 ||
        node_classes_find(p, &s->arena, &s->classes) < 0 ||
        coldstart_plan_init(p, capacity, &s->arena, &s->current) < 0 ||
        coldstart_plan_init(p, capacity, &s->arena, &s->candidate) < 0 ||
        coldstart_plan_init(p, capacity, &s->arena, &s->best) < 0 ||
        coldstart_plan_init(p, capacity, &s->arena, &s->round) < 0) {
        search_fini(s);
        return err_set(e, HP_ENOMEM, "out of memory: the graph has %d nodes", p->n_nodes);
    }
    return 0;
}

void search_fini(struct coldstart_search *s)
{
    timing_fini(&s->timing);
    moves_fini(&s->moves);
    arena_free(&s->arena);
}

double search_offer(struct coldstart_search *s, const struct coldstart_plan *plan)
{
    double latency = timing_run(&s->timing, plan);
    s->budget->used++;
    if (latency < s->best_s) {
        s->best_s = latency;
        coldstart_plan_copy(s->p, &s->best, plan);
    }
    return latency;
}

/* ---- annealing ---- */

enum { LOOK_EVERY = 8 };

static void search_tell(struct coldstart_search *s)
{
    struct search_budget *b = s->budget;
    if (!b->tell || !b->env)
        return;
    uint64_t now = env_now_ns(b->env);
    if (now - b->told_ns > 200000000u) {
        b->told_ns = now;
        b->tell(b->tell_ctx, b->progress, s->best_s);
    }
}

/* The candidate takes the place of the current plan, and of the round's best where it is better. */
static void candidate_take(struct coldstart_search *s, double latency_s)
{
    struct coldstart_plan t = s->current;
    s->current = s->candidate;
    s->candidate = t;
    s->current_s = latency_s;
    if (latency_s < s->round_s) {
        s->round_s = latency_s;
        coldstart_plan_copy(s->p, &s->round, &s->current);
    }
}

static void search_anneal(struct coldstart_search *s, const struct coldstart_plan *start,
                          double until, double heat, bool coarse)
{
    double from = search_budget_look(s->budget);
    if (from >= until)
        return;
    coldstart_plan_copy(s->p, &s->current, start);
    s->current_s = s->round_s = search_offer(s, &s->current);
    if (start != &s->round)
        coldstart_plan_copy(s->p, &s->round, start);
    double hot = fmin(s->current_s, s->best_s) * 0.01 * heat, cold = hot * 1e-3, temperature = hot;
    for (int i = 0;; i++) {
        if (i % LOOK_EVERY == 0) {
            double progress = search_budget_look(s->budget);
            if (progress >= until || s->best_s <= s->bound_s)
                return;
            temperature = hot * pow(cold / hot, (progress - from) / (until - from));
            search_tell(s);
        }
        enum moves_rule rule = s->rule;
        coldstart_plan_copy(s->p, &s->candidate, &s->current);
        if (!(coarse ? change_coarse(s) : change_fine(s))) {
            s->budget->used += i % 4 == 0; /* a search without moves must end too */
            continue;
        }
        double latency = search_offer(s, &s->candidate);
        if (latency <= s->current_s ||
            random_unit(&s->random) < exp((s->current_s - latency) / temperature))
            candidate_take(s, latency);
        else
            s->rule = rule;
    }
}

void search_coarse(struct coldstart_search *s, const struct coldstart_plan *start, double until,
                   double heat)
{
    search_anneal(s, start, until, heat, true);
}

void search_fine(struct coldstart_search *s, const struct coldstart_plan *start, double until,
                 double heat)
{
    search_anneal(s, start, until, heat, false);
}

/* Windows of a few sub-models, each overlapping the one before by half. */
enum { ROLLING_WINDOWS = 24 };

void search_rolling(struct coldstart_search *s, double until, double heat)
{
    double from = search_budget_look(s->budget), n_ops = s->p->n_ops;
    int windows = s->n_segments < ROLLING_WINDOWS ? s->n_segments : ROLLING_WINDOWS;
    for (int w = 0; w < windows && s->best_s > s->bound_s; w++) {
        int first = w * s->n_segments / (windows + 1),
            last = (w + 2) * s->n_segments / (windows + 1);
        s->window_from = s->segments[first] / n_ops;
        s->window_to = last < s->n_segments ? (s->segments[last] + 1) / n_ops : 1;
        search_anneal(s, &s->round, from + (until - from) * (w + 1) / windows, heat, false);
    }
    s->window_from = 0;
    s->window_to = 1;
}
