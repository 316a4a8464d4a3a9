/* Single steps of the search: which operators or copies a step takes, and what becomes of them. */
#include "planners/coldstart/changes.h"

#include <string.h>

static int random_below(struct coldstart_search *s, int n)
{
    return (int)(random_unit(&s->random) * n);
}

/* A place among n within the window. */
static int place_below(struct coldstart_search *s, int n)
{
    int from = (int)(s->window_from * n), to = (int)(s->window_to * n);
    from = from < n ? from : n - 1;
    return from + random_below(s, to > from ? to - from : 1);
}

static bool random_chance(struct coldstart_search *s, double share)
{
    return random_unit(&s->random) < share;
}

/* 1, 2, 3, ... with falling probability. */
static int random_few(struct coldstart_search *s, int most)
{
    int n = 1;
    while (n < most && random_chance(s, 0.6))
        n++;
    return n;
}

/* ---- which operators a move takes ---- */

/* One operator, a run of the order, or a path along readers. */
static int pick_stretch(struct coldstart_search *s)
{
    const struct coldstart_problem *p = s->p;
    int n = 0, i = place_below(s, p->n_ops), most = random_chance(s, 0.5) ? 1 : random_few(s, 12);
    if (random_chance(s, 0.5)) {
        for (; n < most && i < p->n_ops; i++)
            s->picked[n++] = s->candidate.order[i];
        return n;
    }
    for (int v = s->candidate.order[i]; n < most;) {
        s->picked[n++] = v;
        int readers = p->readers_at[v + 1] - p->readers_at[v];
        if (readers == 0)
            break;
        v = p->readers[p->readers_at[v] + random_below(s, readers)];
    }
    return n;
}

/* The picked operators and all that equal one of them. */
static int add_equals(struct coldstart_search *s, int n)
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

static bool graph_repeats(const struct coldstart_search *s)
{
    return s->classes.n_op_classes < s->p->n_ops;
}

static int pick_ops(struct coldstart_search *s, double equals)
{
    int n = pick_stretch(s);
    return graph_repeats(s) && random_chance(s, equals) ? add_equals(s, n) : n;
}

/* ---- moves ---- */

static bool change_device(struct coldstart_search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    if (p->n_devices == 1)
        return false;
    int n = pick_ops(s, equals), device = random_below(s, p->n_devices), changed = 0;
    for (int i = 0; i < n; i++)
        changed += s->candidate.device[s->picked[i]] != device;
    if (changed == 0)
        return false;
    moves_set_device(&s->moves, &s->candidate, s->picked, n, device, random_chance(s, 0.5));
    return true;
}

static bool change_host(struct coldstart_search *s, double equals)
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
                   random_chance(s, 0.5) ? -1 : random_below(s, p->n_buses));
    return true;
}

