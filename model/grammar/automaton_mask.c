/* Owns masks: which tokens may come next in a configuration. */
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "model/grammar/automaton_int.h"

enum { MAX_EXITS = 1 << 14, LEAST_SLOTS = 8, LARGE_NODES = 24, MOST_DEPTH = 4 };

static void token_set(const struct token_tree *t, uint64_t *words, uint32_t token)
{
    for (; token != TOKEN_NONE; token = t->same[token])
        words[token / 64] |= UINT64_C(1) << token % 64;
}

/* Which texts may come next whatever they are: of at most i characters, those of kinds[i]. `known`:
 * with the kinds of which no character may come, so that of a text of these no more needs to be
 * looked at. The last ones are none, as text_summary has it of texts that are in no set. Where
 * `near.kinds` is not 0 this does not hold of texts whose first byte is apart (struct near_run). */
struct text_run {
    uint16_t kinds[TEXT_SUMMARY_NEVER + 1], known[TEXT_SUMMARY_NEVER + 1];
    struct near_run near;
};

/* `inner`: what goes on below a local configuration's stack is of interest, so that a run ends
 * where the text may be whole. */
static void run_find_strict(struct configurations *c, uint32_t from, bool inner,
                            struct text_run *out)
{
    uint16_t kinds = CHAR_KINDS_ALL, dead = CHAR_KINDS_ALL, known = 0;
    uint32_t at = from;
    for (int n = 1; n <= TOKEN_SETS_CHARS; n++) {
        if (kinds) {
            configuration_run(c, at);
            if (c->status < 0)
                return;
            const struct configuration *k = &c->list[at];
            uint16_t before = kinds;
            kinds &= k->run_kinds;
            dead &= k->dead_kinds; /* wherever they come */
            /* Behind the last of a run whatever is longer ends there. */
            known = (kinds ? kinds : before & k->dead_kinds) | dead;
            at = k->run;
        }
        if (kinds && c->list[at].whole && inner)
            return;
        out->kinds[n] = kinds;
        out->known[n] = known;
    }
}

static void run_find(struct configurations *c, uint32_t from, bool inner, struct text_run *out)
{
    struct near_run near;
    *out = (struct text_run){0};
    run_find_strict(c, from, inner, out);
    if (c->status < 0 || out->kinds[1] == CHAR_KINDS_ALL)
        return;
    configuration_run_near(c, from, &near);
    if (c->status < 0 || !(near.kinds & ~out->kinds[1]) || out->kinds[1] & ~near.kinds ||
        (c->list[near.to].whole && inner))
        return;
    out->near = near;
    for (int n = 1; n <= TOKEN_SETS_CHARS; n++) {
        out->kinds[n] = near.kinds;
        out->known[n] = near.kinds | (c->list[from].dead_kinds & c->list[near.to].dead_kinds);
    }
}

/* All tokens of a run. */
static void run_set(const struct token_tree *t, const struct text_run *run, uint64_t *words)
{
    for (uint32_t n = 1; n <= TOKEN_SETS_CHARS && run->kinds[n]; n++)
        if (run->kinds[n + 1] != run->kinds[n])
            token_sets_add(t->sets, run->kinds[n], n, words);
}

/* Whether nothing more is to be found among such texts. */
static bool run_knows(const struct text_run *run, uint16_t text)
{
    return !(text_summary_kinds(text) & ~run->known[text_summary_chars(text)]);
}

/* Whether all texts of these kinds may come in `at`: one character after the other, up to where it
 * goes round. */
static bool text_runs(struct configurations *c, uint32_t at, uint16_t text)
{
    for (uint32_t n = text_summary_chars(text); n > 0; n--) {
        configuration_run(c, at);
        if (c->status < 0 || n > TEXT_SUMMARY_LONG ||
            text_summary_kinds(text) & ~c->list[at].run_kinds)
            return false;
        if (c->list[at].run == at)
            return true;
        at = c->list[at].run;
    }
    return text_summary_chars(text) <= TOKEN_SETS_CHARS;
}

/* Clears, sets all tokens of the nodes [from, to). */
static void nodes_clear(const struct token_tree *t, uint32_t from, uint32_t to, uint64_t *words)
{
    for (uint32_t i = t->nodes[from].first; i < t->nodes[to].first; i++)
        words[t->sorted[i] / 64] &= ~(UINT64_C(1) << t->sorted[i] % 64);
}

static void nodes_set(const struct token_tree *t, uint32_t from, uint32_t to, uint64_t *words)
{
    for (uint32_t i = t->nodes[from].first; i < t->nodes[to].first; i++)
        words[t->sorted[i] / 64] |= UINT64_C(1) << t->sorted[i] % 64;
}

/* Whether the texts of a node begin with a byte that is apart. */
static bool node_is_apart(const struct text_run *run, struct token_node node, bool parent)
{
    return run && run->near.kinds &&
           (node.depth > 1 ? parent : node.byte < 0x80 && run->near.apart[node.byte]);
}

/* Whether the mask is right already of all tokens that end at a node or below; `before`: where the
 * text is without its last byte. */
