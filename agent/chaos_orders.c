#include "agent/chaos_orders.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static sigset_t orders_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, LINK_FAULT_SIGNAL);
    return set;
}

void chaos_orders_take(void)
{
    sigset_t set = orders_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct chaos_orders *o = p->data;
    struct signalfd_siginfo info;
    (void)status;
    (void)events;
    while (read(o->fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_code == SI_QUEUE) /* kill(1) sends none with a value */
            o->order(o->ctx, link_fault_of(info.ssi_ptr));
}

int chaos_orders_open(struct chaos_orders *o, uv_loop_t *loop, chaos_order_fn order, void *ctx,
                      struct err *e)
{
    sigset_t set = orders_signals();
    *o = (struct chaos_orders){.order = order, .ctx = ctx};
    o->poll.data = o;
    o->fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (o->fd < 0)
        return err_set(e, HP_EIO, "--chaos-links: cannot hear signals: %s", strerror(errno));
    if (uv_poll_init(loop, &o->poll, o->fd) != 0) {
        close(o->fd);
        return err_set(e, HP_EIO, "--chaos-links: cannot wait for signals");
    }
    uv_poll_start(&o->poll, UV_READABLE, on_readable);
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct chaos_orders *o = h->data;
    close(o->fd);
}

void chaos_orders_close(struct chaos_orders *o)
{
    uv_close((uv_handle_t *)&o->poll, on_closed);
}
