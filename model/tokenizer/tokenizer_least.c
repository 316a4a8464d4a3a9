/* How many tokens a text has at least. */
#include "model/tokenizer/tokenizer_int.h"

/* What is counted, of a text and of each token. */
enum text_trait { TRAIT_BYTES, TRAIT_LETTERS, TRAIT_WIDE, TRAIT_WORDS, TEXT_TRAITS };

struct text_count {
    size_t of[TEXT_TRAITS];
};

static bool is_letter(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* A word begins here where a space stands between two letters. */
static void bytes_count(const char *text, size_t size, struct text_count *n)
{
    const unsigned char *s = (const unsigned char *)text;
    n->of[TRAIT_BYTES] += size;
    for (size_t i = 0; i < size; i++) {
        bool letter = is_letter(s[i]);
        n->of[TRAIT_LETTERS] += letter;
        n->of[TRAIT_WIDE] += s[i] >= 0x80;
        n->of[TRAIT_WORDS] += letter && i >= 2 && s[i - 1] == ' ' && is_letter(s[i - 2]);
    }
}

static void most_take(struct text_count *most, const char *text, size_t size)
{
    struct text_count n = {0};
    if (text)
        bytes_count(text, size, &n);
    for (int k = 0; k < TEXT_TRAITS; k++)
        most->of[k] = n.of[k] > most->of[k] ? n.of[k] : most->of[k];
}

/* The most that any token holds of each. What a text has is what decoding writes, where tokens are
 * spelled in byte characters. */
static struct text_count token_most(const struct tokenizer *t)
{
    struct text_count most = {0};
    for (uint32_t i = 0; i < t->vocabulary.n; i++) {
        const struct vocabulary_token *token = &t->vocabulary.tokens[i];
        if (!t->bytes || token->special || !token->out)
            most_take(&most, token->text, token->size);
        most_take(&most, token->out, token->out_size);
    }
    return most;
}

/* A step that takes neither letters and digits of ASCII (up to their case) nor a space between two
 * of them. */
static bool step_keeps_letters(const struct normalize_step *s)
{
    struct text_count taken = {0};
    if (s->kind == NORMALIZE_PATTERN || s->kind == NORMALIZE_CHARSMAP)
        return false;
    if (s->kind != NORMALIZE_REPLACE)
        return true;
    bytes_count(s->what, s->what_size, &taken);
    return s->with_size > 0 && taken.of[TRAIT_LETTERS] == 0;
}

static bool letters_stay(const struct tokenizer *t)
{
    for (int i = 0; i < t->normalizer.n_steps; i++)
        if (!step_keeps_letters(&t->normalizer.steps[i]))
            return false;
    return true;
}

/* How many tokens hold what was counted, where one holds at most `each`. Normalising makes a plain
 * letter of a mathematical one of four bytes; what is composed shrinks less. A word that nobody
 * knows may be one token, however long. */
static size_t tokens_least(const struct tokenizer *t, const struct text_count *n,
                           const struct text_count *each)
{
    enum { NORMALIZE_SHRINKS = 4 };
    bool as_is = t->normalizer.n_steps == 0, letters = letters_stay(t),
         all_known = t->bytes || t->bpe.byte_ids[0x80] >= 0;
    const size_t per_token[TEXT_TRAITS] = {
        [TRAIT_BYTES] = all_known ? each->of[TRAIT_BYTES] * (as_is ? 1 : NORMALIZE_SHRINKS) : 0,
        [TRAIT_LETTERS] = letters && t->bytes ? each->of[TRAIT_LETTERS] : 0,
        [TRAIT_WIDE] = as_is && t->bytes ? each->of[TRAIT_WIDE] : 0,
        [TRAIT_WORDS] = letters ? each->of[TRAIT_WORDS] + 1 : 0,
    };
    size_t least = 0;
    for (int k = 0; k < TEXT_TRAITS; k++) {
        size_t tokens = per_token[k] ? n->of[k] / per_token[k] : 0;
        least = tokens > least ? tokens : least;
    }
    return least;
}

size_t tokenizer_least_tokens(const struct tokenizer *t, const char *text, size_t size, size_t most)
{
    enum { AT_ONCE = 64 << 10 };
    const struct text_count each = token_most(t);
    struct text_count n = {0};
    size_t least = 0;
    for (size_t at = 0; at < size && least <= most; at += AT_ONCE) {
        bytes_count(text + at, size - at < AT_ONCE ? size - at : AT_ONCE, &n);
        least = tokens_least(t, &n, &each);
    }
    return least;
}
