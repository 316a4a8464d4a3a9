/* A tokenizer from tekken.json (Mistral): bytes of tokens by rank, which are merged as tiktoken
 * merges them, behind a number of special tokens. Source: Mistral's `mistral-common`,
 * tokens/tokenizers/tekken.py. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/tokenizer/tokenizer_int.h"

enum { TOKEN_MAX_BYTES = 4096 };

struct tekken {
    struct tokenizer *t;
    struct json_at vocab;
    uint32_t n, n_special; /* ids; the special tokens come first */
    struct err *e;
};

/* Older files name no special tokens; theirs are these. */
static const char *const usual_specials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

static int read_sizes(struct tekken *k, const struct json_at *root, struct json_at *config)
{
    uint64_t n, n_special;
    size_t count;
    int rc = json_get(root, "config", config, k->e);
    rc = rc < 0 ? rc : json_get(root, "vocab", &k->vocab, k->e);
    rc = rc < 0 ? rc : json_as_array(&k->vocab, &count, k->e);
    rc = rc < 0 ? rc : json_opt_u64(config, "default_num_special_tokens", 0, &n_special, k->e);
    rc = rc < 0 ? rc : json_opt_u64(config, "default_vocab_size", UINT64_MAX, &n, k->e);
    if (rc < 0)
        return rc;
    if (n_special > VOCABULARY_MAX_IDS || (n != UINT64_MAX && n < n_special))
        return json_fail(config, k->e, "%llu tokens, of which %llu are special",
                         (unsigned long long)n, (unsigned long long)n_special);
    n = n - n_special < count ? n : count + n_special; /* what is ranked lower is not used */
    if (n > VOCABULARY_MAX_IDS)
        return json_fail(&k->vocab, k->e, "has %zu tokens; at most %d are read", count,
                         VOCABULARY_MAX_IDS);
    k->n = (uint32_t)n;
    k->n_special = (uint32_t)n_special;
    return 0;
}

/* ---- tokens of text ---- */

