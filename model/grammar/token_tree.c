#include "model/grammar/token_tree.h"

#include <stdlib.h>
#include <string.h>

static bool byte_plain(uint8_t b)
{
    return b >= 0x20 && b < 0x7F && b != '"' && b != '\\';
}

struct named_token {
    const char *bytes;
    uint32_t size, id;
};

static int tokens_compare(const void *a, const void *b)
{
    const struct named_token *x = a, *y = b;
    uint32_t n = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->bytes, y->bytes, n);
    return order                ? order
           : x->size != y->size ? (x->size < y->size ? -1 : 1)
                                : (x->id < y->id ? -1 : 1);
}

static uint32_t bytes_shared(const struct named_token *a, const struct named_token *b)
{
    uint32_t n = 0;
    while (n < a->size && n < b->size && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Nodes of sorted tokens: each adds those that the one before it does not share. */
static void nodes_add(struct token_tree *t, const struct named_token *list, uint32_t n)
{
    uint32_t open[TOKEN_TREE_DEEPEST + 1], depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i ? bytes_shared(&list[i - 1], &list[i]) : 0;
        if (i && shared == list[i].size && shared == list[i - 1].size) {
            t->same[list[i].id] = t->nodes[open[depth - 1]].token;
            t->nodes[open[depth - 1]].token = list[i].id;
            continue;
        }
        for (; depth > shared; depth--)
            t->nodes[open[depth - 1]].skip = t->n_nodes;
        for (; depth < list[i].size; depth++) {
            uint8_t byte = (uint8_t)list[i].bytes[depth];
            bool above = depth == 0 || t->nodes[open[depth - 1]].plain_path;
            if (depth == 0)
                t->roots[byte] = t->n_nodes;
            t->nodes[t->n_nodes] = (struct token_node){.token = TOKEN_NONE,
                                                       .depth = (uint8_t)(depth + 1),
                                                       .byte = byte,
                                                       .plain_path = above && byte_plain(byte)};
            open[depth] = t->n_nodes++;
        }
        t->nodes[open[depth - 1]].token = list[i].id;
    }
    for (; depth > 0; depth--)
        t->nodes[open[depth - 1]].skip = t->n_nodes;
}

/* What lies below a node is behind it. */
static void plains_count(struct token_tree *t)
{
    for (uint32_t i = t->n_nodes; i-- > 0;) {
        uint32_t most = 0;
        for (uint32_t child = i + 1; child < t->nodes[i].skip; child = t->nodes[child].skip) {
            uint32_t below = t->nodes[child].plain;
            below = below == 255 || !byte_plain(t->nodes[child].byte) ? 255 : below + 1;
            most = below > most ? below : most;
        }
        t->nodes[i].plain = (uint8_t)most;
    }
}

/* Room for as many as there are. */
static void nodes_trim(struct token_tree *t)
{
    void *fewer = realloc(t->nodes, (t->n_nodes + 1u) * sizeof *t->nodes);
    if (fewer)
        t->nodes = fewer;
}

static bool sets_fill(struct token_tree *t)
{
    for (int i = 0; i < TOKEN_TREE_SETS; i++) {
        t->plain_sets[i] = calloc(t->vocabulary / 64 + 1, sizeof(uint64_t));
        for (uint32_t k = 0; t->plain_sets[i] && k < t->n_nodes; k++)
            if (t->nodes[k].plain_path && t->nodes[k].depth <= token_tree_set_bytes(i))
                for (uint32_t token = t->nodes[k].token; token != TOKEN_NONE;
                     token = t->same[token])
                    t->plain_sets[i][token / 64] |= UINT64_C(1) << token % 64;
        if (!t->plain_sets[i])
            return false;
    }
    return true;
}

static uint32_t tokens_list(const struct token_text *texts, uint32_t n, struct named_token *list,
                            size_t *bytes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (texts[i].size && texts[i].size <= TOKEN_TREE_DEEPEST) {
            list[kept++] = (struct named_token){texts[i].bytes, texts[i].size, i};
            *bytes += texts[i].size;
        }
    return kept;
}

static void bytes_keep(struct token_tree *t, const struct token_text *texts)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->vocabulary; i++) {
        bool kept = texts[i].size && texts[i].size <= TOKEN_TREE_DEEPEST;
        t->offsets[i] = at;
        if (kept)
            memcpy(t->bytes + at, texts[i].bytes, texts[i].size);
        at += kept ? texts[i].size : 0;
    }
    t->offsets[t->vocabulary] = at;
}

