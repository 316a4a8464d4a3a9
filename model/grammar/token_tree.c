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

/* ---- nodes ---- */

/* What a text is made of up to some byte. */
struct text_reading {
    struct char_count all, rest; /* rest: behind the first character */
};

static struct text_reading text_read(struct text_reading r, uint8_t byte)
{
    if (r.all.n > 1 || (r.all.n == 1 && !r.all.inside))
        r.rest = char_count_next(r.rest, byte);
    r.all = char_count_next(r.all, byte);
    r.rest.none |= r.all.none;
    return r;
}

static struct token_text_kinds text_kinds(const char *bytes, uint32_t size)
{
    struct text_reading r = {0};
    for (uint32_t i = 0; i < size; i++)
        r = text_read(r, (uint8_t)bytes[i]);
    return (struct token_text_kinds){text_summary(r.rest),
                                     size ? char_kind_begun((uint8_t)bytes[0]) : -1};
}

/* Of nodes that lie side by side: what tokens have behind their first characters, and what they
 * have from these nodes on. */
struct text_sums {
    uint64_t rest, from;
};

struct tree_maker {
    struct token_tree *t;
    const struct named_token *list; /* sorted */
};

/* Nodes of sorted tokens [from, to) that share their first `depth` bytes and have more. */
static struct token_nodes siblings_add(struct token_tree *t, const struct named_token *list,
                                       uint32_t from, uint32_t to, uint32_t depth)
{
    struct token_nodes made = {t->n_nodes, 0};
    for (uint32_t i = from; i < to; i++) {
        uint8_t byte = (uint8_t)list[i].bytes[depth];
        if (i == from || byte != t->nodes[t->n_nodes - 1].byte)
            t->nodes[t->n_nodes++] = (struct token_node){.byte = byte, .first = i};
        struct token_node *node = &t->nodes[t->n_nodes - 1];
        if (list[i].size == depth + 1 && node->own < 2)
            node->own++;
        node->behind = i + 1;
    }
    made.n = t->n_nodes - made.first;
    return made;
}

/* A text from a byte on; `behind`: what follows the character that the byte belongs to. */
static uint64_t text_from(struct text_reading before, uint8_t byte, uint64_t behind)
{
    struct char_count own = {.inside = before.all.inside, .rest = before.all.rest};
    if (!own.inside)
        return text_summary_behind(char_kind_begun(byte), behind);
    return char_count_next(own, byte).none ? TEXT_SUMMARY_OF_NO_KIND : behind;
}

/* Nodes and all that lies below them, whose tokens share `depth` bytes. */
static struct text_sums nodes_fill(struct tree_maker *m, struct token_nodes nodes, uint32_t depth,
                                   struct text_reading before)
{
    struct text_sums sums = {0};
    for (uint32_t i = nodes.first; i < nodes.first + nodes.n; i++) {
        struct token_node *node = &m->t->nodes[i];
        struct text_reading at = text_read(before, node->byte);
        uint32_t own_end = node->first;
        while (own_end < node->behind && m->list[own_end].size == depth + 1)
            own_end++;
        struct token_nodes below = siblings_add(m->t, m->list, own_end, node->behind, depth + 1);
        bool space = depth == 0 && node->byte == ' '; /* texts begin behind it once more */
        struct text_sums under =
            nodes_fill(m, below, depth + 1, space ? (struct text_reading){0} : at);
        node->children = below.first;
        node->n_children = (uint16_t)below.n;
        if (own_end > node->first)
            under.rest = text_summary_join(under.rest, text_summary(at.rest));
        node->below = at.all.inside ? TEXT_SUMMARY_OF_NO_KIND : under.from;
        node->rest = space ? under.from : under.rest;
        sums.rest = text_summary_join(sums.rest, under.rest);
        sums.from = text_summary_join(sums.from, text_from(before, node->byte, under.from));
    }
    return sums;
}

/* ---- tokens ---- */

/* Whether a token stands apart from those of which most of a string is made. */
static bool token_apart(const struct token_text_kinds *text)
{
    uint64_t kinds = text_summary_kinds(text->rest) |
                     (text->first < 0 ? CHAR_KINDS_ALL : UINT64_C(1) << text->first);
    return text_summary_chars(text->rest) > TOKEN_SETS_CHARS || kinds >> char_kind_of('"') & 1 ||
           kinds >> char_kind_of('\\') & 1;
}

