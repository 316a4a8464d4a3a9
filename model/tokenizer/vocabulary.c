#include "model/tokenizer/vocabulary.h"

#include <string.h>
#include <xxhash.h>

int vocabulary_init(struct vocabulary *v, struct arena *arena, uint32_t n, struct err *e)
{
    if (n > VOCABULARY_MAX_IDS)
        return err_set(e, HP_ELIMIT, "the tokenizer has %u ids; at most %d are read", n,
                       VOCABULARY_MAX_IDS);
    size_t slots = 64;
    while (slots < (size_t)n * 2)
        slots *= 2;
    *v = (struct vocabulary){.tokens = arena_alloc(arena, n ? n : 1, sizeof *v->tokens),
                             .n = n,
                             .slots = arena_alloc(arena, slots, sizeof *v->slots),
                             .n_slots = slots};
    return v->tokens && v->slots
               ? 0
               : err_set(e, HP_ENOMEM, "out of memory for a vocabulary of %u tokens", n);
}

int vocabulary_set(struct vocabulary *v, struct arena *arena, uint32_t id, const char *text,
                   size_t size, struct err *e)
{
    char *copy = size < UINT32_MAX ? arena_strndup(arena, text, size) : NULL;
    if (!copy)
        return err_set(e, HP_ENOMEM, "out of memory for the text of token %u", id);
    struct vocabulary_token *t = &v->tokens[id];
    t->text = t->out = copy;
    t->size = t->out_size = (uint32_t)size;
    return 0;
}

/* The slot that holds `text`, or the free one where it belongs. Half of the slots stay free, so the
 * search ends. */
static size_t slot_of(const struct vocabulary *v, const char *text, size_t size)
{
    size_t i = XXH3_64bits(text, size) & (v->n_slots - 1);
    while (v->slots[i]) {
        const struct vocabulary_token *t = &v->tokens[v->slots[i] - 1];
        if (t->size == size && memcmp(t->text, text, size) == 0)
            break;
        i = (i + 1) & (v->n_slots - 1);
    }
    return i;
}

void vocabulary_index(struct vocabulary *v, uint32_t id)
{
    const struct vocabulary_token *t = &v->tokens[id];
    size_t i = slot_of(v, t->text, t->size);
    if (!v->slots[i])
        v->slots[i] = id + 1;
}

int64_t vocabulary_find(const struct vocabulary *v, const char *text, size_t size)
{
    return (int64_t)v->slots[slot_of(v, text, size)] - 1;
}
