#include "model/grammar/automaton.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "model/grammar/automaton_int.h"

enum { MOST_SHORTEST = 1 << 16 }; /* bytes of a shortest text whose tokens are counted */

struct matcher {
    struct automaton *automaton;
    struct matcher *next, **self; /* in the automaton's list */
    uint32_t at;                  /* configuration */
    uint64_t left;                /* tokens that may still come */
    uint64_t effort;              /* that it may still cost (MATCHER_EFFORT) */
    bool ended;
    bool looked_ahead; /* since the last token */
    uint32_t *ends;
    size_t n_ends;
    uint64_t *words;
    int status;
    struct err error;
};

/* ---- automata ---- */

/* A text that is printed without its first space may begin with one. */
static void lead_add(struct automaton *a)
{
    struct grammar *g = a->grammar;
    a->lead = GRAMMAR_NEVER;
    if (!a->tree->drops_first_space)
        return;
    a->lead = g->n_states++;
    g->edges[g->n_edges++] =
        (struct grammar_edge){.to = g->starts[0], .kind = GRAMMAR_BYTES, .low = ' ', .high = ' '};
    g->first[g->n_states] = g->n_edges;
    g->least[a->lead] = g->least[g->starts[0]] + 1;
}

int automaton_create(struct grammar **g, const struct token_tree *tree, struct automaton **out,
                     struct err *e)
{
    struct automaton *a = calloc(1, sizeof *a);
    if (!a) {
        grammar_destroy(g);
        return err_no_memory(e, "a grammar's automaton");
    }
    a->grammar = *g;
    *g = NULL;
    a->tree = tree;
    a->n_words = token_sets_words(tree->vocabulary);
    a->kept_bytes = AUTOMATON_KEPT_BYTES;
    lead_add(a);
    int rc = configurations_init(&a->c, a->grammar, e);
    if (rc < 0) {
        grammar_destroy(&a->grammar);
        free(a);
        return rc;
    }
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return 0;
}

