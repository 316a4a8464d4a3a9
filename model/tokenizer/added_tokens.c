#include "model/tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/utf8.h"

/* Children of a node are a list by `next`; 0 is none. A node stands for the bytes from its place in
 * the text on. */
struct added_node {
    uint32_t child, next;
    uint32_t token; /* index + 1 of the token that these bytes are */
    uint32_t fail;  /* the node of the longest shorter stretch from the same place on */
    uint32_t found; /* this node or the first behind its `fail` that is a token */
    uint8_t byte;
};

struct hit {
    size_t start;
    uint32_t node;
};

static int trie_grow(struct added_tokens *a, struct err *e)
{
    if (a->n_nodes + 1 < a->capacity)
        return 0;
    uint32_t capacity = a->capacity ? a->capacity * 2 : 256;
    struct added_node *nodes = arena_alloc(a->arena, capacity, sizeof *nodes);
    if (!nodes)
        return err_set(e, HP_ENOMEM, "out of memory for added tokens");
    if (a->n_nodes)
        memcpy(nodes, a->nodes, a->n_nodes * sizeof *nodes);
    else
        a->n_nodes = 1; /* node 0 stands for none */
    a->nodes = nodes;
    a->capacity = capacity;
    return 0;
}

static uint32_t child_of(const struct added_tokens *a, uint32_t first, uint8_t byte)
{
    while (first && a->nodes[first].byte != byte)
        first = a->nodes[first].next;
    return first;
}

static int insert_path(struct added_tokens *a, const char *text, size_t size, uint32_t *last,
                       struct err *e)
{
    uint32_t parent = 0;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = (uint8_t)text[size - 1 - i];
        uint32_t node = i == 0 ? a->roots[byte] : child_of(a, a->nodes[parent].child, byte);
        if (!node) {
            int rc = trie_grow(a, e);
            if (rc < 0)
                return rc;
            node = a->n_nodes++;
            a->nodes[node] =
                (struct added_node){.next = i == 0 ? 0 : a->nodes[parent].child, .byte = byte};
            if (i == 0)
                a->roots[byte] = node;
            else
                a->nodes[parent].child = node;
        }
        parent = node;
    }
    *last = parent;
    return 0;
}

int added_tokens_add(struct added_tokens *a, const char *text, size_t size,
                     const struct added_token *token, struct err *e)
{
    if (size == 0)
        return 0;
    if (size > 1 << 16)
        return err_set(e, HP_ELIMIT, "an added token of %zu bytes; at most 65536 are read", size);
    if (a->n_tokens == a->tokens_capacity) {
        uint32_t capacity = a->tokens_capacity ? a->tokens_capacity * 2 : 64;
        struct added_token *tokens = arena_alloc(a->arena, capacity, sizeof *tokens);
        if (!tokens)
            return err_set(e, HP_ENOMEM, "out of memory for added tokens");
        if (a->n_tokens)
            memcpy(tokens, a->tokens, a->n_tokens * sizeof *tokens);
        a->tokens = tokens;
        a->tokens_capacity = capacity;
    }
    uint32_t node;
    int rc = insert_path(a, text, size, &node, e);
    if (rc < 0)
        return rc;
    a->tokens[a->n_tokens] = *token;
    a->tokens[a->n_tokens++].size = (uint32_t)size;
    a->nodes[node].token = a->n_tokens;
    return 0;
}

static bool is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
    }
}

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

static bool test_before(const char *text, size_t at, bool (*is)(uint32_t), size_t *previous)
{
    if (at == 0)
        return false;
    *previous = utf8_previous(text, at);
    uint32_t c;
    return utf8_decode(text + *previous, at - *previous, &c) > 0 && is(c);
}

static bool test_behind(const char *text, size_t size, size_t at, bool (*is)(uint32_t),
                        size_t *next)
{
    uint32_t c;
    int length = at < size ? utf8_decode(text + at, size - at, &c) : 0;
    *next = at + (size_t)(length > 0 ? length : 0);
    return length > 0 && is(c);
}

