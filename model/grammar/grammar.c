/* Owns the way from expressions to states and edges. An expression is put between two states; into
 * the first nothing leads but where it repeats, so that what stands beside it cannot be entered
 * through it. */
#include "model/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"
#include "model/grammar/grammar_int.h"

enum { DEEPEST = 1000 }; /* expressions in each other */

struct loose_edge {
    uint32_t from;
    struct grammar_edge edge;
};

struct emitter {
    struct loose_edge *edges;
    uint32_t n_edges, room, n_states;
    int depth, status;
    struct err *e;
};

static bool emitter_fail(struct emitter *m, int code, const char *text)
{
    if (m->status == 0)
        m->status = err_set(m->e, code, "%s", text);
    return false;
}

static uint32_t state_add(struct emitter *m)
{
    if (m->n_states >= GRAMMAR_MAX_STATES) {
        emitter_fail(m, HP_ELIMIT, "the grammar explodes: it has more than 131072 states");
        return 0;
    }
    return m->n_states++;
}

static bool edge_add(struct emitter *m, uint32_t from, struct grammar_edge edge)
{
    struct loose_edge l = {from, edge};
    if (m->status < 0)
        return false;
    if (m->n_edges >= GRAMMAR_MAX_EDGES)
        return emitter_fail(m, HP_ELIMIT, "the grammar explodes: it has more than 131072 edges");
    if (!vector_push(m->edges, m->n_edges, m->room, l))
        return emitter_fail(m, HP_ENOMEM, "no memory for a grammar");
    return true;
}

static bool edge_nothing(struct emitter *m, uint32_t from, uint32_t to)
{
    return edge_add(m, from, (struct grammar_edge){.to = to, .kind = GRAMMAR_NOTHING});
}

static bool edge_bytes(struct emitter *m, uint32_t from, uint32_t to, unsigned low, unsigned high)
{
    return edge_add(
        m, from,
        (struct grammar_edge){
            .to = to, .kind = GRAMMAR_BYTES, .low = (uint8_t)low, .high = (uint8_t)high});
}

static bool text_emit(struct emitter *m, const char *text, size_t n, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t next = i + 1 == n ? to : state_add(m);
        if (!edge_bytes(m, from, next, (unsigned char)text[i], (unsigned char)text[i]))
            return false;
        from = next;
    }
    return n ? true : edge_nothing(m, from, to);
}

/* ---- characters ---- */

/* States before one, two and three bytes of any kind that continue a character; 0: not there yet.
 */
struct char_tails {
    uint32_t before[UTF8_MAX];
};

static uint32_t tail_state(struct emitter *m, struct char_tails *t, int left, uint32_t to)
{
    if (left == 0)
        return to;
    if (!t->before[left]) {
        uint32_t next = tail_state(m, t, left - 1, to);
        t->before[left] = state_add(m);
        edge_bytes(m, t->before[left], next, 0x80, 0xBF);
    }
    return t->before[left];
}

/* Characters of n bytes from `low` to `high` that differ in their last bytes alone, from byte `at`
 * on. */
static bool bytes_emit(struct emitter *m, struct char_tails *t, const uint8_t *low,
                       const uint8_t *high, int n, uint32_t from, uint32_t to)
{
    static const uint8_t least[] = {0x80, 0x80, 0x80}, most[] = {0xBF, 0xBF, 0xBF};
    uint8_t end[UTF8_MAX];
    bool from_least = memcmp(low + 1, least, (size_t)n - 1) == 0,
         to_most = memcmp(high + 1, most, (size_t)n - 1) == 0;
    if (n == 1)
        return edge_bytes(m, from, to, low[0], high[0]);
    if (from_least && to_most)
        return edge_bytes(m, from, tail_state(m, t, n - 1, to), low[0], high[0]);
    if (low[0] == high[0]) {
        uint32_t next = state_add(m);
        return edge_bytes(m, from, next, low[0], low[0]) &&
               bytes_emit(m, t, low + 1, high + 1, n - 1, next, to);
    }
    if (!from_least) { /* the rest of the first lead byte, then all others */
        uint8_t next[UTF8_MAX] = {(uint8_t)(low[0] + 1), 0x80, 0x80, 0x80};
        end[0] = low[0];
        memcpy(end + 1, most, sizeof most);
        return bytes_emit(m, t, low, end, n, from, to) && bytes_emit(m, t, next, high, n, from, to);
    }
    uint8_t begin[UTF8_MAX] = {high[0], 0x80, 0x80, 0x80};
    end[0] = (uint8_t)(high[0] - 1);
    memcpy(end + 1, most, sizeof most);
    return bytes_emit(m, t, low, end, n, from, to) && bytes_emit(m, t, begin, high, n, from, to);
}

