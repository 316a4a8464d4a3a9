#include "model/tokenizer/bpe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

struct bpe_merge {
    uint32_t left, right, rank, merged;
    bool used;
};

/* A stretch of the word in a doubly linked list; `next` and `prev` are indices, -1 at the ends. */
struct symbol {
    uint32_t id;
    int32_t prev, next;
    bool dead;
};

struct merge_candidate {
    uint32_t rank, at, merged;
};

enum { WORD_MAX_CHARS = 1 << 30, SCORED_TOKEN_MAX_BYTES = 512 };

static size_t pair_slot(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ULL;
    size_t i = (size_t)(h ^ h >> 29) & (b->n_slots - 1);
    while (b->merges[i].used && (b->merges[i].left != left || b->merges[i].right != right))
        i = (i + 1) & (b->n_slots - 1);
    return i;
}

int bpe_init(struct bpe *b, struct arena *arena, const struct vocabulary *v, size_t n_merges,
             struct err *e)
{
    size_t slots = 64;
    while (slots < n_merges * 2)
        slots *= 2;
    *b = (struct bpe){.vocabulary = v,
                      .merges = arena_alloc(arena, slots, sizeof *b->merges),
                      .n_slots = slots,
                      .unknown = -1};
    for (int i = 0; i < 256; i++)
        b->byte_ids[i] = -1;
    return b->merges ? 0 : err_set(e, HP_ENOMEM, "out of memory for %zu merges", n_merges);
}

void bpe_add_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged)
{
    size_t i = pair_slot(b, left, right);
    if (!b->merges[i].used)
        b->n_merges++;
    b->merges[i] = (struct bpe_merge){left, right, rank, merged, true};
}

struct scored {
    float score;
    uint32_t id;
};

static int better_score_first(const void *pa, const void *pb)
{
    const struct scored *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

struct cut {
    uint32_t left, right;
};

static int lower_left_first(const void *pa, const void *pb)
{
    const struct cut *a = pa, *b = pb;
    return a->left < b->left ? -1 : a->left > b->left;
}

/* Every cut of token `id` between two characters that leaves two tokens, by the id of the left one.
 */
static size_t cuts_of(const struct vocabulary *v, const bool *takes_part, uint32_t id,
                      struct cut cuts[SCORED_TOKEN_MAX_BYTES])
{
    const struct vocabulary_token *t = &v->tokens[id];
    size_t n = 0;
    for (uint32_t at = 1; at < t->size; at++) {
        if (((uint8_t)t->text[at] & 0xC0) == 0x80)
            continue;
        int64_t left = vocabulary_find(v, t->text, at),
                right = vocabulary_find(v, t->text + at, t->size - at);
        if (left >= 0 && right >= 0 && (!takes_part || (takes_part[left] && takes_part[right])))
            cuts[n++] = (struct cut){(uint32_t)left, (uint32_t)right};
    }
    qsort(cuts, n, sizeof *cuts, lower_left_first);
    return n;
}

int bpe_init_scores(struct bpe *b, struct arena *arena, const struct vocabulary *v,
                    const float *scores, enum bpe_ties ties, const bool *takes_part, struct err *e)
{
    struct scored *order = malloc((v->n ? v->n : 1) * sizeof *order);
    if (!order)
        return err_set(e, HP_ENOMEM, "out of memory for %u scores", v->n);
    struct cut cuts[SCORED_TOKEN_MAX_BYTES];
    size_t n = 0, n_cuts = 0;
    for (uint32_t id = 0; id < v->n; id++) {
        const struct vocabulary_token *t = &v->tokens[id];
        if (!t->text || t->size > SCORED_TOKEN_MAX_BYTES || isnan(scores[id]) ||
            (takes_part && !takes_part[id]))
            continue;
        if (vocabulary_find(v, t->text, t->size) != (int64_t)id)
            continue;
        order[n++] = (struct scored){scores[id], id};
        n_cuts += cuts_of(v, takes_part, id, cuts);
    }
    qsort(order, n, sizeof *order, better_score_first);
    int rc = bpe_init(b, arena, v, n_cuts, e);
    uint32_t rank = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t found = cuts_of(v, takes_part, order[i].id, cuts);
        if (ties == BPE_TIES_LEFTMOST && i > 0 && order[i].score != order[i - 1].score)
            rank++;
        for (size_t k = 0; k < found; k++)
            bpe_add_merge(b, cuts[k].left, cuts[k].right, ties == BPE_TIES_LEFTMOST ? rank : rank++,
                          order[i].id);
    }
    free(order);
    return rc;
}

