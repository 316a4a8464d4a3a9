#include "hpctl/load_loop.h"

#include <math.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/env.h"

enum { MOST_WAIT_MS = 100, PROGRESS_MS = 250, EVENTS = 128 };

static volatile sig_atomic_t interrupts;

static void on_interrupt(int which)
{
    (void)which;
    interrupts = 1;
}

double load_loop_now_s(const struct load_loop *l)
{
    return (double)(env_now_ns(&env_real) - l->start_ns) * 1e-9;
}

/* ---- what curl waits for ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
    struct load_loop *l = ctx;
    struct epoll_event ev = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    epoll_ctl(l->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev);
    curl_multi_assign(l->multi, fd, l);
    return 0;
}

static int on_curl_timer(CURLM *multi, long ms, void *ctx)
{
    struct load_loop *l = ctx;
    (void)multi;
    l->curl_due_s = ms < 0 ? INFINITY : load_loop_now_s(l) + (double)ms * 1e-3;
    return 0;
}

static void curl_due_run(struct load_loop *l)
{
    int running;
    if (l->curl_due_s > load_loop_now_s(l))
        return;
    l->curl_due_s = INFINITY;
    curl_multi_socket_action(l->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

/* Until something comes, that moment is there, or a tenth of a second has passed. */
static void events_wait(struct load_loop *l, double until_s)
{
    struct epoll_event events[EVENTS];
    uint64_t rung;
    int running;
    double now_s = load_loop_now_s(l);
    double wait_s = fmin(fmin(MOST_WAIT_MS * 1e-3, until_s - now_s), l->curl_due_s - now_s);
    struct itimerspec at = {.it_value.tv_nsec = wait_s > 1e-9 ? (long)(wait_s * 1e9) : 1};
    timerfd_settime(l->timer, 0, &at, NULL);
    int n = epoll_wait(l->epoll, events, EVENTS, 2 * MOST_WAIT_MS);
    for (int i = 0; i < n; i++) {
        unsigned got = events[i].events;
        int bits = (got & EPOLLIN ? CURL_CSELECT_IN : 0) | (got & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (got & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        if (events[i].data.fd != l->timer)
            curl_multi_socket_action(l->multi, events[i].data.fd, bits, &running);
        else if (read(l->timer, &rung, sizeof rung) < 0)
            continue; /* it was set anew meanwhile */
    }
}

static void transfers_take(struct load_loop *l, const struct load_work *w)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &left));) {
        char *transfer = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (m->msg == CURLMSG_DONE)
            w->over(transfer, m->data.result);
    }
}

/* ---- the loop ---- */

static int loop_turns(struct load_loop *l, const struct load_work *w, struct err *e)
{
    double shown_s = 0;
    int rc = 0;
    while (rc == 0 && !interrupts) {
        double now_s = load_loop_now_s(l), due_s;
        while ((due_s = w->due_s(w->ctx, now_s)) <= now_s && rc == 0)
            rc = w->send(w->ctx, e);
        if (isinf(due_s) && (l->n_open == 0 || now_s > w->last_s))
            break;
        if (w->progress && now_s - shown_s > PROGRESS_MS * 1e-3) {
            shown_s = now_s;
            w->progress(w->progress_ctx, now_s, l->n_open);
        }
        curl_due_run(l);
        events_wait(l, due_s);
        transfers_take(l, w);
        if (rc == 0 && w->turn)
            rc = w->turn(w->ctx, e);
    }
    return rc;
}

int load_loop_run(struct load_loop *l, const struct load_work *w, bool *interrupted, struct err *e)
{
    struct sigaction stop = {.sa_handler = on_interrupt}, before;
    interrupts = 0;
    sigaction(SIGINT, &stop, &before);
    l->start_ns = env_now_ns(&env_real);
    int rc = loop_turns(l, w, e);
    sigaction(SIGINT, &before, NULL);
    *interrupted = interrupts;
    return rc;
}

/* ---- life ---- */

int load_loop_open(struct load_loop *l, size_t most_open, struct err *e)
{
    struct epoll_event ev = {.events = EPOLLIN};
    *l = (struct load_loop){.curl_due_s = INFINITY};
    l->multi = curl_multi_init();
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!l->multi)
        return err_no_memory(e, "a load");
    ev.data.fd = l->timer;
    if (l->epoll < 0 || l->timer < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->timer, &ev) != 0)
        return err_set(e, HP_EIO, "cannot wait for connections: no descriptor is left");
    curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, (long)most_open);
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETDATA, l);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERDATA, l);
    return 0;
}

void load_loop_close(struct load_loop *l)
{
    if (l->multi)
        curl_multi_cleanup(l->multi);
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->timer >= 0)
        close(l->timer);
}
