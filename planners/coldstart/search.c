#include "planners/coldstart/search.h"

#include <math.h>
#include <string.h>

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

int search_init(struct search *s, const struct coldstart_problem *p, struct search_budget *budget,
                uint64_t seed, struct err *e)
{
    *s = (struct search){.p = p,
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

void search_fini(struct search *s)
{
    timing_fini(&s->timing);
    moves_fini(&s->moves);
    arena_free(&s->arena);
}

double search_offer(struct search *s, const struct coldstart_plan *plan)
{
    double latency = timing_run(&s->timing, plan);
    s->budget->used++;
    if (latency < s->best_s) {
        s->best_s = latency;
        coldstart_plan_copy(s->p, &s->best, plan);
    }
    return latency;
}

/* ---- chance
 * ---------------------------------------------------------------------------------------------------
 */

static int below(struct search *s, int n)
{
    return (int)(random_unit(&s->random) * n);
}

/* A place among n within the window. */
static int place_below(struct search *s, int n)
{
    int from = (int)(s->window_from * n), to = (int)(s->window_to * n);
    from = from < n ? from : n - 1;
    return from + below(s, to > from ? to - from : 1);
}

static bool chance(struct search *s, double share)
{
    return random_unit(&s->random) < share;
}

/* 1, 2, 3, ... with falling probability. */
static int few(struct search *s, int most)
{
    int n = 1;
    while (n < most && chance(s, 0.6))
        n++;
    return n;
}

/* ---- which operators a move takes
 * ----------------------------------------------------------------------------- */

/* One operator, a run of the order, or a path along readers. */
static int pick_stretch(struct search *s)
{
    const struct coldstart_problem *p = s->p;
    int n = 0, i = place_below(s, p->n_ops), most = chance(s, 0.5) ? 1 : few(s, 12);
    if (chance(s, 0.5)) {
        for (; n < most && i < p->n_ops; i++)
            s->picked[n++] = s->candidate.order[i];
        return n;
    }
    for (int v = s->candidate.order[i]; n < most;) {
        s->picked[n++] = v;
        int readers = p->readers_at[v + 1] - p->readers_at[v];
        if (readers == 0)
            break;
        v = p->readers[p->readers_at[v] + below(s, readers)];
    }
    return n;
}

/* The picked operators and all that equal one of them. */
static int add_equals(struct search *s, int n)
{
    const struct node_classes *c = &s->classes;
    int classes[16], n_classes = 0, all = 0;
    for (int i = 0; i < n && n_classes < 16; i++) {
        int k = c->class_of[s->picked[i]];
        if (!s->class_picked[k])
            classes[n_classes++] = k;
        s->class_picked[k] = true;
    }
    for (int i = 0; i < n_classes; i++) {
        s->class_picked[classes[i]] = false;
        for (int k = c->members_at[classes[i]]; k < c->members_at[classes[i] + 1]; k++)
            s->picked[all++] = c->members[k];
    }
    return all;
}

static bool repeats(const struct search *s)
{
    return s->classes.n_op_classes < s->p->n_ops;
}

static int pick_ops(struct search *s, double equals)
{
    int n = pick_stretch(s);
    return repeats(s) && chance(s, equals) ? add_equals(s, n) : n;
}

/* ---- moves
 * ----------------------------------------------------------------------------------------------------
 */

static bool change_device(struct search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    if (p->n_devices == 1)
        return false;
    int n = pick_ops(s, equals), device = below(s, p->n_devices), changed = 0;
    for (int i = 0; i < n; i++)
        changed += s->candidate.device[s->picked[i]] != device;
    if (changed == 0)
        return false;
    moves_set_device(&s->moves, &s->candidate, s->picked, n, device, chance(s, 0.5));
    return true;
}

static bool change_host(struct search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    int n = pick_ops(s, equals), kept = 0;
    bool host = true, known = false;
    for (int i = 0; i < n; i++) {
        int v = s->picked[i];
        if (!coldstart_has_params(p, v))
            continue;
        if (!known)
            host = !s->candidate.host[v];
        known = true;
        if (s->candidate.host[v] != host)
            s->picked[kept++] = v;
    }
    if (kept == 0)
        return false;
    moves_set_host(&s->moves, &s->candidate, s->picked, kept, host,
                   chance(s, 0.5) ? -1 : below(s, p->n_buses));
    return true;
}

static bool change_order(struct search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    int index = place_below(s, p->n_ops), places = few(s, 8);
    bool earlier = chance(s, 0.5), moved = false;
    if (!repeats(s) || !chance(s, equals))
        return moves_shift_op(&s->moves, &s->candidate, index, places, earlier);
    int class = s->classes.class_of[s->candidate.order[index]];
    for (int k = 0; k < p->n_ops; k++) {
        int i = earlier ? k : p->n_ops - 1 - k;
        if (s->classes.class_of[s->candidate.order[i]] == class)
            moved = moves_shift_op(&s->moves, &s->candidate, i, places, earlier) || moved;
    }
    return moved;
}

/* Exchanges two devices for a stretch of the order, or to its end. */
static bool exchange_devices(struct search *s)
{
    const struct coldstart_problem *p = s->p;
    if (p->n_devices == 1)
        return false;
    int a = below(s, p->n_devices), b = below(s, p->n_devices), first = place_below(s, p->n_ops);
    int end = chance(s, 0.5) ? p->n_ops : first + 1 + below(s, p->n_ops - first), n = 0;
    for (int i = first; i < end; i++)
        if (s->candidate.device[s->candidate.order[i]] == a)
            s->picked[n++] = s->candidate.order[i];
    if (a == b || n == 0)
        return false;
    int m = 0, *others = s->picked + n;
    for (int i = first; i < end; i++)
        if (s->candidate.device[s->candidate.order[i]] == b)
            others[m++] = s->candidate.order[i];
    bool keep_bus = chance(s, 0.5);
    moves_set_device(&s->moves, &s->candidate, s->picked, n, b, keep_bus);
    moves_set_device(&s->moves, &s->candidate, others, m, a, keep_bus);
    return true;
}

static bool shift_copy(struct search *s)
{
    int n = s->candidate.n_copies;
    if (n < 2)
        return false;
    int from = place_below(s, n), far = chance(s, 0.1) ? n : 8;
    int to = from + (chance(s, 0.5) ? 1 : -1) * (1 + below(s, far));
    to = to < 0 ? 0 : to >= n ? n - 1 : to;
    if (to != from)
        moves_shift_copy(&s->candidate, from, to);
    return to != from;
}

static bool change_bus(struct search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    int n = s->candidate.n_copies, bus = below(s, p->n_buses);
    if (n == 0)
        return false;
    struct coldstart_copy *copy = &s->candidate.copies[place_below(s, n)];
    if (copy->read || p->n_devices == 1)
        return false;
    if (chance(s, 0.15)) { /* land elsewhere */
        int device = below(s, p->n_devices);
        bool changed = copy->device != device;
        copy->device = (int8_t)device;
        return changed;
    }
    if (p->bus_of[copy->device] == bus)
        return false;
    const struct node_classes *c = &s->classes;
    int class = c->class_of[copy->node];
    if (chance(s, equals))
        moves_set_bus(&s->moves, &s->candidate, c->members + c->members_at[class],
                      c->members_at[class + 1] - c->members_at[class], bus);
    else
        moves_set_bus(&s->moves, &s->candidate, &copy->node, 1, bus);
    return true;
}

/* Two copies that stand near each other trade places, and so their buses, each landing where its
 * reader is served. */
static bool trade_copies(struct search *s)
{
    const struct coldstart_problem *p = s->p;
    int n = s->candidate.n_copies;
    if (n < 2)
        return false;
    int i = place_below(s, n), k = i + 1 + below(s, 6);
    if (k >= n)
        return false;
    struct coldstart_copy *a = &s->candidate.copies[i], *b = &s->candidate.copies[k];
    if (a->read || b->read)
        return false;
    int bus_a = p->bus_of[a->device], bus_b = p->bus_of[b->device];
    struct coldstart_copy t = *a;
    *a = *b;
    *b = t;
    if (bus_a != bus_b) {
        moves_set_bus(&s->moves, &s->candidate, &a->node, 1, bus_a);
        moves_set_bus(&s->moves, &s->candidate, &b->node, 1, bus_b);
    }
    return true;
}

/* From some copy on, two buses exchange what they carry. */
static bool exchange_buses(struct search *s)
{
    const struct coldstart_problem *p = s->p;
    int n = s->candidate.n_copies;
    if (p->n_buses == 1 || n < 2)
        return false;
    int first = place_below(s, n), end = chance(s, 0.5) ? n : first + 1 + below(s, n - first),
        a = below(s, p->n_buses), b = below(s, p->n_buses);
    if (a == b)
        return false;
    int to_a = 0, to_b = 0, *others = s->picked + p->n_nodes;
    for (int i = first; i < end; i++) {
        const struct coldstart_copy *c = &s->candidate.copies[i];
        if (c->read)
            continue;
        if (p->bus_of[c->device] == a)
            s->picked[to_b++] = c->node;
        else if (p->bus_of[c->device] == b)
            others[to_a++] = c->node;
    }
    moves_set_bus(&s->moves, &s->candidate, s->picked, to_b, b);
    moves_set_bus(&s->moves, &s->candidate, others, to_a, a);
    return to_a + to_b > 0;
}

/* A parameter that several devices read is copied to one more of them, or to one less. */
static bool change_copies(struct search *s)
{
    const struct coldstart_problem *p = s->p;
    struct coldstart_plan *plan = &s->candidate;
    int n = plan->n_copies, at = n > 0 ? place_below(s, n) : -1;
    if (at < 0 || plan->copies[at].read)
        return false;
    int w = plan->copies[at].node, same = 0,
        device = plan->device[p->readers[p->readers_at[w] +
                                         below(s, p->readers_at[w + 1] - p->readers_at[w])]];
    bool there = false;
    for (int i = 0; i < n; i++) {
        if (plan->copies[i].read || plan->copies[i].node != w)
            continue;
        same++;
        there = there || plan->copies[i].device == device;
    }
    if (same > 1 && (there || chance(s, 0.5))) {
        memmove(plan->copies + at, plan->copies + at + 1,
                (size_t)(n - at - 1) * sizeof *plan->copies);
        plan->n_copies--;
        return true;
    }
    if (there || n >= plan->capacity)
        return false;
    coldstart_plan_add(plan, w, device, false);
    moves_shift_copy(plan, n, at + below(s, n + 1 - at));
    return true;
}

/* Devices, modes and order change; then all copies' buses are chosen anew by a rule. */
static bool move_coarse(struct search *s)
{
    double r = random_unit(&s->random), equals = 0.75;
    bool moved, in_order_of_use = chance(s, 0.15);
    if (r < 0.45)
        moved = change_device(s, equals);
    else if (r < 0.58)
        moved = change_host(s, equals);
    else if (r < 0.75)
        moved = change_order(s, equals);
    else if (r < 0.80)
        moved = exchange_devices(s);
    else if (r < 0.95)
        moved = shift_copy(s);
    else {
        enum moves_rule rule = (enum moves_rule)below(s, MOVES_RULES);
        moved = rule != s->rule;
        s->rule = rule;
    }
    if (moved)
        moves_lay_copies(&s->moves, &s->candidate, s->rule, in_order_of_use);
    return moved;
}

static bool move_fine(struct search *s)
{
    double r = random_unit(&s->random), equals = 0.3;
    if (r < 0.20)
        return change_device(s, equals);
    if (r < 0.28)
        return change_host(s, equals);
    if (r < 0.45)
        return change_order(s, equals);
    if (r < 0.47)
        return exchange_devices(s);
    if (r < 0.65)
        return shift_copy(s);
    if (r < 0.80)
        return change_bus(s, equals);
    if (r < 0.92)
        return trade_copies(s);
    if (r < 0.97)
        return exchange_buses(s);
    return change_copies(s);
}

/* ---- annealing
 * ------------------------------------------------------------------------------------------------
 */

enum { LOOK_EVERY = 8 };

static void tell(struct search *s)
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

static void anneal(struct search *s, const struct coldstart_plan *start, double until, double heat,
                   bool coarse)
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
            tell(s);
        }
        enum moves_rule rule = s->rule;
        coldstart_plan_copy(s->p, &s->candidate, &s->current);
        if (!(coarse ? move_coarse(s) : move_fine(s))) {
            s->budget->used += i % 4 == 0; /* a search without moves must end too */
            continue;
        }
        double latency = search_offer(s, &s->candidate);
        if (latency <= s->current_s ||
            random_unit(&s->random) < exp((s->current_s - latency) / temperature)) {
            struct coldstart_plan t = s->current;
            s->current = s->candidate;
            s->candidate = t;
            s->current_s = latency;
            if (latency < s->round_s) {
                s->round_s = latency;
                coldstart_plan_copy(s->p, &s->round, &s->current);
            }
        } else {
            s->rule = rule;
        }
    }
}

void search_coarse(struct search *s, const struct coldstart_plan *start, double until, double heat)
{
    anneal(s, start, until, heat, true);
}

void search_fine(struct search *s, const struct coldstart_plan *start, double until, double heat)
{
    anneal(s, start, until, heat, false);
}

/* Windows of a few sub-models, each overlapping the one before by half. */
enum { ROLLING_WINDOWS = 24 };

void search_rolling(struct search *s, double until, double heat)
{
    double from = search_budget_look(s->budget), n_ops = s->p->n_ops;
    int windows = s->n_segments < ROLLING_WINDOWS ? s->n_segments : ROLLING_WINDOWS;
    for (int w = 0; w < windows && s->best_s > s->bound_s; w++) {
        int last = (w + 2) * s->n_segments / (windows + 1);
        s->window_from = s->segments[w * s->n_segments / (windows + 1)] / n_ops;
        s->window_to = last < s->n_segments ? (s->segments[last] + 1) / n_ops : 1;
        anneal(s, &s->round, from + (until - from) * (w + 1) / windows, heat, false);
    }
    s->window_from = 0;
    s->window_to = 1;
}
