#include "agent/engine/grammar_shelf.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/vector.h"
#include "model/grammar/automaton.h"
#include "model/model.h"

struct shelved_grammar {
    struct digest name; /* of its bytes */
    struct automaton *automaton;
};

struct grammar_shelf {
    char *path;
    uint32_t vocabulary;
    struct token_tree *tree; /* what the maker leaves, and why it is not there */
    int status;
    struct err error;
    pthread_t maker;
    bool has_maker;             /* a thread that is to be joined */
    atomic_bool made, unwanted; /* it is done; nobody wants the tree any more */
    void (*tell)(void *ctx);    /* who is told that it is done; NULL: nobody */
    void *tell_ctx;
    struct shelved_grammar *list; /* the last is the one that was asked for last */
    size_t n_list, list_room;
};

/* ---- the tree ---- */

/* The tokenizer is needed for as long as its texts are read. */
static int tree_make(struct grammar_shelf *s, struct err *e)
{
    struct model *m = NULL;
    const struct tokenizer *t;
    int rc = model_open_text(s->path, &m, e);
    if (rc == 0 && !atomic_load(&s->unwanted))
        rc = model_tokenizer(m, &t, e);
    if (rc == 0 && !atomic_load(&s->unwanted))
        rc = token_tree_of_tokenizer(t, s->vocabulary, &s->tree, e);
    if (m)
        model_close(&m);
    if (rc < 0) /* clients read it, whom no folder here concerns */
        err_rename(e, s->path, "the model's file");
    return rc;
}

static void *maker_thread(void *ctx)
{
    struct grammar_shelf *s = ctx;
    pthread_setname_np(pthread_self(), "hp-tokens");
    s->status = tree_make(s, &s->error);
    atomic_store(&s->made, true);
    if (s->tell)
        s->tell(s->tell_ctx);
    return NULL;
}

static void tree_begin(struct grammar_shelf *s)
{
    atomic_store(&s->made, false);
    s->error = (struct err){0};
    s->has_maker = pthread_create(&s->maker, NULL, maker_thread, s) == 0;
}

static void tree_wait(struct grammar_shelf *s)
{
    if (s->has_maker)
        pthread_join(s->maker, NULL);
    else if (!s->tree)
        maker_thread(s);
    s->has_maker = false;
}

int grammar_shelf_tree(struct grammar_shelf *s, const struct token_tree **out, struct err *e)
{
    if (!s->path)
        return err_set(e, HP_EUNSUPPORTED,
                       "this stage's model has no file with a tokenizer, so its tokens can neither "
                       "be held to a grammar nor their texts compared (infill)");
    tree_wait(s);
    int rc = s->status < 0 ? err_set(e, s->status, "%s", s->error.text) : 0;
    if (rc < 0) /* it may pass: it is tried again behind this */
        tree_begin(s);
    else
        *out = s->tree;
    return rc;
}

bool grammar_shelf_ready(struct grammar_shelf *s)
{
    return !s->has_maker || atomic_load(&s->made);
}

struct grammar_shelf *grammar_shelf_create(const char *path, uint32_t vocabulary,
                                           void (*made)(void *ctx), void *ctx)
{
    struct grammar_shelf *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->vocabulary = vocabulary;
    s->tell = made;
    s->tell_ctx = ctx;
    s->path = path ? strdup(path) : NULL;
    if (path && !s->path) {
        free(s);
        return NULL;
    }
    if (path)
        tree_begin(s);
    return s;
}

void grammar_shelf_destroy(struct grammar_shelf **self)
{
    struct grammar_shelf *s = *self;
    *self = NULL;
    if (!s)
        return;
    atomic_store(&s->unwanted, true);
    if (s->has_maker)
        pthread_join(s->maker, NULL);
    for (size_t i = 0; i < s->n_list; i++)
        automaton_destroy(&s->list[i].automaton);
    token_tree_destroy(&s->tree);
    free(s->list);
    free(s->path);
    free(s);
}

/* ---- automata ---- */

/* Automata that nobody uses go, least recent first, until at most `most` bytes of them are left;
 * gives the bytes of all. */
static size_t idle_drop(struct grammar_shelf *s, size_t most)
{
    size_t idle = 0, used = 0;
    for (size_t i = s->n_list; i-- > 0;) {
        size_t bytes = automaton_bytes(s->list[i].automaton);
        if (!automaton_idle(s->list[i].automaton)) {
            used += bytes;
        } else if (idle + bytes > most) {
            automaton_destroy(&s->list[i].automaton);
            vector_remove(s->list, s->n_list, i);
        } else {
            idle += bytes;
        }
    }
    return used + idle;
}

static int automaton_make(struct grammar_shelf *s, struct pack_span grammar,
                          const struct digest *name, struct err *e)
{
    struct shelved_grammar made = {.name = *name};
    struct grammar *g = NULL;
    size_t bytes = idle_drop(s, GRAMMAR_SHELF_IDLE_BYTES);
    if (bytes > GRAMMAR_SHELF_BYTES || s->n_list >= GRAMMAR_SHELF_MOST)
        bytes = idle_drop(s, 0);
    if (bytes > GRAMMAR_SHELF_BYTES || s->n_list >= GRAMMAR_SHELF_MOST)
        return err_set(e, HP_EBUSY, "%zu grammars with %zu MB are in use here; try again later",
                       s->n_list, bytes / 1000000);
    const struct token_tree *tree;
    int rc = grammar_shelf_tree(s, &tree, e);
    rc = rc < 0 ? rc : grammar_read(grammar.data, grammar.size, &g, e);
    rc = rc < 0 ? rc : automaton_create(&g, tree, &made.automaton, e);
    if (rc == 0 && !vector_push(s->list, s->n_list, s->list_room, made)) {
        automaton_destroy(&made.automaton);
        rc = err_no_memory(e, "a grammar");
    }
    return rc;
}

int grammar_shelf_find(struct grammar_shelf *s, struct pack_span grammar, struct automaton **out,
                       struct err *e)
{
    struct digest name = digest_of(grammar.data, grammar.size);

    size_t i = 0;
    while (i < s->n_list && memcmp(&s->list[i].name, &name, sizeof name) != 0)
        i++;
    if (i < s->n_list) {
        struct shelved_grammar found = s->list[i];
        vector_remove(s->list, s->n_list, i);
        s->list[s->n_list++] = found;
    } else {
        int rc = automaton_make(s, grammar, &name, e);
        if (rc < 0)
            return rc;
    }
    *out = s->list[s->n_list - 1].automaton;
    for (size_t k = 0; k < s->n_list; k++) /* what grows behind their making has its bound, too */
        automaton_keep(s->list[k].automaton, GRAMMAR_SHELF_BYTES / 2 / s->n_list);
    return 0;
}
