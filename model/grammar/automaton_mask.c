/* Owns masks: which tokens may come next in a configuration. */
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "model/grammar/automaton_int.h"

enum {
    MAX_EXITS = 1 << 14,
    LEAST_SLOTS = 8,
    LARGE_TOKENS = 24, /* below a node: it pays to ask whether all of them may come */
    MOST_GROUPS = 4,
    FETCHED = 6, /* nodes that are fetched ahead */
};

/* ---- runs ---- */

/* Which texts may come next whatever they are: of at most i characters, those of kinds[i]. `known`:
 * with the kinds of which no character may come, so that of a text of these no more needs to be
 * looked at. The last ones are none, as text_summary has it of texts that are in no set. */
struct text_run {
    uint64_t kinds[TEXT_SUMMARY_NEVER + 1], known[TEXT_SUMMARY_NEVER + 1];
};

/* `inner`: what goes on below a local configuration's stack is of interest, so that a run ends
 * where the text may be whole. False: it met that. */
static bool run_find(struct configurations *c, uint32_t from, bool inner, struct text_run *out)
{
    uint64_t kinds = CHAR_KINDS_ALL, dead = CHAR_KINDS_ALL;
    uint32_t at = from;
    *out = (struct text_run){0};
    for (int n = 1; n <= TOKEN_SETS_CHARS && kinds; n++) {
        configuration_run(c, at);
        const struct configuration *k = &c->list[at];
        if (c->status < 0 || (inner && k->whole))
            return false;
        uint64_t on = kinds & k->run_kinds;
        dead &= k->dead_kinds; /* wherever they come */
        /* Behind the last of a run whatever is longer ends there. */
        uint64_t known = (on ? on : kinds & k->dead_kinds) | dead;
        kinds = on;
        int last = !kinds || k->run == at ? TOKEN_SETS_CHARS : n;
        for (int i = n; i <= last; i++) {
            out->kinds[i] = kinds;
            out->known[i] = known;
        }
        if (last > n)
            return true;
        at = k->run;
    }
    return true;
}

/* Whether nothing more is to be found among such texts. */
static bool run_knows(const struct text_run *run, uint64_t text)
{
    return !(text_summary_kinds(text) & ~run->known[text_summary_chars(text)]);
}

/* Whether all texts of these kinds may come in `at`: one character after the other, up to where it
 * goes round; which is where long ones have to be soon. */
static bool text_runs(struct configurations *c, uint32_t at, uint64_t text)
{
    uint32_t chars = text_summary_chars(text), most = chars < TEXT_SUMMARY_LONG ? chars : 2;
    if (chars > TEXT_SUMMARY_LONG)
        return false;
    for (uint32_t n = 0; n < most; n++) {
        configuration_run(c, at);
        if (c->status < 0 || text_summary_kinds(text) & ~c->list[at].run_kinds)
            return false;
        if (c->list[at].run == at)
            return true;
        at = c->list[at].run;
    }
    return chars < TEXT_SUMMARY_LONG;
}

/* Kinds of first characters that lead to one place, and what may come behind them. */
struct first_group {
    uint64_t kinds;
    uint32_t to;
    struct text_run run;
};

struct first_groups {
    struct first_group list[MOST_GROUPS];
    int n, of_kind[CHAR_KINDS]; /* its group; -1: it is in none */
    bool joined;                /* what comes of them comes of others already */
};

/* Of all tokens, and of those that begin with a space, by what is behind it. */
enum { BEGUN, SPACED, BEGINNINGS };

static void group_add(struct first_groups *g, const struct first_group *made)
{
    for (int kind = 0; kind < CHAR_KINDS; kind++)
        if (made->kinds >> kind & 1)
            g->of_kind[kind] = g->n;
    g->list[g->n++] = *made;
}

static void groups_clear(struct first_groups *g)
{
    g->n = 0;
    g->joined = false;
    memset(g->of_kind, 0xFF, sizeof g->of_kind);
}

/* Those of many tokens. False: so many of them would go on below a local one's stack that it does
 * not pay to list them; but those that all do so behind one character do. */
static bool groups_find(struct automaton *a, const struct token_sets *sets, uint32_t of, bool inner,
                        struct first_groups *out)
{
    uint32_t to[CHAR_KINDS];
    groups_clear(out);
    configuration_kinds(&a->c, of, to);
    for (uint64_t left = CHAR_KINDS_ALL; left && out->n < MOST_GROUPS && a->c.status == 0;) {
        struct first_group g = {.to = to[__builtin_ctzll(left)]};
        for (int kind = 0; kind < CHAR_KINDS; kind++)
            g.kinds |= (uint64_t)(to[kind] == g.to) << kind;
        left &= ~g.kinds;
        if (g.to == CONFIGURATION_DEAD || token_sets_count(sets, g.kinds) < TOKEN_SETS_MANY)
            continue;
        bool runs = run_find(&a->c, g.to, inner, &g.run), alone = !(g.kinds & (g.kinds - 1));
        if (!runs && !(alone && a->c.list[g.to].whole && !a->c.list[g.to].run_kinds))
            return false;
        if (g.run.known[1])
            group_add(out, &g);
    }
    return true;
}

