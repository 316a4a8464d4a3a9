#include "model/grammar/token_sets.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 8 };

/* Masks of the tokens of some kinds: with at most 1, 2, .. characters, one behind the other. */
struct kept_set {
    uint16_t kinds; /* 0: free */
    uint64_t *words;
};

struct token_sets {
    pthread_mutex_t lock;
    uint32_t vocabulary, n_words;
    uint16_t *texts;
    struct kept_set kept[KEPT];
    uint32_t next; /* to go when another comes */
};

struct token_sets *token_sets_create(uint32_t vocabulary)
{
    struct token_sets *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->vocabulary = vocabulary;
    s->n_words = vocabulary / 64 + 1;
    s->texts = calloc(vocabulary + 1u, sizeof *s->texts);
    if (!s->texts) {
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void token_sets_destroy(struct token_sets **self)
{
    struct token_sets *s = *self;
    *self = NULL;
    if (!s)
        return;
    for (int i = 0; i < KEPT; i++)
        free(s->kept[i].words);
    pthread_mutex_destroy(&s->lock);
    free(s->texts);
    free(s);
}

uint16_t *token_sets_texts(struct token_sets *s)
{
    return s->texts;
}

static void set_fill(const struct token_sets *s, struct kept_set *k)
{
    memset(k->words, 0, (size_t)TOKEN_SETS_CHARS * s->n_words * sizeof *k->words);
    for (uint32_t token = 0; token < s->vocabulary; token++) {
        uint16_t text = s->texts[token];
        uint32_t chars = text_summary_chars(text);
        if (text && chars <= TOKEN_SETS_CHARS && !(text_summary_kinds(text) & ~k->kinds))
            k->words[(size_t)(chars - 1) * s->n_words + token / 64] |= UINT64_C(1) << token % 64;
    }
    for (size_t i = s->n_words; i < (size_t)TOKEN_SETS_CHARS * s->n_words; i++)
        k->words[i] |= k->words[i - s->n_words];
}

/* NULL: no memory. */
static const struct kept_set *set_find(struct token_sets *s, uint16_t kinds)
{
    for (int i = 0; i < KEPT; i++)
        if (s->kept[i].kinds == kinds)
            return &s->kept[i];
    struct kept_set *k = &s->kept[s->next];
    if (!k->words)
        k->words = malloc((size_t)TOKEN_SETS_CHARS * s->n_words * sizeof *k->words);
    if (!k->words)
        return NULL;
    s->next = (s->next + 1) % KEPT;
    k->kinds = kinds;
    set_fill(s, k);
    return k;
}

void token_sets_prepare(struct token_sets *s, uint16_t kinds)
{
    pthread_mutex_lock(&s->lock);
    set_find(s, kinds);
    pthread_mutex_unlock(&s->lock);
}

/* Token by token. */
static void tokens_add(const struct token_sets *s, uint16_t kinds, uint32_t chars, uint64_t *words)
{
    for (uint32_t token = 0; token < s->vocabulary; token++) {
        uint16_t text = s->texts[token];
        if (text && text_summary_chars(text) <= chars && !(text_summary_kinds(text) & ~kinds))
            words[token / 64] |= UINT64_C(1) << token % 64;
    }
}

void token_sets_add(struct token_sets *s, uint16_t kinds, uint32_t chars, uint64_t *words)
{
    pthread_mutex_lock(&s->lock);
    const struct kept_set *k = set_find(s, kinds);
    for (uint32_t i = 0; k && i < s->n_words; i++)
        words[i] |= k->words[(size_t)(chars - 1) * s->n_words + i];
    pthread_mutex_unlock(&s->lock);
    if (!k)
        tokens_add(s, kinds, chars, words);
}