int token_tree_make(const struct token_text *texts, uint32_t vocabulary, struct token_tree **out,
                    struct err *e)
{
    struct token_tree *t = calloc(1, sizeof *t);
    struct named_token *list = calloc(vocabulary + 1u, sizeof *list);
    size_t bytes = 0;
    uint32_t n = list ? tokens_list(texts, vocabulary, list, &bytes) : 0;
    if (t) {
        t->vocabulary = vocabulary;
        t->nodes = calloc(bytes + 1, sizeof *t->nodes);
        t->same = calloc(vocabulary + 1u, sizeof *t->same);
        t->offsets = calloc(vocabulary + 1u, sizeof *t->offsets);
        t->bytes = calloc(bytes + 1, 1);
    }
    if (!t || !list || !t->nodes || !t->same || !t->offsets || !t->bytes) {
        token_tree_destroy(&t);
        free(list);
        return err_no_memory(e, "the prefix tree of %u tokens", vocabulary);
    }
    qsort(list, n, sizeof *list, tokens_compare);
    memset(t->roots, 0xFF, sizeof t->roots);
    memset(t->same, 0xFF, vocabulary * sizeof *t->same);
    nodes_add(t, list, n);
    free(list);
    nodes_trim(t);
    plains_count(t);
    bytes_keep(t, texts);
    if (!sets_fill(t)) {
        token_tree_destroy(&t);
        return err_no_memory(e, "the prefix tree of %u tokens", vocabulary);
    }
    *out = t;
    return 0;
}

/* Special tokens, as they stand in the tree: all in `names`. */
static bool specials_add(const struct tokenizer *t, struct token_text *texts, uint32_t n,
                         struct buffer *names)
{
    static const char mark = (char)TOKEN_SPECIAL_BYTE;
    int n_ends;
    const uint32_t *ends = tokenizer_end_ids(t, &n_ends);
    for (uint32_t i = 0; i < n; i++) {
        size_t size;
        const char *bytes = tokenizer_token_bytes(t, i, &size);
        bool ends_answer = false;
        for (int k = 0; k < n_ends; k++)
            ends_answer |= ends[k] == i;
        if (texts[i].size || !size || ends_answer || memchr(bytes, TOKEN_SPECIAL_BYTE, size))
            continue;
        buffer_append(names, &mark, 1);
        buffer_append(names, bytes, size);
        texts[i].size = (uint32_t)size + 1;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < n && !names->failed; i++)
        if (texts[i].size && !texts[i].bytes) {
            texts[i].bytes = (const char *)names->data + at;
            at += texts[i].size;
        }
    return !names->failed;
}

int token_tree_of_tokenizer(const struct tokenizer *t, uint32_t vocabulary, struct token_tree **out,
                            struct err *e)
{
    struct token_text *texts = calloc(vocabulary + 1u, sizeof *texts);
    struct buffer names = {0};
    uint32_t known = (uint32_t)tokenizer_vocabulary(t), n = 0;
    if (!texts)
        return err_no_memory(e, "the texts of %u tokens", vocabulary);
    known = known < vocabulary ? known : vocabulary;
    for (uint32_t i = 0; i < known; i++) {
        size_t size;
        const char *bytes = tokenizer_token_text(t, i, &size);
        if (size && memchr(bytes, TOKEN_SPECIAL_BYTE, size)) /* in no UTF-8, and would pass for */
            continue;                                        /* a special token's beginning */
        texts[i] = (struct token_text){size ? bytes : NULL, (uint32_t)size};
        n += size > 0;
    }
    int rc = !specials_add(t, texts, known, &names)
                 ? err_no_memory(e, "the texts of %u tokens", vocabulary)
             : n ? token_tree_make(texts, vocabulary, out, e)
                 : err_set(e, HP_EUNSUPPORTED,
                           "the model's file has no tokenizer, so its tokens cannot be held to a "
                           "grammar");
    buffer_free(&names);
    free(texts);
    if (rc == 0)
        (*out)->drops_first_space = tokenizer_drops_first_space(t);
    return rc;
}

void token_tree_destroy(struct token_tree **self)
{
    struct token_tree *t = *self;
    *self = NULL;
    if (!t)
        return;
    free(t->nodes);
    free(t->same);
    free(t->offsets);
    free(t->bytes);
    for (int i = 0; i < TOKEN_TREE_SETS; i++)
        free(t->plain_sets[i]);
    free(t);
}

uint32_t token_tree_longest(const struct token_tree *t, const char *bytes, size_t n, size_t *used)
{
    uint32_t at = n ? t->roots[(uint8_t)bytes[0]] : TOKEN_NONE, found = TOKEN_NONE;
    for (size_t i = 1; at != TOKEN_NONE; i++) {
        if (t->nodes[at].token != TOKEN_NONE) {
            found = t->nodes[at].token;
            *used = i;
        }
        uint32_t child = at + 1, end = t->nodes[at].skip;
        while (i < n && child < end && t->nodes[child].byte != (uint8_t)bytes[i])
            child = t->nodes[child].skip;
        at = i < n && child < end ? child : TOKEN_NONE;
    }
    return found;
}
