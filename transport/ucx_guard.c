/* The face of the guard, and its test at the start. Below it: the door (ucx_guard_door.c), and
 * UCX's calls (ucx_guard_calls.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/ucx_guard_int.h"

static void guard_wake(struct ucx_guard *g)
{
    uint64_t one = 1;
    (void)!write(g->wake, &one, sizeof one);
}

int ucx_guard_open(const struct ucx_guard_config *c, struct ucx_guard **out, struct err *e)
{
    uint8_t key[KEY_BYTES];
    int rc = key_decode(c->keys.public_key, key, e);
    if (rc < 0)
        return rc;
    struct ucx_guard *g = calloc(1, sizeof *g);
    struct guard_door *door = guard_door_create();
    if (!g || !door) {
        free(g);
        if (door)
            guard_door_destroy(door);
        return err_set(e, HP_ENOMEM, "out of memory for the guard of the data channel");
    }
    g->config = *c;
    g->door = door;
    g->tail = &g->first;
    guard_tables_init(&g->tables);
    pthread_mutex_init(&g->lock, NULL);
    guard_ranges_find();
    if (guard_door_open(g) != 0 || pthread_create(&g->thread, NULL, guard_door_run, g) != 0) {
        int error = errno;
        ucx_guard_close(&g);
        return err_set(e, HP_ENOMEM, "cannot start the guard of the data channel: %s",
                       strerror(error));
    }
    g->thread_started = true;
    *out = g;
    return 0;
}

void ucx_guard_stop(struct ucx_guard *g)
{
    if (!g->thread_started)
        return;
    atomic_store(&g->stopping, true);
    guard_wake(g);
    pthread_join(g->thread, NULL);
    g->thread_started = false;
}

void ucx_guard_close(struct ucx_guard **pg)
{
    struct ucx_guard *g = *pg;
    *pg = NULL;
    if (!g)
        return;
    ucx_guard_stop(g);
    guard_listeners_free(g);
    guard_door_destroy(g->door);
    if (g->epoll >= 0)
        close(g->epoll);
    if (g->wake >= 0)
        close(g->wake);
    guard_tables_fini(&g->tables);
    pthread_mutex_destroy(&g->lock);
    explicit_bzero(&g->config.keys, sizeof g->config.keys);
    free(g);
}

void ucx_guard_peers_changed(struct ucx_guard *g)
{
    atomic_store(&g->peers_changed, true);
    guard_wake(g);
}

void ucx_guard_count(struct ucx_guard *g, ucx_guard_loss_fn add, void *ctx)
{
    guard_admitted_count(&g->tables, add, ctx);
}

void ucx_guard_introduce(struct ucx_guard *g, struct ucx_introduction *i)
{
    i->next = NULL;
    pthread_mutex_lock(&g->lock);
    *g->tail = i;
    g->tail = &i->next;
    pthread_mutex_unlock(&g->lock);
    guard_wake(g);
}

/* ---- the test at the start ---- */

/* Connects as a stranger and says something that is no proof; true when that was refused before
 * `deadline_ms`. */
static bool stranger_is_refused(struct ucx_guard *g, const struct guard_address *at)
{
    static const uint8_t nonsense[HANDSHAKE_FIRST_BYTES];
    struct sockaddr_storage sa;
    socklen_t size = guard_address_to(at, &sa);
    uint8_t byte;
    bool refused = false;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {GUARD_DEADLINE_MS / 1000 + 1, 0};
    unsigned before = atomic_load(&g->tested);
    atomic_store(&g->testing, true);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        guard_real_connect(fd, (struct sockaddr *)&sa, size) == 0 &&
        guard_real_send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL) == (ssize_t)sizeof nonsense)
        refused = guard_real_recv(fd, &byte, 1, 0) <= 0 && errno != EAGAIN &&
                  atomic_load(&g->tested) == before + 1;
    atomic_store(&g->testing, false);
    if (fd >= 0)
        close(fd);
    return refused;
}

int ucx_guard_test(struct ucx_guard *g, const struct data_address *own, struct err *e)
{
    struct guard_address list[GUARD_LIST_ADDRESSES];
    size_t n = guard_listeners_list(g, list);
    guard_ranges_find();
    for (size_t i = 0; i < n; i++)
        if (list[i].port == own->port && stranger_is_refused(g, &list[i]))
            return 0;
    err_set(e, HP_EUNSUPPORTED,
            "this UCX goes around the guard of the data channel (it does not call this program's "
            "listen and accept)");
    return err_hint(e, "use --data tcp, or a UCX whose libraries are linked dynamically");
}
