#include "model/tokenizer/token_trie.h"

#include <stdlib.h>
#include <string.h>

enum { CHILD_BITS = 24, FIRST_SLOTS = 1024 };

static size_t slot_of(const struct token_trie *t, uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15ULL;
    size_t i = (size_t)(h >> 32) & (t->n_slots - 1);
    while (t->slots[i] && t->slots[i] >> CHILD_BITS != key)
        i = (i + 1) & (t->n_slots - 1);
    return i;
}

uint32_t token_trie_next(const struct token_trie *t, uint32_t node, uint8_t byte)
{
    if (!t->n_slots)
        return 0;
    return (uint32_t)(t->slots[slot_of(t, (uint64_t)node << 8 | byte)] & ((1U << CHILD_BITS) - 1));
}

uint32_t token_trie_find(const struct token_trie *t, const char *text, size_t size)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size && (i == 0 || node); i++)
        node = token_trie_next(t, node, (uint8_t)text[i]);
    return node;
}

/* Half of the slots stay free. */
static bool slots_grow(struct token_trie *t)
{
    struct token_trie larger = {.n_slots = t->n_slots ? t->n_slots * 2 : FIRST_SLOTS};
    larger.slots = calloc(larger.n_slots, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < t->n_slots; i++)
        if (t->slots[i])
            larger.slots[slot_of(&larger, t->slots[i] >> CHILD_BITS)] = t->slots[i];
    free(t->slots);
    t->slots = larger.slots;
    t->n_slots = larger.n_slots;
    return true;
}

static bool nodes_grow(struct token_trie *t)
{
    uint32_t room = t->room ? t->room * 2 : FIRST_SLOTS / 2;
    int32_t *tokens = realloc(t->tokens, room * sizeof *tokens);
    if (!tokens)
        return false;
    t->tokens = tokens;
    t->room = room;
    if (t->n_nodes == 0)
        tokens[t->n_nodes++] = -1;
    return true;
}

int token_trie_add(struct token_trie *t, const char *text, size_t size, uint32_t token,
                   struct err *e)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        uint64_t key = (uint64_t)node << 8 | (uint8_t)text[i];
        uint32_t next = token_trie_next(t, node, (uint8_t)text[i]);
        if (!next) {
            if (t->n_nodes >= TOKEN_TRIE_NODES)
                return err_set(e, HP_ELIMIT, "the vocabulary has more than %d beginnings of tokens",
                               TOKEN_TRIE_NODES);
            if ((t->n_nodes == t->room && !nodes_grow(t)) ||
                ((size_t)t->n_nodes * 2 >= t->n_slots && !slots_grow(t)))
                return err_set(e, HP_ENOMEM, "out of memory for the tokens' beginnings");
            next = t->n_nodes++;
            t->tokens[next] = -1;
            t->slots[slot_of(t, key)] = key << CHILD_BITS | next;
        }
        node = next;
    }
    if (node && t->tokens[node] < 0)
        t->tokens[node] = (int32_t)token;
    return 0;
}

void token_trie_free(struct token_trie *t)
{
    free(t->slots);
    free(t->tokens);
    *t = (struct token_trie){0};
}