/* The node for one more byte in front. */
static uint32_t trie_step(const struct added_tokens *a, uint32_t node, uint8_t byte)
{
    uint32_t longer = 0;
    while (node && !(longer = child_of(a, a->nodes[node].child, byte)))
        node = a->nodes[node].fail;
    return longer ? longer : a->roots[byte];
}

static void link_children(struct added_tokens *a, uint32_t parent, uint32_t *queue, uint32_t *n)
{
    for (uint32_t node = a->nodes[parent].child; node; node = a->nodes[node].next) {
        struct added_node *k = &a->nodes[node];
        k->fail = trie_step(a, a->nodes[parent].fail, k->byte);
        k->found = k->token ? node : a->nodes[k->fail].found;
        queue[(*n)++] = node;
    }
}

int added_tokens_finish(struct added_tokens *a, struct err *e)
{
    uint32_t *queue = a->n_tokens ? malloc((a->n_nodes + 1) * sizeof *queue) : NULL, n = 0;
    if (a->n_tokens == 0)
        return 0;
    if (!queue)
        return err_set(e, HP_ENOMEM, "out of memory for added tokens");
    for (int byte = 0; byte < 256; byte++) {
        uint32_t node = a->roots[byte];
        if (!node)
            continue;
        a->nodes[node].fail = 0;
        a->nodes[node].found = a->nodes[node].token ? node : 0;
        queue[n++] = node;
    }
    for (uint32_t i = 0; i < n; i++)
        link_children(a, queue[i], queue, &n);
    free(queue);
    return 0;
}

/* ---- scanning ---- */

int added_scan_start(struct added_scan *s, const struct added_tokens *a, const char *text,
                     size_t size, const struct text_span *literal, size_t n_literal, struct err *e)
{
    struct buffer hits = s->hits;
    hits.size = 0;
    *s = (struct added_scan){a, text, size, literal, n_literal, 0, hits};
    uint32_t node = 0;
    for (size_t at = a->n_tokens ? size : 0; at-- > 0;) {
        node = trie_step(a, node, (uint8_t)text[at]);
        if (!a->nodes[node].found)
            continue;
        struct hit h = {at, a->nodes[node].found};
        buffer_append(&s->hits, &h, sizeof h);
    }
    return s->hits.failed
               ? err_set(e, HP_ENOMEM, "out of memory for the tokens of %zu bytes of text", size)
               : 0;
}

void added_scan_free(struct added_scan *s)
{
    buffer_free(&s->hits);
}

static bool touches_literal(struct added_scan *s, size_t start, size_t end)
{
    while (s->at_literal < s->n_literal && s->literal[s->at_literal].end <= start)
        s->at_literal++;
    return s->at_literal < s->n_literal && s->literal[s->at_literal].start < end;
}

/* The longest token at a place that counts there, or NULL. */
static const struct added_token *token_at(struct added_scan *s, const struct hit *h)
{
    enum { SHORTER_ONES = 64 };
    const struct added_tokens *a = s->tokens;
    uint32_t node = h->node;
    for (int i = 0; node && i < SHORTER_ONES; i++) {
        const struct added_token *t = &a->tokens[a->nodes[node].token - 1];
        if (!t->special || !touches_literal(s, h->start, h->start + t->size))
            return t;
        node = a->nodes[a->nodes[node].fail].found;
    }
    return NULL;
}

bool added_scan_next(struct added_scan *s, size_t at, size_t *start, size_t *end, uint32_t *id)
{
    for (size_t from = at; s->hits.size > 0;) {
        s->hits.size -= sizeof(struct hit);
        const struct hit *h = (const struct hit *)(const void *)(s->hits.data + s->hits.size);
        const struct added_token *t = h->start < from ? NULL : token_at(s, h);
        if (!t)
            continue;
        size_t first = h->start, stop = first + t->size, other;
        if (t->single_word && (test_before(s->text, first, is_word, &other) ||
                               test_behind(s->text, s->size, stop, is_word, &other))) {
            from = stop;
            continue;
        }
        while (t->lstrip && first > at && test_before(s->text, first, is_space, &other) &&
               other >= at)
            first = other;
        while (t->rstrip && test_behind(s->text, s->size, stop, is_space, &other))
            stop = other;
        *start = first;
        *end = stop;
        *id = t->id;
        return true;
    }
    return false;
}
