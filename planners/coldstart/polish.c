#include "planners/coldstart/polish.h"

struct polishing {
    struct coldstart_search *s;
    double until;
    bool improved, over;
};

/* s->current is the plan at hand and s->candidate one change away from it. */
static void polish_begin(struct polishing *k)
{
    coldstart_plan_copy(k->s->p, &k->s->candidate, &k->s->current);
}

/* Times the candidate and takes it if it is better. */
static void polish_judge(struct polishing *k)
{
    struct coldstart_search *s = k->s;
    double latency = search_offer(s, &s->candidate);
    if (latency < s->current_s * (1 - 1e-12)) {
        coldstart_plan_copy(s->p, &s->current, &s->candidate);
        s->current_s = latency;
        k->improved = true;
    }
    if (s->budget->used % 8 == 0)
        k->over = search_budget_look(s->budget) >= k->until || s->best_s <= s->bound_s;
}

static void try_devices(struct polishing *k, int v)
{
    struct coldstart_search *s = k->s;
    for (int d = 0; d < s->p->n_devices; d++)
        for (int keep_bus = 0; keep_bus <= 1 && !k->over; keep_bus++) {
            if (s->current.device[v] == d)
                continue;
            polish_begin(k);
            moves_set_device(&s->moves, &s->candidate, &v, 1, d, keep_bus);
            polish_judge(k);
        }
}

static void try_modes(struct polishing *k, int v)
{
    struct coldstart_search *s = k->s;
    for (int bus = -1; bus < s->p->n_buses && coldstart_has_params(s->p, v) && !k->over; bus++) {
        if (!s->current.host[v] && bus >= 0)
            return; /* a read has no choice of bus */
        polish_begin(k);
        moves_set_host(&s->moves, &s->candidate, &v, 1, !s->current.host[v], bus);
        polish_judge(k);
    }
}

enum { POLISH_PLACES = 3, POLISH_COPIES = 16 };

static void try_places(struct polishing *k, int v)
{
    struct coldstart_search *s = k->s;
    for (int places = 1; places <= POLISH_PLACES; places++)
        for (int earlier = 0; earlier <= 1 && !k->over; earlier++) {
            int index = 0;
            while (s->current.order[index] != v)
                index++;
            polish_begin(k);
            if (moves_shift_op(&s->moves, &s->candidate, index, places, earlier))
                polish_judge(k);
        }
}

static void try_landings(struct polishing *k, int c)
{
    struct coldstart_search *s = k->s;
    for (int d = 0; d < s->p->n_devices && !s->current.copies[c].read && !k->over; d++) {
        if (s->current.copies[c].device == d)
            continue;
        polish_begin(k);
        s->candidate.copies[c].device = (int8_t)d;
        polish_judge(k);
    }
}

/* Moves copy c to each place near it, over its own bus and over every other. */
static void try_turns(struct polishing *k, int c)
{
    struct coldstart_search *s = k->s;
    int first = c > POLISH_COPIES ? c - POLISH_COPIES : 0;
    for (int to = first; to <= c + POLISH_COPIES && to < s->current.n_copies; to++)
        for (int bus = -1; bus < s->p->n_buses && !k->over; bus++) {
            int node = s->current.copies[c].node;
            if (to == c || (bus >= 0 && s->current.copies[c].read))
                continue;
            polish_begin(k);
            moves_shift_copy(&s->candidate, c, to);
            if (bus >= 0)
                moves_set_bus(&s->moves, &s->candidate, &node, 1, bus);
            polish_judge(k);
        }
}

/* Copies c and d trade places and landing devices. */
static void try_trades(struct polishing *k, int c)
{
    struct coldstart_search *s = k->s;
    for (int d = c + 1; d <= c + POLISH_COPIES && d < s->current.n_copies && !k->over; d++) {
        polish_begin(k);
        struct coldstart_copy *a = &s->candidate.copies[c], *b = &s->candidate.copies[d], t = *a;
        if (a->read || b->read)
            continue;
        *a = *b;
        *b = t;
        int8_t device = a->device;
        a->device = b->device;
        b->device = device;
        polish_judge(k);
    }
}

void search_polish(struct coldstart_search *s, double until)
{
    struct polishing k = {.s = s, .until = until, .improved = true};
    coldstart_plan_copy(s->p, &s->current, &s->best);
    s->current_s = s->best_s;
    k.over = search_budget_look(s->budget) >= until;
    while (k.improved && !k.over) {
        k.improved = false;
        for (int i = 0; i < s->p->n_ops && !k.over; i++) {
            int v = s->p->topological[i];
            try_devices(&k, v);
            try_modes(&k, v);
            try_places(&k, v);
        }
        for (int c = 0; c < s->current.n_copies && !k.over; c++) {
            try_landings(&k, c);
            try_turns(&k, c);
            try_trades(&k, c);
        }
    }
}