void automaton_destroy(struct automaton **self)
{
    struct automaton *a = *self;
    *self = NULL;
    if (!a)
        return;
    assert(!a->matchers);
    for (uint32_t i = 0; i < a->n_slots; i++) {
        free(a->slots[i].words);
        free(a->slots[i].exits);
    }
    free(a->slots);
    free(a->ahead[0]);
    free(a->ahead[1]);
    free(a->text);
    configurations_fini(&a->c);
    grammar_destroy(&a->grammar);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

bool automaton_idle(struct automaton *a)
{
    pthread_mutex_lock(&a->lock);
    bool idle = !a->matchers;
    pthread_mutex_unlock(&a->lock);
    return idle;
}

void automaton_keep(struct automaton *a, size_t bytes)
{
    size_t least = bytes < AUTOMATON_LEAST_BYTES ? AUTOMATON_LEAST_BYTES : bytes;
    pthread_mutex_lock(&a->lock);
    a->kept_bytes = least < AUTOMATON_KEPT_BYTES ? least : AUTOMATON_KEPT_BYTES;
    pthread_mutex_unlock(&a->lock);
}

size_t automaton_bytes(struct automaton *a)
{
    pthread_mutex_lock(&a->lock);
    size_t bytes = configurations_bytes(&a->c) + a->n_slots * a->n_words * sizeof(uint64_t) +
                   a->grammar->n_edges * sizeof *a->grammar->edges +
                   a->grammar->n_states * (2 * sizeof(uint32_t) + 3) +
                   state_chars_bytes(&a->c.chars) + a->text_room +
                   (a->ahead_room[0] + (size_t)a->ahead_room[1]) * sizeof *a->ahead[0];
    for (uint32_t i = 0; i < a->n_slots; i++)
        bytes += a->slots[i].exit_room * sizeof *a->slots[i].exits;
    pthread_mutex_unlock(&a->lock);
    return bytes;
}

static void matcher_fail(struct matcher *m, int code, const char *text)
{
    if (m->status == 0)
        m->status = err_set(&m->error, code, "%s", text);
}

/* What went wrong while a set was made is told once. */
static void status_take(struct matcher *m)
{
    struct configurations *c = &m->automaton->c;
    if (c->status == HP_ELIMIT)
        matcher_fail(m, HP_ELIMIT,
                     "the grammar is too ambiguous: at one place it can be read in more than 8192 "
                     "ways, its states need more than 48 MiB, or they take too long to find");
    else if (c->status < 0)
        matcher_fail(m, c->status, "no memory for a grammar's states");
    c->status = 0;
}

/* ---- what it costs ---- */

/* A call of this matcher begins, and ends: what it finds is paid from what the matcher has. */
static void effort_begin(struct matcher *m)
{
    m->automaton->c.effort = 0;
    m->automaton->c.effort_most = m->effort;
}

static void effort_end(struct matcher *m)
{
    uint64_t spent = m->automaton->c.effort;
    m->effort -= spent < m->effort ? spent : m->effort;
}

/* ---- forgetting ---- */

/* What the matchers stand on: frames (number, back, below) from the bottom up, and places. */
struct saved_places {
    uint32_t *frames_made; /* [n_frames]: while they are saved, whether one is needed; then, where
                              it is now */
    struct buffer frames, places;
};

static void saved_free(struct saved_places *s)
{
    free(s->frames_made);
    buffer_free(&s->frames);
    buffer_free(&s->places);
}

static bool places_save(struct automaton *a, struct saved_places *s)
{
    struct configurations *c = &a->c;
    s->frames_made = calloc(c->n_frames, sizeof *s->frames_made);
    if (!s->frames_made)
        return false;
    for (const struct matcher *m = a->matchers; m; m = m->next) {
        const struct configuration *k = &c->list[m->at];
        buffer_append(&s->places, &k->count, sizeof k->count);
        if (k->count)
            buffer_append(&s->places, c->places + k->first, k->count * sizeof *c->places);
        for (uint32_t i = 0; i < k->count; i++)
            for (uint32_t f = (uint32_t)c->places[k->first + i]; !s->frames_made[f] && f;
                 f = c->frames[f].below)
                s->frames_made[f] = 1;
    }
    for (uint32_t f = 1; f < c->n_frames; f++) /* each stands on one before it */
        if (s->frames_made[f]) {
            uint32_t frame[3] = {f, c->frames[f].back, c->frames[f].below};
            buffer_append(&s->frames, frame, sizeof frame);
        }
    c->effort += c->n_frames + s->places.size / sizeof *c->places;
    return !s->frames.failed && !s->places.failed;
}

static void frames_load(struct configurations *c, struct saved_places *s)
{
    struct reader r = reader_of(s->frames.data, s->frames.size);
    s->frames_made[STACK_BOTTOM] = STACK_BOTTOM;
    while (r.at < r.size) {
        uint32_t number = reader_u32(&r), back = reader_u32(&r), below = reader_u32(&r);
        s->frames_made[number] = frame_find(c, back, s->frames_made[below]);
    }
}

/* The places that read, and the whole text: nothing follows from them that is not among them. */
static void places_load(struct automaton *a, struct saved_places *s)
{
    struct reader r = reader_of(s->places.data, s->places.size);
    frames_load(&a->c, s);
    for (struct matcher *m = a->matchers; m; m = m->next) {
        uint32_t n = reader_u32(&r);
        configuration_begin(&a->c);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t place = reader_u64(&r);
            configuration_add(&a->c, (uint32_t)(place >> 32), s->frames_made[(uint32_t)place]);
        }
        m->at = configuration_end(&a->c);
        if (a->c.status < 0)
            matcher_fail(m, HP_ENOMEM, "no memory for a grammar's states");
    }
}

/* To be called before something is found, never between. */
static void automaton_trim(struct automaton *a)
{
    struct saved_places saved = {0};
    if (configurations_bytes(&a->c) > a->kept_bytes && places_save(a, &saved)) {
        automaton_masks_forget(a);
        if (configurations_clear(&a->c))
            places_load(a, &saved);
        else
            for (struct matcher *m = a->matchers; m; m = m->next) {
                matcher_fail(m, HP_ENOMEM, "no memory for a grammar's states");
                m->at = CONFIGURATION_DEAD;
            }
    }
    saved_free(&saved);
}

/* ---- the shortest way ---- */

/* The shortest text from here, in a->text; its bytes. */
static size_t shortest_find(struct automaton *a, uint32_t at)
{
    size_t n = a->c.list[at].least;
    a->c.effort += n;
    if (!vector_reserve(a->text, a->text_room, n + 1)) {
        a->c.status = HP_ENOMEM;
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        int byte = configuration_next(&a->c, at);
        if (byte < 0 || a->c.status < 0)
            return i;
        a->text[i] = (char)byte;
        at = configuration_step(&a->c, at, (uint8_t)byte);
    }
    return n;
}

/* Tokens of the shortest text, no further than `most`; UINT64_MAX: more, or a byte has no token. */
static uint64_t tokens_count(struct automaton *a, uint32_t at, uint64_t most)
{
    uint64_t n = 0;
    if (a->c.list[at].least / TOKEN_TREE_DEEPEST > most || a->c.list[at].least > MOST_SHORTEST)
        return UINT64_MAX;
    size_t size = shortest_find(a, at), used = 0;
    for (size_t i = 0; i < size; i += used, n++)
        if (n > most || token_tree_longest(a->tree, a->text + i, size - i, &used) == TOKEN_NONE)
            return UINT64_MAX;
    return n;
}

