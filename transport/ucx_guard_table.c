#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/vector.h"
#include "transport/ucx_guard_int.h"

void guard_tables_init(struct guard_tables *t)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
}

void guard_tables_fini(struct guard_tables *t)
{
    free(t->known);
    free(t->admitted);
    pthread_mutex_destroy(&t->lock);
}

/* ---- addresses that are known ---- */

static struct guard_known *known_slot(struct guard_tables *t, const struct guard_address *at)
{
    for (size_t i = 0; i < t->n_known; i++)
        if (guard_address_equal(&t->known[i].at, at))
            return &t->known[i];
    if (t->n_known == GUARD_MAX_KNOWN)
        return &t->known[t->known_next++ % GUARD_MAX_KNOWN];
    if (!vector_push(t->known, t->n_known, t->known_capacity,
                     (struct guard_known){.chosen = false}))
        return NULL;
    return &t->known[t->n_known - 1];
}

bool guard_known_set(struct guard_tables *t, const struct guard_known *k)
{
    pthread_mutex_lock(&t->lock);
    struct guard_known *slot = known_slot(t, &k->at);
    if (slot) {
        bool same = memcmp(slot->key, k->key, KEY_BYTES) == 0;
        bool chosen = k->chosen || (same && slot->chosen);
        *slot = *k;
        slot->chosen = chosen;
    }
    pthread_mutex_unlock(&t->lock);
    return slot != NULL;
}

static bool known_is_chosen(struct guard_tables *t, const uint8_t key[KEY_BYTES])
{
    bool chosen = false;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_known && !chosen; i++)
        chosen = t->known[i].chosen && memcmp(t->known[i].key, key, KEY_BYTES) == 0;
    pthread_mutex_unlock(&t->lock);
    return chosen;
}

bool guard_allows(void *guard, const uint8_t key[KEY_BYTES])
{
    struct ucx_guard *g = guard;
    return g->config.allowed(g->config.ctx, key) || known_is_chosen(&g->tables, key);
}

bool guard_known_find(struct guard_tables *t, const struct guard_address *at,
                      uint8_t key[KEY_BYTES])
{
    bool found = false;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_known && !found; i++)
        if ((found = guard_address_equal(&t->known[i].at, at)))
            memcpy(key, t->known[i].key, KEY_BYTES);
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* ---- connections that were let in ---- */

uint64_t guard_inode_of(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* Those that UCX has closed since. */
static void admitted_sweep(struct guard_tables *t)
{
    for (size_t i = 0; i < t->n_admitted;)
        if (guard_inode_of(t->admitted[i].fd) != t->admitted[i].inode)
            t->admitted[i] = t->admitted[--t->n_admitted];
        else
            i++;
}

bool guard_admitted_add(struct guard_tables *t, int fd, const uint8_t key[KEY_BYTES], bool watched)
{
    pthread_mutex_lock(&t->lock);
    if (t->n_admitted == t->admitted_capacity)
        admitted_sweep(t);
    struct guard_admitted a = {.fd = fd, .inode = guard_inode_of(fd), .watched = watched};
    memcpy(a.key, key, KEY_BYTES);
    bool room = t->n_admitted < GUARD_MAX_ADMITTED &&
                vector_push(t->admitted, t->n_admitted, t->admitted_capacity, a);
    pthread_mutex_unlock(&t->lock);
    return room;
}

/* UCX may close the descriptor meanwhile, and its number may be another's: a duplicate holds the
 * socket that is looked at. -1: it is gone. */
static int admitted_hold(const struct guard_admitted *a)
{
    int fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && guard_inode_of(fd) == a->inode)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void admitted_shut(const struct guard_admitted *a)
{
    int fd = admitted_hold(a);
    if (fd < 0)
        return;
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

void guard_admitted_count(struct guard_tables *t, ucx_guard_loss_fn add, void *ctx)
{
    pthread_mutex_lock(&t->lock);
    admitted_sweep(t);
    for (size_t i = 0; i < t->n_admitted; i++) {
        struct guard_admitted *a = &t->admitted[i];
        struct tcp_loss more;
        int fd = admitted_hold(a);
        if (fd < 0)
            continue;
        if (tcp_loss_read(fd, &a->sent, &more))
            add(ctx, a->key, more.segments, more.lost);
        close(fd);
    }
    pthread_mutex_unlock(&t->lock);
}

static void known_check(struct guard_tables *t, bool (*allowed)(void *, const uint8_t *), void *ctx)
{
    for (size_t i = 0; i < t->n_known;)
        if (t->known[i].watched && !allowed(ctx, t->known[i].key))
            t->known[i] = t->known[--t->n_known];
        else
            i++;
}

void guard_tables_check(struct guard_tables *t, bool (*allowed)(void *, const uint8_t *), void *ctx)
{
    pthread_mutex_lock(&t->lock);
    known_check(t, allowed, ctx);
    for (size_t i = 0; i < t->n_admitted;) {
        if (!t->admitted[i].watched || allowed(ctx, t->admitted[i].key)) {
            i++;
            continue;
        }
        admitted_shut(&t->admitted[i]);
        t->admitted[i] = t->admitted[--t->n_admitted];
    }
    pthread_mutex_unlock(&t->lock);
}
