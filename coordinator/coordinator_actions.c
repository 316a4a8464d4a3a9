/* Does what the core says, in the order in which it says it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/coordinator_int.h"
#include "coordinator/store/store_queue.h"
#include "transport/control.h"

enum { NOT_SENT_NS = 1000000000 };

/* The changes of one step go to the store's thread together; what depends on them comes when it has
 * written them (coord_stored). */
static void changes_store(struct coordinator *c, const struct coord_action *actions, size_t n)
{
    struct err e = {0};
    struct store_change *changes = calloc(n + 1, sizeof *changes);
    uint64_t number = 0;
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        if (actions[i].kind != COORD_STORE)
            continue;
        number = actions[i].number;
        if (changes)
            changes[count++] = (struct store_change){actions[i].record_kind, actions[i].key,
                                                     actions[i].bytes, actions[i].size};
    }
    int rc = changes ? 0 : err_set(&e, HP_ENOMEM, "no memory for a change of the store");
    if (rc == 0 && count)
        rc = store_queue_put(c->queue, number, changes, count, &e);
    free(changes);
    if (rc < 0 && number)
        coord_stored(c->core, number, &e);
}

/* One line a second: a peer that is gone may have had a hundred messages coming. */
static void message_not_sent(struct coordinator *c, const struct coord_action *a,
                             const struct err *why)
{
    uint64_t now = env_now_ns(&env_real);
    c->not_sent++;
    if (now - c->not_sent_told_ns < NOT_SENT_NS)
        return;
    log_warn("coordinator", "not_sent", "peer=%llu bytes=%zu messages=%llu why=\"%s\"",
             (unsigned long long)a->peer, a->size, (unsigned long long)c->not_sent, why->text);
    c->not_sent_told_ns = now;
    c->not_sent = 0;
}

static void action_do(struct coordinator *c, const struct coord_action *a)
{
    struct err e = {0};
    switch (a->kind) {
    case COORD_STORE: break;
    case COORD_SEND:
        if (control_send(c->control, a->peer, a->bytes, a->size, &e) == 0)
            break;
        message_not_sent(c, a, &e);
        if (e.code == HP_ELINK)
            coord_peer_gone(c->core, a->peer);
        break;
    case COORD_MODEL_OPEN: coordinator_model_open(c, a); break;
    case COORD_MODEL_CLOSE: coordinator_model_close(c, a->key); break;
    case COORD_FRAME: coordinator_data_post(c, a->frame); break;
    case COORD_WORK: coordinator_work_start(c, a->work); break;
    case COORD_TOKENS:
    case COORD_ROW:
    case COORD_SCORES:
    case COORD_FINISHED:
    case COORD_FAILED: coord_action_call_back(a); break;
    }
}

/* The clock is env_real's. */
static void pools_wake_at(struct coordinator *c, int64_t at_ns)
{
    struct itimerspec at = {.it_value = {at_ns / 1000000000, at_ns % 1000000000}};
    if (c->closing || at_ns == c->pools_at)
        return;
    c->pools_at = at_ns;
    if (at_ns == INT64_MAX)
        at = (struct itimerspec){0};
    timerfd_settime(c->pools_timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void on_pools(uv_poll_t *p, int status, int events)
{
    struct coordinator *c = p->data;
    uint64_t rung;
    (void)status, (void)events;
    if (read(c->pools_timer, &rung, sizeof rung) == sizeof rung)
        c->pools_at = INT64_MAX;
    coordinator_settle(c);
}

int coordinator_pools_timer_start(struct coordinator *c, struct err *e)
{
    c->pools_at = INT64_MAX;
    c->pools_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (c->pools_timer < 0)
        return err_set(e, HP_EIO, "no timer for the scheduler of pools: %s", strerror(errno));
    if (uv_poll_init(c->loop, &c->pools, c->pools_timer) < 0) {
        close(c->pools_timer);
        return err_set(e, HP_EIO, "the loop takes no timer for the scheduler of pools");
    }
    c->pools.data = c;
    uv_poll_start(&c->pools, UV_READABLE, on_pools);
    return 0;
}

void coordinator_settle(struct coordinator *c)
{
    if (c->settling)
        return;
    c->settling = true;
    size_t n;
    const struct coord_action *actions;
    int64_t wake;
    do {
        coordinator_data_run(c);
        wake = coord_pools_run(c->core);
        while (actions = coord_take(c->core, &n), n > 0) {
            changes_store(c, actions, n);
            for (size_t i = 0; i < n; i++)
                action_do(c, &actions[i]);
        }
    } while (wake <= (int64_t)env_now_ns(&env_real));
    pools_wake_at(c, wake);
    c->settling = false;
}