/* Whether a text can be whole within so many tokens, the one that ends it among them. */
static bool text_fits(struct automaton *a, uint32_t at, uint64_t left)
{
    if (at == CONFIGURATION_DEAD || !left)
        return false;
    return a->c.list[at].least < left || tokens_count(a, at, left) < left;
}

/* ---- matchers ---- */

static uint32_t text_start(struct automaton *a)
{
    configuration_begin(&a->c);
    configuration_add(&a->c, a->grammar->starts[0], STACK_BOTTOM);
    if (a->lead != GRAMMAR_NEVER)
        configuration_add(&a->c, a->lead, STACK_BOTTOM);
    return configuration_end(&a->c);
}

static void matcher_link(struct matcher *m)
{
    struct automaton *a = m->automaton;
    m->next = a->matchers;
    m->self = &a->matchers;
    if (m->next)
        m->next->self = &m->next;
    a->matchers = m;
}

static void matcher_begin(struct matcher *m)
{
    struct automaton *a = m->automaton;
    effort_begin(m);
    automaton_trim(a);
    m->at = text_start(a);
    status_take(m);
    uint32_t least = a->c.list[m->at].least;
    if (m->status == 0 && !text_fits(a, m->at, m->left) && least > MOST_SHORTEST) {
        m->status = err_set(&m->error, HP_EINVAL,
                            "max_tokens: %llu are too few; the shortest text that the grammar "
                            "allows has %u bytes",
                            (unsigned long long)m->left, least);
    } else if (m->status == 0 && !text_fits(a, m->at, m->left)) {
        uint64_t n = tokens_count(a, m->at, UINT64_MAX - 1);
        if (a->c.status == 0 && n == UINT64_MAX)
            m->status = err_set(&m->error, HP_EINVAL,
                                "the model's vocabulary lacks tokens for the shortest text that "
                                "the grammar allows");
        else if (a->c.status == 0)
            m->status = err_set(&m->error, HP_EINVAL,
                                "max_tokens: %llu are too few; the shortest text that the grammar "
                                "allows has %llu tokens, with the one that ends it",
                                (unsigned long long)m->left, (unsigned long long)n + 1);
    }
    status_take(m);
    effort_end(m);
}

int matcher_create(struct automaton *a, uint64_t most_tokens, const uint32_t *ends, size_t n_ends,
                   struct matcher **out, struct err *e)
{
    struct matcher *m = calloc(1, sizeof *m);
    if (m) {
        m->words = calloc(a->n_words, sizeof *m->words);
        m->ends = calloc(n_ends + 1, sizeof *m->ends);
    }
    if (!m || !m->words || !m->ends) {
        if (m) {
            free(m->words);
            free(m->ends);
        }
        free(m);
        return err_no_memory(e, "a grammar's way through %u tokens", a->tree->vocabulary);
    }
    m->automaton = a;
    m->left = most_tokens;
    m->effort = MATCHER_EFFORT;
    for (size_t i = 0; i < n_ends; i++)
        if (ends[i] < a->tree->vocabulary)
            m->ends[m->n_ends++] = ends[i];
    pthread_mutex_lock(&a->lock);
    matcher_link(m);
    matcher_begin(m);
    pthread_mutex_unlock(&a->lock);
    if (m->n_ends == 0)
        matcher_fail(m, HP_EINVAL, "no token ends a text that is held to a grammar");
    int rc = matcher_error(m, e);
    if (rc < 0)
        matcher_destroy(&m);
    else
        *out = m;
    return rc;
}

void matcher_destroy(struct matcher **self)
{
    struct matcher *m = *self;
    *self = NULL;
    if (!m)
        return;
    pthread_mutex_lock(&m->automaton->lock);
    *m->self = m->next;
    if (m->next)
        m->next->self = m->self;
    pthread_mutex_unlock(&m->automaton->lock);
    free(m->words);
    free(m->ends);
    free(m);
}

static void ends_set(struct matcher *m, bool allowed)
{
    for (size_t i = 0; i < m->n_ends; i++) {
        uint64_t bit = UINT64_C(1) << m->ends[i] % 64;
        if (allowed)
            m->words[m->ends[i] / 64] |= bit;
        else
            m->words[m->ends[i] / 64] &= ~bit;
    }
}

bool matcher_lacks(struct matcher *m)
{
    if (m->ended || m->status < 0)
        return false;
    pthread_mutex_lock(&m->automaton->lock);
    bool lacks = m->automaton->c.list[m->at].mask == MASK_NONE;
    pthread_mutex_unlock(&m->automaton->lock);
    return lacks;
}

