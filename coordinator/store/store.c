/* The face of every store, and the one in memory. */
#include "coordinator/store/store.h"

#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

void store_close(struct store **s)
{
    if (!*s)
        return;
    (*s)->api->close(*s);
    *s = NULL;
}

int store_apply(struct store *s, const struct store_change *changes, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        size_t length = strlen(changes[i].key);
        if (length == 0 || length > STORE_MAX_KEY_BYTES)
            return err_set(e, HP_EINVAL, "a key of %zu bytes cannot be stored (1 to %d)", length,
                           STORE_MAX_KEY_BYTES);
    }
    return s->api->apply(s, changes, n, e);
}

int store_each(struct store *s, const char *kind, store_each_fn each, void *ctx, struct err *e)
{
    return s->api->each(s, kind, each, ctx, e);
}

/* ---- in memory ---- */

struct memory_record {
    char *kind, *key;
    void *bytes;
    size_t size;
};

struct memory_store {
    struct store base;
    struct memory_record *records; /* by (kind, key) */
    size_t count, capacity;
};

static void memory_record_free(struct memory_record *r)
{
    free(r->kind);
    free(r->key);
    free(r->bytes);
}

static void memory_close(struct store *s)
{
    struct memory_store *m = (struct memory_store *)s;
    for (size_t i = 0; i < m->count; i++)
        memory_record_free(&m->records[i]);
    free(m->records);
    free(m);
}

/* Where the record is, or where it would be inserted. */
static size_t memory_find(const struct memory_store *m, const char *kind, const char *key,
                          int *found)
{
    size_t i = 0;
    *found = 0;
    for (; i < m->count; i++) {
        int order = strcmp(m->records[i].kind, kind);
        if (order == 0)
            order = strcmp(m->records[i].key, key);
        if (order >= 0) {
            *found = order == 0;
            break;
        }
    }
    return i;
}

static void memory_remove(struct memory_store *m, size_t at)
{
    memory_record_free(&m->records[at]);
    memmove(m->records + at, m->records + at + 1, (m->count - at - 1) * sizeof *m->records);
    m->count--;
}

static int memory_apply_one(struct memory_store *m, const struct store_change *c, struct err *e)
{
    int found;
    size_t at = memory_find(m, c->kind, c->key, &found);
    if (found)
        memory_remove(m, at);
    if (!c->bytes)
        return 0;
    if (!vector_reserve(m->records, m->capacity, m->count + 1))
        return err_no_memory(e, "the store");
    struct memory_record r = {strdup(c->kind), strdup(c->key), malloc(c->size + 1), c->size};
    if (!r.kind || !r.key || !r.bytes) {
        memory_record_free(&r);
        return err_set(e, HP_ENOMEM, "no memory for the store");
    }
    memcpy(r.bytes, c->bytes, c->size);
    memmove(m->records + at + 1, m->records + at, (m->count - at) * sizeof *m->records);
    m->records[at] = r;
    m->count++;
    return 0;
}

static int memory_apply(struct store *s, const struct store_change *changes, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        int rc = memory_apply_one((struct memory_store *)s, &changes[i], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int memory_each(struct store *s, const char *kind, store_each_fn each, void *ctx,
                       struct err *e)
{
    struct memory_store *m = (struct memory_store *)s;
    for (size_t i = 0; i < m->count; i++) {
        if (strcmp(m->records[i].kind, kind) != 0)
            continue;
        int rc = each(ctx, m->records[i].key, m->records[i].bytes, m->records[i].size, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int store_open_memory(struct store **out, struct err *e)
{
    static const struct store_api api = {memory_close, memory_apply, memory_each};
    struct memory_store *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "no memory for the store");
    m->base.api = &api;
    *out = &m->base;
    return 0;
}
