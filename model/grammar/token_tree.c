#include "model/grammar/token_tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

struct named_token {
    const char *bytes;
    uint32_t size, id;
    bool apart; /* it is in no set */
};

static int tokens_compare(const void *a, const void *b)
{
    const struct named_token *x = a, *y = b;
    uint32_t n = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->bytes, y->bytes, n);
    return x->apart != y->apart ? x->apart - y->apart
           : order              ? order
           : x->size != y->size ? (x->size < y->size ? -1 : 1)
                                : (x->id < y->id ? -1 : 1);
}

static uint32_t bytes_shared(const struct named_token *a, const struct named_token *b)
{
    uint32_t n = 0;
    while (a->apart == b->apart && n < a->size && n < b->size && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Nodes of sorted tokens: each adds those that the one before it does not share. */
static void nodes_add(struct token_tree *t, const struct named_token *list, uint32_t n)
{
    uint32_t open[TOKEN_TREE_DEEPEST + 1], depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        t->sorted[i] = list[i].id;
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
            if (depth == 0)
                t->roots[list[i].apart][byte] = t->n_nodes;
            t->nodes[t->n_nodes] = (struct token_node){
                .token = TOKEN_NONE, .first = i, .depth = (uint8_t)(depth + 1), .byte = byte};
            open[depth] = t->n_nodes++;
        }
        t->nodes[open[depth - 1]].token = list[i].id;
    }
    for (; depth > 0; depth--)
        t->nodes[open[depth - 1]].skip = t->n_nodes;
    t->nodes[t->n_nodes].first = n;
}

/* A node on the way that is walked, and what its byte adds to a text. */
struct path_step {
    struct token_node *node;
    struct char_count from_root, own;
};

/* What a token that ends at a depth has behind each node above it. */
static void below_sum(struct path_step *path, uint32_t depth)
{
    struct char_count rest = {0};
    for (uint32_t d = depth; d > 1; d--) {
        rest.kinds |= path[d].own.kinds;
        rest.none |= path[d].own.none;
        rest.n = path[depth].from_root.n - path[d - 1].from_root.n;
        struct token_node *above = path[d - 1].node;
        above->below = text_summary_join(above->below, text_summary(rest));
    }
}

/* Of each token, and of each node what lies below, which is behind it. */
static void texts_sum(struct token_tree *t, uint16_t *texts)
{
    struct path_step path[TOKEN_TREE_DEEPEST + 1] = {{0}};
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        struct token_node *node = &t->nodes[i];
        struct path_step *at = &path[node->depth], *before = at - 1;
        at->node = node;
        at->from_root = char_count_next(before->from_root, node->byte);
        at->own = before->from_root;
        at->own.kinds = at->own.none = 0;
        at->own = char_count_next(at->own, node->byte);
        node->text = node->token == TOKEN_NONE ? 0 : text_summary(at->from_root);
        if (node->token != TOKEN_NONE)
            below_sum(path, node->depth);
        for (uint32_t token = node->token; token != TOKEN_NONE; token = t->same[token])
            texts[token] = node->text;
    }
    for (uint32_t i = t->n_nodes; i-- > 0;)
        for (uint32_t child = i + 1; child < t->nodes[i].skip; child = t->nodes[child].skip)
            t->nodes[i].text = text_summary_join(t->nodes[i].text, t->nodes[child].text);
}

/* Room for as many as there are. Of a large vocabulary in huge pages: a walk skips most nodes, so
 * that nearly each that it looks at lies on another page. */
static void nodes_trim(struct token_tree *t)
{
    size_t bytes = (t->n_nodes + 1u) * sizeof *t->nodes,
           whole = (bytes + HUGE_PAGE_BYTES - 1) & ~((size_t)HUGE_PAGE_BYTES - 1);
    bool huge = bytes >= HUGE_PAGE_BYTES;
    void *fewer = huge ? aligned_alloc(HUGE_PAGE_BYTES, whole) : realloc(t->nodes, bytes);
    if (fewer && huge) {
        madvise(fewer, whole, MADV_HUGEPAGE);
        memcpy(fewer, t->nodes, bytes);
        free(t->nodes);
    }
    if (fewer)
        t->nodes = fewer;
}

/* Whether a token is in no set. */
static bool token_apart(const struct token_text *text)
{
    struct char_count c = {0};
    for (uint32_t i = 0; i < text->size; i++)
        c = char_count_next(c, (uint8_t)text->bytes[i]);
    return text_summary_chars(text_summary(c)) > TOKEN_SETS_CHARS;
}

static uint32_t tokens_list(const struct token_text *texts, uint32_t n, struct named_token *list,
                            size_t *bytes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (texts[i].size && texts[i].size <= TOKEN_TREE_DEEPEST) {
            list[kept++] =
                (struct named_token){texts[i].bytes, texts[i].size, i, token_apart(&texts[i])};
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
        t->sorted = calloc(n + 1u, sizeof *t->sorted);
    }
    uint16_t *summaries = calloc(vocabulary + 1u, sizeof *summaries);
    if (!t || !list || !t->nodes || !t->same || !t->offsets || !t->bytes || !t->sorted ||
        !summaries) {
        token_tree_destroy(&t);
        free(list);
        free(summaries);
        return err_no_memory(e, "the prefix tree of %u tokens", vocabulary);
    }
    qsort(list, n, sizeof *list, tokens_compare);
    memset(t->roots, 0xFF, sizeof t->roots);
    memset(t->same, 0xFF, vocabulary * sizeof *t->same);
    nodes_add(t, list, n);
    free(list);
    nodes_trim(t);
    texts_sum(t, summaries);
    bytes_keep(t, texts);
    t->sets = token_sets_create(summaries, vocabulary);
    free(summaries);
    if (!t->sets) {
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
    free(t->sorted);
    free(t->same);
    free(t->offsets);
    free(t->bytes);
    token_sets_destroy(&t->sets);
    free(t);
}

/* Below one root. */
static uint32_t root_longest(const struct token_tree *t, uint32_t at, const char *bytes, size_t n,
                             size_t *used)
{
    uint32_t found = TOKEN_NONE;
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

uint32_t token_tree_longest(const struct token_tree *t, const char *bytes, size_t n, size_t *used)
{
    uint32_t found[2] = {TOKEN_NONE, TOKEN_NONE};
    size_t size[2] = {0};
    for (int apart = 0; n && apart < 2; apart++)
        found[apart] = root_longest(t, t->roots[apart][(uint8_t)bytes[0]], bytes, n, &size[apart]);
    int longer = size[1] > size[0];
    *used = found[longer] == TOKEN_NONE ? *used : size[longer];
    return found[longer];
}