bool matcher_look_ahead(struct matcher *m)
{
    struct automaton *a = m->automaton;
    if (m->looked_ahead || m->ended || m->status < 0)
        return false;
    m->looked_ahead = true;
    pthread_mutex_lock(&a->lock);
    bool missing = a->c.list[m->at].mask == MASK_NONE;
    if (missing) {
        effort_begin(m);
        automaton_trim(a);
        if (m->status == 0)
            automaton_mask(a, m->at);
        status_take(m);
        effort_end(m);
    }
    pthread_mutex_unlock(&a->lock);
    return missing;
}

const uint64_t *matcher_mask(struct matcher *m)
{
    struct automaton *a = m->automaton;
    size_t bytes = a->n_words * sizeof *m->words;
    if (m->status < 0)
        return NULL;
    pthread_mutex_lock(&a->lock);
    effort_begin(m);
    automaton_trim(a);
    const uint64_t *words = m->ended || m->status < 0 ? NULL : automaton_mask(a, m->at);
    status_take(m);
    effort_end(m);
    if (words)
        memcpy(m->words, words, bytes);
    else
        memset(m->words, 0, bytes);
    if (m->status == 0)
        ends_set(m, m->ended || a->c.list[m->at].whole);
    pthread_mutex_unlock(&a->lock);
    return m->status < 0 ? NULL : m->words;
}

static bool token_ends(const struct matcher *m, uint32_t token)
{
    for (size_t i = 0; i < m->n_ends; i++)
        if (m->ends[i] == token)
            return true;
    return false;
}

/* Behind a token's bytes. */
static uint32_t token_step(struct automaton *a, uint32_t at, uint32_t token)
{
    const struct token_tree *t = a->tree;
    if (token >= t->vocabulary || t->offsets[token] == t->offsets[token + 1])
        return CONFIGURATION_DEAD;
    for (uint32_t i = t->offsets[token]; i < t->offsets[token + 1]; i++)
        at = at == CONFIGURATION_DEAD ? at : configuration_step(&a->c, at, (uint8_t)t->bytes[i]);
    return at;
}

bool matcher_fits(struct matcher *m, uint32_t token)
{
    struct automaton *a = m->automaton;
    if (m->status < 0 || m->ended || token_ends(m, token))
        return true;
    pthread_mutex_lock(&a->lock);
    effort_begin(m);
    bool fits = m->left && text_fits(a, token_step(a, m->at, token), m->left - 1);
    status_take(m);
    effort_end(m);
    pthread_mutex_unlock(&a->lock);
    return fits;
}

uint32_t matcher_shortest(struct matcher *m)
{
    struct automaton *a = m->automaton;
    uint32_t token = TOKEN_NONE;
    size_t used;
    if (m->status < 0)
        return TOKEN_NONE;
    pthread_mutex_lock(&a->lock);
    effort_begin(m);
    if (m->ended || a->c.list[m->at].least == 0) {
        token = m->ends[0];
    } else {
        size_t n = shortest_find(a, m->at);
        token = token_tree_longest(a->tree, a->text, n, &used);
    }
    status_take(m);
    effort_end(m);
    if (m->status == 0 && token == TOKEN_NONE)
        matcher_fail(m, HP_EINVAL, "no token of the model's vocabulary goes on with the grammar");
    pthread_mutex_unlock(&a->lock);
    return m->status < 0 ? TOKEN_NONE : token;
}

void matcher_accept(struct matcher *m, uint32_t token)
{
    struct automaton *a = m->automaton;
    if (m->status < 0 || m->ended)
        return;
    m->looked_ahead = false;
    pthread_mutex_lock(&a->lock);
    m->effort += MATCHER_TOKEN_EFFORT;
    m->effort = m->effort < MATCHER_EFFORT ? m->effort : MATCHER_EFFORT;
    effort_begin(m);
    automaton_trim(a);
    if (token_ends(m, token) && a->c.list[m->at].whole) {
        m->ended = true;
    } else {
        m->at = token_step(a, m->at, token);
        status_take(m);
        if (m->at == CONFIGURATION_DEAD)
            matcher_fail(m, HP_EINVAL, "a token came that the grammar does not allow");
    }
    m->left -= m->left > 0;
    effort_end(m);
    pthread_mutex_unlock(&a->lock);
}

bool matcher_whole(struct matcher *m)
{
    pthread_mutex_lock(&m->automaton->lock);
    bool whole = m->ended || (m->status == 0 && m->automaton->c.list[m->at].whole);
    pthread_mutex_unlock(&m->automaton->lock);
    return whole;
}

int matcher_error(const struct matcher *m, struct err *e)
{
    return m->status < 0 ? err_set(e, m->status, "%s", m->error.text) : 0;
}