static int lower_rank_first(const void *pa, const void *pb)
{
    const struct bpe_pair *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    return a->right < b->right ? -1 : a->right > b->right;
}

int bpe_merges_list(const struct bpe *b, struct arena *arena, struct bpe_pair **out, size_t *n,
                    struct err *e)
{
    *n = 0;
    *out = arena_alloc(arena, b->n_merges + 1, sizeof **out);
    if (!*out)
        return err_set(e, HP_ENOMEM, "out of memory for %zu merges", b->n_merges);
    for (size_t i = 0; i < b->n_slots; i++) {
        const struct bpe_merge *m = &b->merges[i];
        if (m->used)
            (*out)[(*n)++] = (struct bpe_pair){m->left, m->right, m->merged, m->rank};
    }
    qsort(*out, *n, sizeof **out, lower_rank_first);
    return 0;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    buffer_free(&s->symbols);
    buffer_free(&s->heap);
}

static bool merge_before(const struct merge_candidate *a, const struct merge_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct buffer *heap, struct merge_candidate c)
{
    if (!buffer_extend(heap, sizeof c))
        return;
    struct merge_candidate *h = (struct merge_candidate *)(void *)heap->data;
    size_t i = heap->size / sizeof c - 1;
    while (i > 0 && merge_before(&c, &h[(i - 1) / 2])) {
        h[i] = h[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h[i] = c;
}

static struct merge_candidate heap_pop(struct buffer *heap)
{
    struct merge_candidate *h = (struct merge_candidate *)(void *)heap->data, top = h[0];
    heap->size -= sizeof top;
    size_t n = heap->size / sizeof top, i = 0;
    struct merge_candidate last = h[n];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && merge_before(&h[child + 1], &h[child]))
            child++;
        if (!merge_before(&h[child], &last))
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = last;
    return top;
}

/* The id of a token that text may become; -1: none. */
static int64_t token_of_text(const struct bpe *b, const struct bpe_scratch *s, const char *text,
                             size_t size)
{
    int64_t id = vocabulary_find(b->vocabulary, text, size);
    return id >= 0 && s->plain && b->vocabulary->tokens[id].special ? -1 : id;
}

static const struct bpe_merge *merge_at(const struct bpe *b, const struct bpe_scratch *s,
                                        const struct symbol *symbols, int32_t at)
{
    if (at < 0 || symbols[at].next < 0)
        return NULL;
    const struct bpe_merge *m =
        &b->merges[pair_slot(b, symbols[at].id, symbols[symbols[at].next].id)];
    return m->used && !(s->plain && b->vocabulary->tokens[m->merged].special) ? m : NULL;
}

static void merge_consider(const struct bpe *b, struct bpe_scratch *s, const struct symbol *symbols,
                           int32_t at)
{
    const struct bpe_merge *m = merge_at(b, s, symbols, at);
    if (m)
        heap_push(&s->heap, (struct merge_candidate){m->rank, (uint32_t)at, m->merged});
}

static void merge_all(const struct bpe *b, struct bpe_scratch *s, struct symbol *symbols, int32_t n)
{
    s->heap.size = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        merge_consider(b, s, symbols, i);
    while (s->heap.size > 0 && !s->heap.failed) {
        struct merge_candidate c = heap_pop(&s->heap);
        struct symbol *left = &symbols[c.at];
        const struct bpe_merge *m = left->dead ? NULL : merge_at(b, s, symbols, (int32_t)c.at);
        /* What stood here when the candidate was made may have been merged since. */
        if (!m || m->merged != c.merged)
            continue;
        struct symbol *right = &symbols[left->next];
        right->dead = true;
        left->id = c.merged;
        left->next = right->next;
        if (left->next >= 0)
            symbols[left->next].prev = (int32_t)c.at;
        merge_consider(b, s, symbols, left->prev);
        merge_consider(b, s, symbols, (int32_t)c.at);
    }
}

static void symbol_push(struct buffer *symbols, uint32_t id)
{
    int32_t i = (int32_t)(symbols->size / sizeof(struct symbol));
    struct symbol s = {.id = id, .prev = i - 1, .next = i + 1};
    buffer_append(symbols, &s, sizeof s);
}

/* A character without a token of its own: its bytes' tokens, else the unknown token, else nothing.
 */
static void push_stranger(const struct bpe *b, struct buffer *symbols, const char *at,
                          size_t length, bool *after_unknown)
{
    bool bytes = true;
    for (size_t i = 0; i < length; i++)
        bytes &= b->byte_ids[(uint8_t)at[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < length; i++)
            symbol_push(symbols, (uint32_t)b->byte_ids[(uint8_t)at[i]]);
    } else if (b->unknown >= 0 && (!b->fuse_unknown || !*after_unknown)) {
        symbol_push(symbols, (uint32_t)b->unknown);
    }
    *after_unknown = !bytes;
}

static int split_characters(const struct bpe *b, struct bpe_scratch *s, const char *word,
                            size_t size, struct err *e)
{
    struct buffer *symbols = &s->symbols;
    symbols->size = 0;
    bool after_unknown = false;
    for (size_t at = 0; at < size;) {
        uint32_t c;
        int length = utf8_decode(word + at, size - at, &c);
        if (length <= 0)
            return err_set(e, HP_EINVAL, "byte %zu of a word is not UTF-8", at);
        int64_t id = token_of_text(b, s, word + at, (size_t)length);
        if (id >= 0)
            symbol_push(symbols, (uint32_t)id);
        else
            push_stranger(b, symbols, word + at, (size_t)length, &after_unknown);
        after_unknown &= id < 0;
        at += (size_t)length;
    }
    return symbols->failed ? err_set(e, HP_ENOMEM, "out of memory for a word of %zu bytes", size)
                           : 0;
}

int bpe_word(const struct bpe *b, struct bpe_scratch *s, const char *word, size_t size,
             struct buffer *out, struct err *e)
{
    if (size == 0)
        return 0;
    if (size > WORD_MAX_CHARS)
        return err_set(e, HP_ELIMIT, "a word of %zu bytes is longer than %d", size, WORD_MAX_CHARS);
    int64_t whole = b->ignore_merges ? token_of_text(b, s, word, size) : -1;
    if (whole >= 0) {
        uint32_t id = (uint32_t)whole;
        buffer_append(out, &id, sizeof id);
        return 0;
    }
    int rc = split_characters(b, s, word, size, e);
    if (rc < 0 || s->symbols.size == 0)
        return rc;
    struct symbol *symbols = (struct symbol *)(void *)s->symbols.data;
    int32_t n = (int32_t)(s->symbols.size / sizeof *symbols);
    symbols[n - 1].next = -1;
    merge_all(b, s, symbols, n);
    for (int32_t i = 0; i >= 0; i = symbols[i].next)
        buffer_append(out, &symbols[i].id, sizeof symbols[i].id);
    return s->heap.failed || out->failed
               ? err_set(e, HP_ENOMEM, "out of memory for a word of %zu bytes", size)
               : 0;
}