/* Halves of surrogate pairs are no characters, whatever a set says. */
static bool range_emit(struct emitter *m, struct char_tails *t, struct char_range r, uint32_t from,
                       uint32_t to)
{
    static const struct char_range alike[] = {/* in their number of bytes */
                                              {0, 0x7F},
                                              {0x80, 0x7FF},
                                              {0x800, 0xD7FF},
                                              {0xE000, 0xFFFF},
                                              {0x10000, CHAR_MAX_POINT}};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        char low[UTF8_MAX], high[UTF8_MAX];
        uint32_t first = r.low > alike[i].low ? r.low : alike[i].low,
                 last = r.high < alike[i].high ? r.high : alike[i].high;
        if (first > last)
            continue;
        size_t n = utf8_encode(first, low);
        utf8_encode(last, high);
        if (!bytes_emit(m, t, (const uint8_t *)low, (const uint8_t *)high, (int)n, from, to))
            return false;
    }
    return true;
}

/* Within a string of JSON some characters stand as escapes. */
static bool quoted_emit(struct emitter *m, struct char_tails *t, struct char_range r, uint32_t from,
                        uint32_t to)
{
    static const struct {
        uint32_t point;
        const char *text;
    } escapes[] = {{8, "\\b"},  {9, "\\t"},    {10, "\\n"},   {12, "\\f"},
                   {13, "\\r"}, {'"', "\\\""}, {'\\', "\\\\"}};
    static const struct char_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, CHAR_MAX_POINT}};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (escapes[i].point >= r.low && escapes[i].point <= r.high &&
            !text_emit(m, escapes[i].text, 2, from, to))
            return false;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct char_range part = {r.low > plain[i].low ? r.low : plain[i].low,
                                  r.high < plain[i].high ? r.high : plain[i].high};
        if (part.low <= part.high && !range_emit(m, t, part, from, to))
            return false;
    }
    return true;
}

static bool chars_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to)
{
    struct char_tails t = {{0}};
    for (size_t i = 0; i < x->count; i++)
        if (!(x->quoted ? quoted_emit(m, &t, x->ranges[i], from, to)
                        : range_emit(m, &t, x->ranges[i], from, to)))
            return false;
    return true;
}

/* ---- the others ---- */

static bool part_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to);

static bool sequence_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < x->count; i++) {
        uint32_t next = i + 1 == x->count ? to : state_add(m);
        if (!part_emit(m, x->parts[i], from, next))
            return false;
        from = next;
    }
    return x->count ? true : edge_nothing(m, from, to);
}

static bool repeat_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to)
{
    for (int32_t i = 0; i < x->least; i++) {
        uint32_t next = state_add(m);
        if (!part_emit(m, x->parts[0], from, next))
            return false;
        from = next;
    }
    if (x->most == EXPRESSION_FOREVER) {
        uint32_t loop = state_add(m);
        return edge_nothing(m, from, loop) && part_emit(m, x->parts[0], loop, loop) &&
               edge_nothing(m, loop, to);
    }
    for (int32_t i = x->least; i < x->most; i++) {
        uint32_t next = state_add(m);
        if (!edge_nothing(m, from, to) || !part_emit(m, x->parts[0], from, next))
            return false;
        from = next;
    }
    return edge_nothing(m, from, to);
}

/* ---- one of many texts ---- */

enum { FEWEST_TEXTS = 4, DEEPEST_FORK = 200 };

static int texts_compare(const void *a, const void *b)
{
    const struct expression *x = *(const struct expression *const *)a,
                            *y = *(const struct expression *const *)b;
    int order = memcmp(x->text, y->text, x->count < y->count ? x->count : y->count);
    return order ? order : (x->count > y->count) - (x->count < y->count);
}

static size_t text_shared(const struct expression *a, const struct expression *b, size_t from)
{
    while (from < a->count && from < b->count && a->text[from] == b->text[from])
        from++;
    return from;
}

/* Sorted texts that share their first `at` bytes, so that they share states as far as they are
 * alike: a text that is one of thousands is at one place, not at a thousand. */
static bool texts_emit(struct emitter *m, const struct expression *const *texts, size_t n,
                       size_t at, int forks, uint32_t from, uint32_t to)
{
    for (size_t i = 0, end; i < n; i = end) {
        size_t shared = texts[i]->count;
        end = i + 1;
        if (shared == at) {
            if (!edge_nothing(m, from, to))
                return false;
            continue;
        }
        while (end < n && forks < DEEPEST_FORK && texts[end]->text[at] == texts[i]->text[at])
            end++;
        if (end > i + 1)
            shared = text_shared(texts[i], texts[end - 1], at);
        uint32_t next = end > i + 1 ? state_add(m) : to;
        if (!text_emit(m, texts[i]->text + at, shared - at, from, next) ||
            (next != to && !texts_emit(m, texts + i, end - i, shared, forks + 1, next, to)))
            return false;
    }
    return true;
}

