#include "model/tokenizer/unigram.h"

enum { TEXT_MAX = 1 << 30, NOT_REACHED = -2, UNKNOWN = -1 };

/* The best way to a place in the text: its last token, and where that begins. */
struct unigram_step {
    double score;
    uint32_t start;
    int32_t token; /* UNKNOWN: a character without one */
};

double unigram_unknown_score(double least)
{
    return least - 10; /* SentencePiece's kUnkPenalty */
}

static void step_offer(struct unigram_step *s, double score, size_t start, int32_t token)
{
    if (s->token == NOT_REACHED || score > s->score)
        *s = (struct unigram_step){score, (uint32_t)start, token};
}

static size_t char_bytes(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* All tokens that begin at `at`, and the character there where none is as long as it. */
static void steps_from(const struct unigram *u, bool plain, const char *text, size_t size,
                       size_t at, struct unigram_step *steps)
{
    size_t width = char_bytes((uint8_t)text[at]);
    width = width < size - at ? width : size - at;
    double so_far = steps[at].score;
    bool single = false;
    uint32_t node = 0;
    for (size_t i = at; i < size; i++) {
        node = token_trie_next(u->trie, node, (uint8_t)text[i]);
        if (!node)
            break;
        int32_t token = u->trie->tokens[node];
        if (token < 0 || (plain && u->vocabulary->tokens[token].special))
            continue;
        step_offer(&steps[i + 1], so_far + u->scores[token], at, token);
        single = single || i + 1 - at == width;
    }
    if (!single)
        step_offer(&steps[at + width], so_far + u->unknown_score, at, UNKNOWN);
}

static void unknown_append(const struct unigram *u, const char *text, size_t size,
                           struct buffer *out)
{
    bool bytes = true;
    for (size_t i = 0; i < size; i++)
        bytes = bytes && u->byte_ids[(uint8_t)text[i]] >= 0;
    uint32_t id = (uint32_t)u->unknown;
    if (!bytes && u->unknown >= 0)
        buffer_append(out, &id, sizeof id);
    for (size_t i = 0; bytes && i < size; i++)
        buffer_append(out, &u->byte_ids[(uint8_t)text[i]], sizeof id);
}

int unigram_text(const struct unigram *u, bool plain, const char *text, size_t size,
                 struct buffer *scratch, struct buffer *out, struct err *e)
{
    if (size > TEXT_MAX)
        return err_set(e, HP_ELIMIT, "a word of %zu bytes is longer than %d", size, TEXT_MAX);
    scratch->size = 0;
    if (!buffer_extend(scratch, (size + 1) * sizeof(struct unigram_step)))
        return err_set(e, HP_ENOMEM, "out of memory to tokenize %zu bytes", size);
    struct unigram_step *steps = (struct unigram_step *)(void *)scratch->data;
    for (size_t i = 1; i <= size; i++)
        steps[i].token = NOT_REACHED;
    steps[0] = (struct unigram_step){0};
    for (size_t at = 0; at < size; at += char_bytes((uint8_t)text[at]))
        steps_from(u, plain, text, size, at, steps);
    /* The way is known from its end: each step is told where the next one ends. */
    size_t end = size, next = 0;
    while (end > 0) {
        size_t start = steps[end].start;
        int32_t token = steps[end].token;
        steps[end].start = (uint32_t)next;
        next = end;
        steps[start].score = token; /* a whole number of 32 bits: exact */
        end = start;
    }
    for (size_t at = 0, stop; at < size; at = stop) {
        stop = at == 0 ? next : steps[at].start;
        int32_t token = (int32_t)steps[at].score;
        if (token >= 0) {
            buffer_append(out, &token, sizeof token);
            continue;
        }
        while (stop < size && (int32_t)steps[stop].score < 0)
            stop = steps[stop].start;
        unknown_append(u, text + at, stop - at, out);
    }
    return out->failed ? err_set(e, HP_ENOMEM, "out of memory to tokenize %zu bytes", size) : 0;
}
