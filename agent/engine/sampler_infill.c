#include "agent/engine/sampler_infill.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "agent/engine/sampler_cuts.h"
#include "common/sampling.h"
#include "model/grammar/token_tree.h"

static const double LEAST_SHARE = 0.2;

struct infill_token {
    uint64_t candidate;
    double share; /* of all */
    const char *text;
    uint32_t size; /* 0: it has no text, or joined another one */
    bool ends;
};

static bool token_ends(const struct infill_vocabulary *v, uint32_t token)
{
    for (size_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == token)
            return true;
    return false;
}

/* Special tokens have a spelling there, and no text. */
static void text_find(const struct token_tree *t, uint32_t token, struct infill_token *out)
{
    if (!t || token >= t->vocabulary)
        return;
    out->text = t->bytes + t->offsets[token];
    out->size = t->offsets[token + 1] - t->offsets[token];
    if (out->size && (uint8_t)out->text[0] == TOKEN_SPECIAL_BYTE)
        out->size = 0;
}

static void tokens_read(const struct infill_vocabulary *v, const uint64_t *c, size_t n,
                        struct infill_token *out)
{
    double mass = sampler_mass(c, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = sampler_candidate_token(c[i]);
        out[i] = (struct infill_token){.candidate = c[i],
                                       .share = (double)sampler_candidate_weight(c[i]) / mass,
                                       .ends = token_ends(v, token)};
        if (!out[i].ends)
            text_find(v->texts, token, &out[i]);
    }
}

static bool text_begins(const struct infill_token *a, const struct infill_token *b)
{
    return a->size && a->size <= b->size && memcmp(a->text, b->text, a->size) == 0;
}

static void texts_join(struct infill_token *to, struct infill_token *from)
{
    to->share += from->share;
    from->share = 0;
    from->size = 0;
}

/* From the likeliest on, so that what is found first keeps its name. */
static void texts_combine(struct infill_token *t, size_t n)
{
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n && t[a].size; b++) {
            if (b == a || !t[b].size || !text_begins(&t[a], &t[b]))
                continue;
            if (t[b].share > t[a].share)
                texts_join(&t[b], &t[a]);
            else
                texts_join(&t[a], &t[b]);
        }
}

/* Ends stay, and what has `least` of all that is left; the shares are those of what stays then.
 * Gives how many stay, and in *n_texts how many of them are no ends. */
static size_t shares_cut(struct infill_token *t, size_t n, double least, size_t *n_texts)
{
    size_t kept = 0;
    double mass = 0;
    *n_texts = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].share < least && !t[i].ends)
            continue;
        *n_texts += !t[i].ends;
        mass += t[i].share;
        t[kept++] = t[i];
    }
    for (size_t i = 0; i < kept && mass > 0; i++)
        t[i].share /= mass;
    return kept;
}

static size_t candidates_write(const struct infill_token *t, size_t n, bool ends_alone, uint64_t *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (t[i].ends || !ends_alone)
            c[kept++] = t[i].candidate;
    return kept;
}

/* The likeliest of them, or the vocabulary's first; where nothing ends, the likeliest token. */
static size_t end_alone(const struct infill_vocabulary *v, const struct infill_token *t, size_t n,
                        uint64_t *c)
{
    size_t ends = candidates_write(t, n, true, c);
    if (!ends && v->n_ends)
        c[0] = sampler_candidate(1, v->ends[0]);
    return 1;
}

static bool end_outweighs(const struct infill_token *t, size_t n)
{
    double ends = 0, texts = 0;
    for (size_t i = 0; i < n; i++)
        *(t[i].ends ? &ends : &texts) += t[i].share;
    return 3 * ends * (double)n > texts;
}

size_t sampler_infill_cut(const struct infill_vocabulary *v, uint64_t *c, size_t n)
{
    struct infill_token t[SAMPLING_INFILL_MOST];
    size_t n_texts, kept;
    assert(n > 0 && n <= SAMPLING_INFILL_MOST);
    sampler_sort(c, n);
    tokens_read(v, c, n, t);
    if (end_outweighs(t, n))
        return candidates_write(t, n, true, c);
    texts_combine(t, n);
    kept = shares_cut(t, n, LEAST_SHARE, &n_texts);
    if (n_texts == 0)
        return end_alone(v, t, kept, c);
    kept = shares_cut(t, kept, 1.0 / ((double)n_texts + 1), &n_texts);
    return candidates_write(t, kept, false, c);
}