static bool choice_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to)
{
    size_t n_texts = 0;
    while (n_texts < x->count && x->parts[n_texts]->kind == EXPRESSION_TEXT)
        n_texts++;
    if (n_texts < x->count || n_texts < FEWEST_TEXTS) {
        for (size_t i = 0; i < x->count; i++)
            if (!part_emit(m, x->parts[i], from, to))
                return false;
        return true;
    }
    const struct expression **sorted = calloc(n_texts, sizeof(const struct expression *));
    if (!sorted)
        return emitter_fail(m, HP_ENOMEM, "no memory for a grammar");
    memcpy(sorted, x->parts, n_texts * sizeof *sorted);
    qsort(sorted, n_texts, sizeof *sorted, texts_compare);
    bool ok = texts_emit(m, sorted, n_texts, 0, 0, from, to);
    free(sorted);
    return ok;
}

static bool kind_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to)
{
    switch (x->kind) {
    case EXPRESSION_TEXT: return text_emit(m, x->text, x->count, from, to);
    case EXPRESSION_CHARS: return chars_emit(m, x, from, to);
    case EXPRESSION_SEQUENCE: return sequence_emit(m, x, from, to);
    case EXPRESSION_REPEAT: return repeat_emit(m, x, from, to);
    case EXPRESSION_CHOICE: return choice_emit(m, x, from, to);
    case EXPRESSION_RULE: break;
    }
    return edge_add(m, from,
                    (struct grammar_edge){.to = to, .kind = GRAMMAR_CALL, .rule = x->rule});
}

static bool part_emit(struct emitter *m, const struct expression *x, uint32_t from, uint32_t to)
{
    if (m->status < 0)
        return false;
    if (++m->depth > DEEPEST)
        return emitter_fail(m, HP_ELIMIT, "the grammar is nested too deeply");
    bool ok = kind_emit(m, x, from, to);
    m->depth--;
    return ok;
}

/* ---- all of it ---- */

static int rules_emit(struct emitter *m, const struct expressions *x, uint32_t *starts,
                      uint32_t *ends)
{
    for (size_t i = 0; i < x->n_rules && m->status == 0; i++) {
        if (!x->rules[i].body)
            return err_set(m->e, HP_EINVAL, "the grammar has no rule \"%s\"", x->rules[i].name);
        starts[i] = state_add(m);
        ends[i] = state_add(m);
        part_emit(m, x->rules[i].body, starts[i], ends[i]);
    }
    return m->status;
}

/* Edges by state, in the order in which they came. */
static void edges_sort(struct grammar *g, const struct emitter *m)
{
    for (uint32_t i = 0; i < m->n_edges; i++)
        g->first[m->edges[i].from + 1]++;
    for (uint32_t i = 0; i < g->n_states; i++)
        g->first[i + 1] += g->first[i];
    for (uint32_t i = m->n_edges; i-- > 0;)
        g->edges[--g->first[m->edges[i].from + 1]] = m->edges[i].edge;
    memmove(g->first, g->first + 1, g->n_states * sizeof *g->first);
    g->first[g->n_states] = g->n_edges;
}

/* Bytes side by side that lead to one state become one edge. */
static void edges_join(struct grammar *g)
{
    uint32_t kept = 0;
    for (uint32_t state = 0, i = 0; state < g->n_states; state++) {
        uint32_t end = g->first[state + 1], begin = kept;
        g->first[state] = kept;
        for (; i < end; i++) {
            struct grammar_edge edge = g->edges[i],
                                *last = kept > begin ? &g->edges[kept - 1] : NULL;
            if (last && last->kind == GRAMMAR_BYTES && edge.kind == GRAMMAR_BYTES &&
                last->to == edge.to && last->high + 1 == edge.low)
                last->high = edge.high;
            else
                g->edges[kept++] = edge;
        }
    }
    g->n_edges = g->first[g->n_states] = kept;
}

int grammar_make(const struct expressions *x, struct grammar **out, struct err *e)
{
    struct emitter m = {.e = e};
    struct grammar *g = NULL;
    size_t n = x->n_rules;
    if (x->status < 0)
        return err_set(e, x->status, "%s", x->error.text);
    if (!n)
        return err_set(e, HP_EINVAL, "the grammar has no rules");
    uint32_t *starts = calloc(2 * n, sizeof *starts), *ends = starts ? starts + n : NULL;
    int rc = starts ? rules_emit(&m, x, starts, ends) : err_no_memory(e, "a grammar");
    rc = rc < 0 ? rc : grammar_allocate(m.n_states, m.n_edges, (uint32_t)n, &g, e);
    if (rc == 0) {
        memcpy(g->starts, starts, n * sizeof *starts);
        for (size_t i = 0; i < n; i++)
            g->ends[ends[i]] = 1;
        edges_sort(g, &m);
        edges_join(g);
        rc = grammar_check(g, x->rules, e);
    }
    free(starts);
    free(m.edges);
    if (rc < 0) {
        grammar_destroy(&g);
        return rc;
    }
    *out = g;
    return 0;
}