/* The group of a first byte; -1: it is in none. */
static int group_of(const struct first_groups *g, uint8_t byte)
{
    int kind = char_kind_begun(byte);
    return kind < 0 ? -1 : g->of_kind[kind];
}

/* Behind a space that begins a run: the run goes on. */
static void run_go_on(const struct automaton *a, const struct first_group *space,
                      struct first_groups *out)
{
    struct first_group g = {.kinds = space->run.kinds[1], .to = a->c.list[space->to].run};
    for (int i = 0; i < TOKEN_SETS_CHARS; i++) {
        g.run.kinds[i] = space->run.kinds[i + 1];
        g.run.known[i] = space->run.known[i + 1];
    }
    group_add(out, &g);
    out->joined = true;
}

/* What begins with a space is divided once more where not all is known of it: it goes on with the
 * run, or much may come behind it that is in no row with it (names of which some are words of their
 * own, with white space before them). */
static void spaced_find(struct automaton *a, uint32_t of, bool inner,
                        struct first_groups groups[BEGINNINGS])
{
    const struct token_tree *t = a->tree;
    int number = group_of(&groups[BEGUN], ' ');
    const struct first_group *space = number < 0 ? NULL : &groups[BEGUN].list[number];
    uint32_t behind = t->spaced ? configuration_step(&a->c, of, ' ') : CONFIGURATION_DEAD;
    groups_clear(&groups[SPACED]);
    if (behind == CONFIGURATION_DEAD || (space && run_knows(&space->run, t->nodes[t->space].rest)))
        return;
    if (space && token_sets_count(t->spaced, space->run.kinds[1]) >= TOKEN_SETS_MANY)
        run_go_on(a, space, &groups[SPACED]);
    else if (!groups_find(a, t->spaced, behind, inner, &groups[SPACED]))
        groups_clear(&groups[SPACED]);
}

/* ---- walks ---- */

/* Clears, sets all tokens [from, to) of those that are sorted. */
static void tokens_clear(const struct token_tree *t, uint32_t from, uint32_t to, uint64_t *words)
{
    for (uint32_t i = from; i < to; i++)
        words[t->sorted[i] / 64] &= ~(UINT64_C(1) << t->sorted[i] % 64);
}

static void tokens_set(const struct token_tree *t, uint32_t from, uint32_t to, uint64_t *words)
{
    for (uint32_t i = from; i < to; i++)
        words[t->sorted[i] / 64] |= UINT64_C(1) << t->sorted[i] % 64;
}

struct tree_walk {
    struct automaton *a;
    uint64_t *words;
    struct mask_slot *slot;            /* where exits are listed; NULL: they are not */
    const struct first_groups *groups; /* [BEGINNINGS]: of tokens of which `words` has some; NULL:
                                          none */
};

/* A group as nodes ahead have it. */
static uint16_t run_number(int beginning, int group)
{
    return (uint16_t)(group < 0 ? 0 : 1 + beginning * MOST_GROUPS + group);
}

static const struct text_run *run_of(const struct tree_walk *w, uint16_t number)
{
    return number ? &w->groups[(number - 1) / MOST_GROUPS].list[(number - 1) % MOST_GROUPS].run
                  : NULL;
}

static void exit_list(struct automaton *a, struct mask_slot *s, uint32_t node)
{
    if (s->n_exits >= MAX_EXITS || !vector_push(s->exits, s->n_exits, s->exit_room, node))
        a->c.list[s->owner].far_exits = true;
}

static void ahead_push(struct automaton *a, const struct token_node *node, uint32_t at,
                       uint16_t run)
{
    struct nodes_ahead n = {node->children, at, node->n_children, run};
    if (!vector_push(a->ahead[1], a->n_ahead[1], a->ahead_room[1], n))
        a->c.status = HP_ENOMEM;
}

/* What ends at a node behind whose byte the text is in `at`. False: nothing is below. */
static bool node_take(const struct tree_walk *w, const struct token_node *node, uint32_t at)
{
    const struct token_tree *t = w->a->tree;
    tokens_set(t, node->first, token_node_own_end(t, node), w->words);
    if (node->n_children && w->slot && w->a->c.list[at].whole)
        exit_list(w->a, w->slot, (uint32_t)(node - t->nodes));
    return node->n_children;
}

