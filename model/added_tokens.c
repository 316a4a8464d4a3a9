#include "model/added_tokens.h"

#include "common/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* Children of a node are a list by `next`; 0 is none. */
struct added_node {
    uint32_t child, next;
    uint32_t token; /* index + 1 of the token that ends here */
    uint8_t byte;
};

static int grow(struct added_tokens *a, struct err *e)
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

static int insert_path(struct added_tokens *a, const char *text, size_t size, uint32_t *last, struct err *e)
{
    uint32_t parent = 0;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = (uint8_t)text[i];
        uint32_t node = i == 0 ? a->roots[byte] : child_of(a, a->nodes[parent].child, byte);
        if (!node) {
            int rc = grow(a, e);
            if (rc < 0)
                return rc;
            node = a->n_nodes++;
            a->nodes[node] = (struct added_node){.next = i == 0 ? 0 : a->nodes[parent].child, .byte = byte};
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

int added_tokens_add(struct added_tokens *a, const char *text, size_t size, const struct added_token *token, struct err *e)
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
    a->tokens[a->n_tokens++] = *token;
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
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool test_before(const char *text, size_t at, bool (*is)(uint32_t), size_t *previous)
{
    if (at == 0)
        return false;
    *previous = utf8_previous(text, at);
    uint32_t c;
    return utf8_decode(text + *previous, at - *previous, &c) > 0 && is(c);
}

static bool test_behind(const char *text, size_t size, size_t at, bool (*is)(uint32_t), size_t *next)
{
    uint32_t c;
    int length = at < size ? utf8_decode(text + at, size - at, &c) : 0;
    *next = at + (size_t)(length > 0 ? length : 0);
    return length > 0 && is(c);
}

/* The longest token that starts at `at`, by its index + 1; 0 is none. */
static uint32_t longest_at(const struct added_tokens *a, const char *text, size_t size, size_t at, size_t *end)
{
    uint32_t best = 0, node = a->roots[(uint8_t)text[at]];
    for (size_t i = at + 1; node; i++) {
        if (a->nodes[node].token) {
            best = a->nodes[node].token;
            *end = i;
        }
        node = i < size ? child_of(a, a->nodes[node].child, (uint8_t)text[i]) : 0;
    }
    return best;
}

bool added_tokens_find(const struct added_tokens *a, const char *text, size_t size, size_t at, size_t *start, size_t *end,
                       uint32_t *id)
{
    size_t from = at, other, stop = 0;
    while (from < size) {
        uint32_t index = longest_at(a, text, size, from, &stop);
        if (!index) {
            from++;
            continue;
        }
        const struct added_token *t = &a->tokens[index - 1];
        if (t->single_word && (test_before(text, from, is_word, &other) || test_behind(text, size, stop, is_word, &other))) {
            from = stop;
            continue;
        }
        while (t->lstrip && from > at && test_before(text, from, is_space, &other) && other >= at)
            from = other;
        while (t->rstrip && test_behind(text, size, stop, is_space, &other))
            stop = other;
        *start = from;
        *end = stop;
        *id = t->id;
        return true;
    }
    return false;
}