/* `kinds`: what each token is made of. */
static uint32_t tokens_list(const struct token_text *texts, uint32_t n, struct named_token *list,
                            struct token_text_kinds *kinds, size_t *bytes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool keeps = texts[i].size && texts[i].size <= TOKEN_TREE_DEEPEST;
        kinds[i] = text_kinds(texts[i].bytes, keeps ? texts[i].size : 0);
        if (!keeps)
            continue;
        list[kept++] =
            (struct named_token){texts[i].bytes, texts[i].size, i, token_apart(&kinds[i])};
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

static size_t nodes_count(const struct named_token *list, uint32_t n)
{
    size_t nodes = n ? list[0].size : 0;
    for (uint32_t i = 1; i < n; i++)
        nodes += list[i].size - bytes_shared(&list[i - 1], &list[i]);
    return nodes;
}

/* In huge pages where it is large: a walk goes on at few nodes, so that nearly each lies on another
 * page. */
static struct token_node *nodes_allocate(size_t n)
{
    size_t bytes = (n + 1) * sizeof(struct token_node), page = HUGE_PAGE_BYTES;
    if (bytes < page)
        return aligned_alloc(sizeof(struct token_node), bytes);
    struct token_node *made = aligned_alloc(page, (bytes + page - 1) & ~(page - 1));
    if (made)
        madvise(made, bytes, MADV_HUGEPAGE);
    return made;
}

/* Tokens that begin with a space, by what is behind it, where there are many. `kinds` is written
 * over. */
static bool spaced_fill(struct token_tree *t, const struct named_token *list, uint32_t n,
                        struct token_text_kinds *kinds)
{
    t->space = t->roots[0].first;
    uint32_t end = t->space + t->roots[0].n;
    while (t->space < end && t->nodes[t->space].byte != ' ')
        t->space++;
    if (t->space == end || t->nodes[t->space].behind - t->nodes[t->space].first < TOKEN_SETS_MANY)
        return true;
    for (uint32_t i = 0; i < t->vocabulary; i++)
        kinds[i].first = -1;
    for (uint32_t i = 0; i < n; i++)
        if (list[i].bytes[0] == ' ')
            kinds[list[i].id] = text_kinds(list[i].bytes + 1, list[i].size - 1);
    t->spaced = token_sets_create(kinds, t->vocabulary);
    return t->spaced;
}

/* All that is kept of the tokens of a sorted list. */
static bool tree_fill(struct token_tree *t, const struct named_token *list, uint32_t n,
                      struct token_text_kinds *kinds)
{
    size_t nodes = nodes_count(list, n);
    struct tree_maker m = {t, list};
    t->nodes = nodes_allocate(nodes);
    t->sorted = calloc(n + 1u, sizeof *t->sorted);
    uint32_t apart = 0; /* the first that is */
    if (!t->nodes || !t->sorted)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        t->sorted[i] = list[i].id;
        apart += !list[i].apart;
    }
    t->roots[0] = siblings_add(t, list, 0, apart, 0);
    t->roots[1] = siblings_add(t, list, apart, n, 0);
    for (int i = 0; i < 2; i++)
        nodes_fill(&m, t->roots[i], 0, (struct text_reading){0});
    t->sets = token_sets_create(kinds, t->vocabulary);
    return t->sets && spaced_fill(t, list, n, kinds);
}

int token_tree_make(const struct token_text *texts, uint32_t vocabulary, struct token_tree **out,
                    struct err *e)
{
    struct token_tree *t = calloc(1, sizeof *t);
    struct named_token *list = calloc(vocabulary + 1u, sizeof *list);
    struct token_text_kinds *kinds = calloc(vocabulary + 1u, sizeof *kinds);
    size_t bytes = 0;
    uint32_t n = list && kinds ? tokens_list(texts, vocabulary, list, kinds, &bytes) : 0;
    if (list)
        qsort(list, n, sizeof *list, tokens_compare);
    if (t) {
        t->vocabulary = vocabulary;
        t->offsets = calloc(vocabulary + 1u, sizeof *t->offsets);
        t->bytes = calloc(bytes + 1, 1);
    }
    bool fine = t && list && kinds && t->offsets && t->bytes && tree_fill(t, list, n, kinds);
    free(list);
    free(kinds);
    if (!fine) {
        token_tree_destroy(&t);
        return err_no_memory(e, "the prefix tree of %u tokens", vocabulary);
    }
    bytes_keep(t, texts);
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
    free(t->offsets);
    free(t->bytes);
    token_sets_destroy(&t->sets);
    token_sets_destroy(&t->spaced);
    free(t);
}

/* Below one root. */
static uint32_t root_longest(const struct token_tree *t, struct token_nodes from, const char *bytes,
                             size_t n, size_t *used)
{
    uint32_t found = TOKEN_NONE;
    for (size_t i = 0; i < n && from.n; i++) {
        const struct token_node *node = &t->nodes[from.first], *end = node + from.n;
        while (node < end && node->byte != (uint8_t)bytes[i])
            node++;
        if (node == end)
            break;
        if (node->own) {
            found = t->sorted[node->first];
            *used = i + 1;
        }
        from = (struct token_nodes){node->children, node->n_children};
    }
    return found;
}

uint32_t token_tree_longest(const struct token_tree *t, const char *bytes, size_t n, size_t *used)
{
    uint32_t found[2];
    size_t size[2] = {0};
    for (int apart = 0; apart < 2; apart++)
        found[apart] = root_longest(t, t->roots[apart], bytes, n, &size[apart]);
    int longer = size[1] > size[0];
    *used = found[longer] == TOKEN_NONE ? *used : size[longer];
    return found[longer];
}