static void node_enter(const struct tree_walk *w, const struct token_node *node, uint32_t at,
                       uint16_t run)
{
    const struct token_tree *t = w->a->tree;
    struct configurations *c = &w->a->c;
    uint32_t own_end = token_node_own_end(t, node);
    if (!node_take(w, node, at))
        return;
    bool asks = node->behind - own_end > LARGE_TOKENS || c->list[at].run == at;
    if (asks && text_runs(c, at, node->below)) /* whatever is around these rules */
        tokens_set(t, own_end, node->behind, w->words);
    else
        ahead_push(w->a, node, at, run);
}

static void siblings_look(const struct tree_walk *w, const struct nodes_ahead *s)
{
    struct configurations *c = &w->a->c;
    const struct token_node *node = w->a->tree->nodes + s->first, *end = node + s->n;
    const struct text_run *run = run_of(w, s->run);
    c->effort += s->n;
    for (; node < end; node++) {
        if (run && run_knows(run, node->rest))
            continue;
        uint32_t next = c->steps[(size_t)s->at * c->n_classes + c->class_of[node->byte]];
        if (next == STEP_UNKNOWN)
            next = configuration_step(c, s->at, node->byte);
        if (next != CONFIGURATION_DEAD)
            node_enter(w, node, next, s->run);
    }
}

/* All that is ahead, depth by depth: what is looked at soon is fetched meanwhile. */
static void ahead_walk(const struct tree_walk *w)
{
    struct automaton *a = w->a;
    while (a->n_ahead[1] && a->c.status == 0) {
        struct nodes_ahead *now = a->ahead[1];
        uint32_t n = a->n_ahead[1], room = a->ahead_room[1];
        a->ahead[1] = a->ahead[0];
        a->ahead_room[1] = a->ahead_room[0];
        a->n_ahead[1] = 0;
        a->ahead[0] = now;
        a->ahead_room[0] = room;
        for (uint32_t i = 0; i < n && a->c.status == 0; i++) {
            if (i + FETCHED < n) {
                const struct token_node *soon = a->tree->nodes + now[i + FETCHED].first;
                __builtin_prefetch(soon);
                __builtin_prefetch(soon + 2);
            }
            siblings_look(w, &now[i]);
        }
    }
    a->n_ahead[1] = 0;
}

/* Tokens of some first bytes; of a space those that are divided once more are left out: *space,
 * where they are. */
static void firsts_enter(const struct tree_walk *w, int beginning, struct token_nodes nodes,
                         uint32_t start, const struct token_node **space)
{
    const struct token_tree *t = w->a->tree;
    const struct first_groups *groups = &w->groups[beginning];
    for (uint32_t i = nodes.first; i < nodes.first + nodes.n && w->a->c.status == 0; i++) {
        const struct token_node *node = &t->nodes[i];
        int group = group_of(groups, node->byte);
        bool known = group >= 0 && run_knows(&groups->list[group].run, node->rest),
             alike = groups->joined || node->byte >= 0x80; /* all of its kind are */
        if (known && alike)
            continue;
        uint32_t next = configuration_step(&w->a->c, start, node->byte);
        if (group >= 0 && !alike && next != groups->list[group].to) {
            tokens_clear(t, node->first, node->behind, w->words);
            known = false;
            group = -1; /* unlike others of its kind */
        }
        if (next == CONFIGURATION_DEAD || known)
            continue;
        if (node->byte == ' ' && space && w->groups[SPACED].n)
            *space = node;
        else /* what is behind a first space has another rest */
            node_enter(w, node, next,
                       node->byte == ' ' && space ? 0 : run_number(beginning, group));
    }
}

static void roots_enter(const struct tree_walk *w, struct token_nodes roots, uint32_t start)
{
    const struct token_node *space = NULL;
    firsts_enter(w, BEGUN, roots, start, &space);
    uint32_t behind = space ? configuration_step(&w->a->c, start, ' ') : CONFIGURATION_DEAD;
    if (behind != CONFIGURATION_DEAD && node_take(w, space, behind))
        firsts_enter(w, SPACED, (struct token_nodes){space->children, space->n_children}, behind,
                     NULL);
}

/* ---- masks ---- */

static void slot_free(struct automaton *a, struct mask_slot *s)
{
    if (s->owner != CONFIGURATION_DEAD)
        a->c.list[s->owner].mask = MASK_NONE;
    s->owner = CONFIGURATION_DEAD;
    s->n_exits = 0;
}