static bool change_order(struct coldstart_search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    int index = place_below(s, p->n_ops), places = random_few(s, 8);
    bool earlier = random_chance(s, 0.5), moved = false;
    if (!graph_repeats(s) || !random_chance(s, equals))
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
static bool exchange_devices(struct coldstart_search *s)
{
    const struct coldstart_problem *p = s->p;
    if (p->n_devices == 1)
        return false;
    int a = random_below(s, p->n_devices), b = random_below(s, p->n_devices),
        first = place_below(s, p->n_ops);
    int end = random_chance(s, 0.5) ? p->n_ops : first + 1 + random_below(s, p->n_ops - first),
        n = 0;
    for (int i = first; i < end; i++)
        if (s->candidate.device[s->candidate.order[i]] == a)
            s->picked[n++] = s->candidate.order[i];
    if (a == b || n == 0)
        return false;
    int m = 0, *others = s->picked + n;
    for (int i = first; i < end; i++)
        if (s->candidate.device[s->candidate.order[i]] == b)
            others[m++] = s->candidate.order[i];
    bool keep_bus = random_chance(s, 0.5);
    moves_set_device(&s->moves, &s->candidate, s->picked, n, b, keep_bus);
    moves_set_device(&s->moves, &s->candidate, others, m, a, keep_bus);
    return true;
}

static bool shift_copy(struct coldstart_search *s)
{
    int n = s->candidate.n_copies;
    if (n < 2)
        return false;
    int from = place_below(s, n), far = random_chance(s, 0.1) ? n : 8;
    int to = from + (random_chance(s, 0.5) ? 1 : -1) * (1 + random_below(s, far));
    to = to < 0 ? 0 : to >= n ? n - 1 : to;
    if (to != from)
        moves_shift_copy(&s->candidate, from, to);
    return to != from;
}

static bool change_bus(struct coldstart_search *s, double equals)
{
    const struct coldstart_problem *p = s->p;
    int n = s->candidate.n_copies, bus = random_below(s, p->n_buses);
    if (n == 0)
        return false;
    struct coldstart_copy *copy = &s->candidate.copies[place_below(s, n)];
    if (copy->read || p->n_devices == 1)
        return false;
    if (random_chance(s, 0.15)) { /* land elsewhere */
        int device = random_below(s, p->n_devices);
        bool changed = copy->device != device;
        copy->device = (int8_t)device;
        return changed;
    }
    if (p->bus_of[copy->device] == bus)
        return false;
    const struct node_classes *c = &s->classes;
    int class = c->class_of[copy->node];
    if (random_chance(s, equals))
        moves_set_bus(&s->moves, &s->candidate, c->members + c->members_at[class],
                      c->members_at[class + 1] - c->members_at[class], bus);
    else
        moves_set_bus(&s->moves, &s->candidate, &copy->node, 1, bus);
    return true;
}

/* Two copies that stand near each other trade places, and so their buses, each landing where its
 * reader is served. */
static bool trade_copies(struct coldstart_search *s)
{
    const struct coldstart_problem *p = s->p;
    int n = s->candidate.n_copies;
    if (n < 2)
        return false;
    int i = place_below(s, n), k = i + 1 + random_below(s, 6);
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
static bool exchange_buses(struct coldstart_search *s)
{
    const struct coldstart_problem *p = s->p;
    int n = s->candidate.n_copies;
    if (p->n_buses == 1 || n < 2)
        return false;
    int first = place_below(s, n),
        end = random_chance(s, 0.5) ? n : first + 1 + random_below(s, n - first),
        a = random_below(s, p->n_buses), b = random_below(s, p->n_buses);
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
static bool change_copies(struct coldstart_search *s)
{
    const struct coldstart_problem *p = s->p;
    struct coldstart_plan *plan = &s->candidate;
    int n = plan->n_copies, at = n > 0 ? place_below(s, n) : -1;
    if (at < 0 || plan->copies[at].read)
        return false;
    int w = plan->copies[at].node, same = 0,
        device = plan->device[p->readers[p->readers_at[w] +
                                         random_below(s, p->readers_at[w + 1] - p->readers_at[w])]];
    bool there = false;
    for (int i = 0; i < n; i++) {
        if (plan->copies[i].read || plan->copies[i].node != w)
            continue;
        same++;
        there = there || plan->copies[i].device == device;
    }
    if (same > 1 && (there || random_chance(s, 0.5))) {
        memmove(plan->copies + at, plan->copies + at + 1,
                (size_t)(n - at - 1) * sizeof *plan->copies);
        plan->n_copies--;
        return true;
    }
    if (there || n >= plan->capacity)
        return false;
    coldstart_plan_add(plan, w, device, false);
    moves_shift_copy(plan, n, at + random_below(s, n + 1 - at));
    return true;
}

bool change_coarse(struct coldstart_search *s)
{
    double r = random_unit(&s->random), equals = 0.75;
    bool moved, in_order_of_use = random_chance(s, 0.15);
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
        enum moves_rule rule = (enum moves_rule)random_below(s, MOVES_RULES);
        moved = rule != s->rule;
        s->rule = rule;
    }
    if (moved)
        moves_lay_copies(&s->moves, &s->candidate, s->rule, in_order_of_use);
    return moved;
}

bool change_fine(struct coldstart_search *s)
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
