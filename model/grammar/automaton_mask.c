/* Owns masks: which tokens may come next in a configuration. */
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "model/grammar/automaton_int.h"

enum { MAX_EXITS = 1 << 14, LEAST_SLOTS = 8 };

static void token_set(const struct token_tree *t, uint64_t *words, uint32_t token)
{
    for (; token != TOKEN_NONE; token = t->same[token])
        words[token / 64] |= UINT64_C(1) << token % 64;
}

/* Sets all tokens of the nodes [from, to). */
static void nodes_set(const struct token_tree *t, uint32_t from, uint32_t to, uint64_t *words)
{
    for (uint32_t i = from; i < to; i++)
        if (t->nodes[i].token != TOKEN_NONE)
            token_set(t, words, t->nodes[i].token);
}

/* Walks the nodes [from, to), which lie below one at which the text is in `start`. Exits are listed
 * in `slot` where it is not NULL. The first `run` characters may be any plain ones: where nothing
 * else and no more lies below a node, all of that is allowed; those of at most `set` bytes are in
 * `words` already. */
static void tree_walk(struct automaton *a, uint32_t start, uint32_t from, uint32_t to,
                      uint64_t *words, struct mask_slot *slot, uint32_t run, uint32_t set)
{
    const struct token_tree *t = a->tree;
    struct configurations *c = &a->c;
    uint32_t at[TOKEN_TREE_DEEPEST + 2];
    uint32_t depth = from < to ? t->nodes[from].depth : 0u;
    if (from < to)
        at[depth - 1] = start;
    for (uint32_t i = from; i < to && c->status == 0; c->effort++) {
        struct token_node node = t->nodes[i];
        if (node.plain_path && node.plain != 255 && node.depth + node.plain <= run) {
            if (node.depth + node.plain > set)
                nodes_set(t, i, node.skip, words);
            i = node.skip;
            continue;
        }
        uint32_t before = at[node.depth - 1];
        uint32_t next = c->steps[(size_t)before * c->n_classes + c->class_of[node.byte]];
        if (next == STEP_UNKNOWN)
            next = configuration_step(c, before, node.byte);
        if (next == CONFIGURATION_DEAD) {
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

static uint32_t whole_mask(struct automaton *a, uint32_t of)
{
    uint32_t slot = slot_take(a, of, MASK_NONE), set = 0,
             run = configuration_run(&a->c, of, token_tree_set_bytes(TOKEN_TREE_SETS - 1));
    if (slot == MASK_NONE)
        return slot;
    for (int i = TOKEN_TREE_SETS; i-- > 0 && !set;)
        if (token_tree_set_bytes(i) <= run) {
            set = token_tree_set_bytes(i);
            memcpy(a->slots[slot].words, a->tree->plain_sets[i], a->n_words * sizeof(uint64_t));
        }
    tree_walk(a, of, 0, a->tree->n_nodes, a->slots[slot].words, &a->slots[slot], run, set);
    return slot;
}

/* What the local one allows, and what goes on below its stack. */
static uint32_t joined_mask(struct automaton *a, uint32_t of, uint32_t local, uint32_t shared)
{
    uint32_t inner = a->c.list[local].mask;
    if (inner == MASK_NONE)
        inner = whole_mask(a, local);
    if (inner == MASK_NONE || a->c.status < 0)
        return MASK_NONE;
    if (a->c.list[local].far_exits)
        return whole_mask(a, of);
    uint32_t below = configuration_below(&a->c, shared), slot = slot_take(a, of, inner);
    if (slot == MASK_NONE)
        return MASK_NONE;
    const struct mask_slot *from = &a->slots[inner];
    memcpy(a->slots[slot].words, from->words, a->n_words * sizeof(uint64_t));
    for (uint32_t i = 0; below != CONFIGURATION_DEAD && i < from->n_exits; i++)
        tree_walk(a, below, from->exits[i] + 1, a->tree->nodes[from->exits[i]].skip,
                  a->slots[slot].words, NULL, 0, 0);
    return slot;
}

const uint64_t *automaton_mask(struct automaton *a, uint32_t of)
{
    uint32_t slot = a->c.list[of].mask,
             local = slot == MASK_NONE ? configuration_local(&a->c, of) : of;
    if (slot == MASK_NONE && a->c.status == 0)
        slot = local == of || a->c.list[local].far_exits
                   ? whole_mask(a, of)
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