/* A slot for a configuration, its mask empty; not `pinned`. MASK_NONE: no memory. */
static uint32_t slot_take(struct automaton *a, uint32_t owner, uint32_t pinned)
{
    size_t bytes = a->n_words * sizeof(uint64_t), most = AUTOMATON_MASK_BYTES / (bytes + 1);
    uint32_t at = a->n_slots;
    if (at < (most > LEAST_SLOTS ? most : LEAST_SLOTS)) {
        struct mask_slot made = {.words = malloc(bytes)};
        if (!made.words || !vector_push(a->slots, a->n_slots, a->slot_room, made)) {
            free(made.words);
            a->c.status = HP_ENOMEM;
            return MASK_NONE;
        }
    } else {
        at = a->next_slot++ % a->n_slots;
        if (at == pinned)
            at = a->next_slot++ % a->n_slots;
        slot_free(a, &a->slots[at]);
    }
    a->slots[at].owner = owner;
    a->slots[at].n_exits = 0;
    memset(a->slots[at].words, 0, bytes);
    a->c.list[owner].mask = at;
    return at;
}

/* The tokens that are found as a whole. */
static void groups_join(struct automaton *a, const struct token_sets *sets,
                        const struct first_groups *g, uint64_t *words)
{
    for (int i = 0; i < g->n && !g->joined; i++)
        token_sets_add(sets, g->list[i].kinds, g->list[i].run.kinds, words);
    a->c.effort += (uint64_t)g->n * a->n_words;
}

/* `inner`: its exits are wanted. MASK_NONE: no memory, or they are too many to list. */
static uint32_t whole_mask(struct automaton *a, uint32_t of, bool inner)
{
    struct first_groups groups[BEGINNINGS];
    uint32_t slot = slot_take(a, of, MASK_NONE);
    if (slot == MASK_NONE)
        return slot;
    a->c.list[of].far_exits = !inner; /* not all of its exits are met then */
    if (!groups_find(a, a->tree->sets, of, inner, &groups[BEGUN])) {
        a->c.list[of].far_exits = true;
        slot_free(a, &a->slots[slot]);
        return MASK_NONE;
    }
    spaced_find(a, of, inner, groups);
    struct tree_walk w = {a, a->slots[slot].words, inner ? &a->slots[slot] : NULL, groups};
    groups_join(a, a->tree->sets, &groups[BEGUN], w.words);
    groups_join(a, a->tree->spaced, &groups[SPACED], w.words);
    for (int k = 0; k < 2; k++)
        roots_enter(&w, a->tree->roots[k], of);
    ahead_walk(&w);
    return slot;
}

/* What the local one allows, and what goes on below its stack. */
static uint32_t joined_mask(struct automaton *a, uint32_t of, uint32_t local, uint32_t shared)
{
    uint32_t inner = a->c.list[local].mask;
    if (inner == MASK_NONE)
        inner = whole_mask(a, local, true);
    if (a->c.status < 0)
        return MASK_NONE;
    if (a->c.list[local].far_exits)
        return whole_mask(a, of, false);
    uint32_t below = configuration_below(&a->c, shared), slot = slot_take(a, of, inner);
    if (slot == MASK_NONE)
        return MASK_NONE;
    const struct mask_slot *from = &a->slots[inner];
    struct tree_walk w = {a, a->slots[slot].words, NULL, NULL};
    memcpy(w.words, from->words, a->n_words * sizeof(uint64_t));
    for (uint32_t i = 0; below != CONFIGURATION_DEAD && i < from->n_exits; i++)
        ahead_push(a, &a->tree->nodes[from->exits[i]], below, 0);
    ahead_walk(&w);
    return slot;
}

const uint64_t *automaton_mask(struct automaton *a, uint32_t of)
{
    uint32_t slot = a->c.list[of].mask,
             local = slot == MASK_NONE ? configuration_local(&a->c, of) : of;
    if (slot == MASK_NONE && a->c.status == 0)
        slot = local == of || a->c.list[local].far_exits
                   ? whole_mask(a, of, false)
                   : joined_mask(a, of, local, a->c.list[of].shared);
    if (a->c.status == 0 && slot != MASK_NONE)
        return a->slots[slot].words;
    if (a->c.list[of].mask != MASK_NONE) /* half of it is there */
        slot_free(a, &a->slots[a->c.list[of].mask]);
    if (local != CONFIGURATION_DEAD && a->c.list[local].mask != MASK_NONE)
        slot_free(a, &a->slots[a->c.list[local].mask]);
    return NULL;
}

void automaton_masks_forget(struct automaton *a)
{
    for (uint32_t i = 0; i < a->n_slots; i++) {
        a->slots[i].owner = CONFIGURATION_DEAD;
        a->slots[i].n_exits = 0;
    }
}