static bool node_is_known(const struct text_run *run, struct token_node node, bool apart,
                          uint32_t before)
{
    if (!run)
        return false;
    uint16_t chars = text_summary_chars(node.text);
    return apart ? before == run->near.to && (node.byte & 0xC0) != 0x80 &&
                       !(text_summary_kinds(node.text) & ~run->kinds[chars])
                 : run_knows(run, node.text);
}

/* Walks the nodes [from, to), which lie below one at which the text is in `start`. Exits are listed
 * in `slot` where it is not NULL. `run`: tokens of which `words` has already; NULL: none. */
static void tree_walk(struct automaton *a, uint32_t start, uint32_t from, uint32_t to,
                      uint64_t *words, struct mask_slot *slot, const struct text_run *run)
{
    const struct token_tree *t = a->tree;
    struct configurations *c = &a->c;
    uint32_t at[TOKEN_TREE_DEEPEST + 2];
    bool apart[TOKEN_TREE_DEEPEST + 2] = {0};
    uint32_t depth = from < to ? t->nodes[from].depth : 0u;
    if (from < to)
        at[depth - 1] = start;
    for (uint32_t i = from; i < to && c->status == 0; c->effort++) {
        struct token_node node = t->nodes[i];
        uint32_t before = at[node.depth - 1];
        apart[node.depth] = node_is_apart(run, node, apart[node.depth - 1]);
        if (node_is_known(run, node, apart[node.depth], before)) {
            i = node.skip;
            continue;
        }
        uint32_t next = c->steps[(size_t)before * c->n_classes + c->class_of[node.byte]];
        if (next == STEP_UNKNOWN)
            next = configuration_step(c, before, node.byte);
        if (next == CONFIGURATION_DEAD) {
            if (apart[node.depth])
                nodes_clear(t, i, node.skip, words);
            i = node.skip;
            continue;
        }
        if (node.token != TOKEN_NONE)
            token_set(t, words, node.token);
        if (slot && c->list[next].whole && node.skip > i + 1) {
            bool listed = slot->n_exits < MAX_EXITS &&
                          vector_push(slot->exits, slot->n_exits, slot->exit_room, i);
            c->list[slot->owner].far_exits = c->list[slot->owner].far_exits || !listed;
        }
        at[node.depth] = next;
        i++;
        if (node.depth <= MOST_DEPTH && node.skip > i + LARGE_NODES &&
            text_runs(c, next, node.below)) { /* whatever is around these rules */
            nodes_set(t, i, node.skip, words);
            i = node.skip;
        }
    }
}

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

/* The whole tree. Most first bytes cannot come, and their nodes, which lie far from each other, are
 * not even looked at: the memory of one takes as long as a hundred that lie side by side. */
static void roots_walk(struct automaton *a, uint32_t start, uint64_t *words, struct mask_slot *slot,
                       const struct text_run *run)
{
    const struct token_tree *t = a->tree;
    struct configurations *c = &a->c;
    for (int k = 0; k < 2; k++)
        for (int byte = 0; byte < 256 && c->status == 0; byte++) {
            uint32_t root = t->roots[k][byte];
            bool apart = run->near.kinds && byte < 0x80 && run->near.apart[byte];
            if (root == TOKEN_NONE ||
                (configuration_step(c, start, (uint8_t)byte) == CONFIGURATION_DEAD && !apart))
                continue;
            tree_walk(a, start, root, t->nodes[root].skip, words, slot, run);
        }
}

/* `inner`: its exits are wanted. */
static uint32_t whole_mask(struct automaton *a, uint32_t of, bool inner)
{
    struct text_run run;
    uint32_t slot = slot_take(a, of, MASK_NONE);
    if (slot == MASK_NONE)
        return slot;
    run_find(&a->c, of, inner, &run);
    run_set(a->tree, &run, a->slots[slot].words);
    if (!inner) /* not all of its exits are met */
        a->c.list[of].far_exits = true;
    roots_walk(a, of, a->slots[slot].words, inner ? &a->slots[slot] : NULL, &run);
    return slot;
}

/* What the local one allows, and what goes on below its stack. */
static uint32_t joined_mask(struct automaton *a, uint32_t of, uint32_t local, uint32_t shared)
{
    uint32_t inner = a->c.list[local].mask;
    if (inner == MASK_NONE)
        inner = whole_mask(a, local, true);
    if (inner == MASK_NONE || a->c.status < 0)
        return MASK_NONE;
    if (a->c.list[local].far_exits)
        return whole_mask(a, of, false);
    uint32_t below = configuration_below(&a->c, shared), slot = slot_take(a, of, inner);
    if (slot == MASK_NONE)
        return MASK_NONE;
    const struct mask_slot *from = &a->slots[inner];
    memcpy(a->slots[slot].words, from->words, a->n_words * sizeof(uint64_t));
    for (uint32_t i = 0; below != CONFIGURATION_DEAD && i < from->n_exits; i++)
        tree_walk(a, below, from->exits[i] + 1, a->tree->nodes[from->exits[i]].skip,
                  a->slots[slot].words, NULL, NULL);
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