/* Ranks are the places in the list. */
static int read_token(struct tekken *k, uint32_t rank, uint8_t *bytes, struct buffer *spelled)
{
    struct json_at item = json_item(&k->vocab, rank);
    struct tokenizer *t = k->t;
    const char *text;
    uint64_t said;
    size_t n = 0;
    uint32_t id = rank + k->n_special;
    int rc = json_opt_u64(&item, "rank", rank, &said, k->e);
    rc = rc < 0 ? rc : json_get_string(&item, "token_bytes", &text, k->e);
    if (rc < 0)
        return rc;
    if (said != rank)
        return json_fail(&item, k->e, "has rank %llu at place %u", (unsigned long long)said, rank);
    if (sodium_base642bin(bytes, TOKEN_MAX_BYTES, text, strlen(text), NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        n == 0)
        return json_fail(&item, k->e, "token_bytes is not base64 of 1 to %d bytes",
                         TOKEN_MAX_BYTES);
    spelled->size = 0;
    for (size_t i = 0; i < n; i++)
        pretokenize_byte_append(spelled, bytes[i]);
    if (spelled->failed)
        return err_set(k->e, HP_ENOMEM, "%s: out of memory for a token", k->vocab.file);
    rc = vocabulary_set(&t->vocabulary, &t->arena, id, (const char *)spelled->data, spelled->size,
                        k->e);
    if (rc == 0)
        vocabulary_index(&t->vocabulary, id);
    return rc < 0 ? rc : tokenizer_set_byte_text(t, id, k->e);
}

static int read_tokens(struct tekken *k)
{
    uint8_t *bytes = malloc(TOKEN_MAX_BYTES);
    struct buffer spelled = {0};
    int rc = bytes ? 0 : err_set(k->e, HP_ENOMEM, "%s: out of memory", k->vocab.file);
    for (uint32_t rank = 0; rc == 0 && rank < k->n - k->n_special; rank++)
        rc = read_token(k, rank, bytes, &spelled);
    free(bytes);
    buffer_free(&spelled);
    return rc;
}

/* Any two neighbours become the token of their bytes, the lowest rank first. */
static int make_merges(struct tekken *k)
{
    struct tokenizer *t = k->t;
    float *scores = calloc((size_t)k->n + 1, sizeof *scores);
    bool *takes_part = calloc((size_t)k->n + 1, sizeof *takes_part);
    int rc = scores && takes_part
                 ? 0
                 : err_set(k->e, HP_ENOMEM, "%s: out of memory for merges", k->vocab.file);
    for (uint32_t id = k->n_special; rc == 0 && id < k->n; id++) {
        scores[id] = -(float)id; /* exact: ids have 24 bits */
        takes_part[id] = true;
    }
    if (rc == 0)
        rc = bpe_init_scores(&t->bpe, &t->arena, &t->vocabulary, scores, BPE_TIES_LEFTMOST,
                             takes_part, k->e);
    t->bpe.ignore_merges = true;
    free(scores);
    free(takes_part);
    return rc;
}

/* ---- special tokens ---- */

static int add_special(struct tekken *k, uint32_t id, const char *text)
{
    struct tokenizer *t = k->t;
    const struct added_token a = {.id = id, .special = true};
    int rc = vocabulary_set(&t->vocabulary, &t->arena, id, text, strlen(text), k->e);
    t->vocabulary.tokens[id].special = true;
    return rc < 0 ? rc : added_tokens_add(&t->raw, text, strlen(text), &a, k->e);
}

static int read_specials(struct tekken *k, const struct json_at *list)
{
    size_t n;
    int rc = json_as_array(list, &n, k->e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(list, i);
        const char *text;
        uint64_t rank;
        rc = json_get_u64(&item, "rank", &rank, k->e);
        rc = rc < 0 ? rc : json_get_string(&item, "token_str", &text, k->e);
        if (rc == 0 && rank >= k->n_special)
            return json_fail(&item, k->e, "has rank %llu; there are %u special tokens",
                             (unsigned long long)rank, k->n_special);
        rc = rc < 0 ? rc : add_special(k, (uint32_t)rank, text);
    }
    return rc;
}

static int read_all_specials(struct tekken *k, const struct json_at *root)
{
    enum { N_USUAL = sizeof usual_specials / sizeof *usual_specials };
    struct json_at list;
    char filling[32];
    bool named = json_find(root, "special_tokens", &list);
    int rc = named ? read_specials(k, &list) : 0;
    for (uint32_t id = 0; id < k->n_special && rc == 0; id++) {
        if (k->t->vocabulary.tokens[id].text)
            continue;
        snprintf(filling, sizeof filling, "<SPECIAL_%u>", id);
        rc = add_special(k, id, !named && id < N_USUAL ? usual_specials[id] : filling);
    }
    return rc;
}

/* Texts that templates are given; the first token stands before a text. */
static void set_names(struct tokenizer *t)
{
    int64_t first = tokenizer_id_of(t, "<s>");
    t->bos_text = first < 0 ? "" : "<s>";
    t->eos_text = tokenizer_id_of(t, "</s>") < 0 ? "" : "</s>";
    t->pad_text = tokenizer_id_of(t, "<pad>") < 0 ? "" : "<pad>";
    t->unknown_text = tokenizer_id_of(t, "<unk>") < 0 ? "" : "<unk>";
    tokenizer_add_end(t, tokenizer_id_of(t, t->eos_text));
    if (first >= 0)
        t->first[t->n_first++] = (uint32_t)first;
}

int tokenizer_read_tekken(struct tokenizer *t, const struct json_at *root, struct err *e)
{
    struct tekken k = {.t = t, .e = e};
    struct json_at config;
    const char *pattern;
    int rc = json_as_object(root, e);
    rc = rc < 0 ? rc : read_sizes(&k, root, &config);
    rc = rc < 0 ? rc : json_get_string(&config, "pattern", &pattern, e);
    if (rc < 0)
        return rc;
    t->bytes = true;
    rc = pretokenizer_add_split(&t->pretokenizer, pattern, SPLIT_ISOLATED, false, e);
    if (rc < 0)
        return err_at(e, "%s: $.config.pattern", root->file);
    rc = pretokenizer_add(&t->pretokenizer, &(struct pretokenize_step){.kind = PRETOKENIZE_BYTES},
                          e);
    rc = rc < 0 ? rc : vocabulary_init(&t->vocabulary, &t->arena, k.n, e);
    rc = rc < 0 ? rc : read_tokens(&k);
    rc = rc < 0 ? rc : make_merges(&k);
    rc = rc < 0 ? rc : read_all_specials(&k, root);
    if (rc < 0)
        return rc;
    set_names(t);
    return added_tokens_finish(&t->raw, e);
}
