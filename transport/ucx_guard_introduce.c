/* Introductions: this process goes to another's guard, both prove themselves, and each tells at
 * which addresses its UCX listens. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>

#include "transport/ucx_guard_int.h"

static void introduction_end(struct guard_visitor *v, const struct err *why)
{
    struct ucx_introduction *i = v->introduction;
    guard_visitor_end(v);
    i->done(i, why);
}

static void introduction_fail(struct guard_visitor *v, const char *why)
{
    struct err e = {0};
    const struct data_address *to = &v->introduction->to;
    err_set(&e, HP_ELINK, "no data connection to %s port %u: %s", to->host, to->port, why);
    err_hint(&e, "is the agent running there, and is the port open in its firewall?");
    introduction_end(v, &e);
}

static void introduction_connect(struct ucx_guard *g, struct guard_visitor *v)
{
    struct err e = {0};
    struct sockaddr_storage sa;
    socklen_t size = guard_address_to(&v->from, &sa);
    int yes = 1;
    v->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (v->fd < 0 || setsockopt(v->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
        (guard_real_connect(v->fd, (struct sockaddr *)&sa, size) != 0 && errno != EINPROGRESS) ||
        guard_watch_set(g, EPOLL_CTL_ADD, v->fd, EPOLLOUT, v, WATCH_VISITOR) != 0) {
        introduction_fail(v, strerror(errno));
        return;
    }
    v->connecting = true;
    if (guard_talk_initiate(&v->talk, v->fd, &g->config.keys, v->introduction->to.key,
                            GUARD_WISH_INTRODUCE, &e) < 0)
        introduction_fail(v, e.text);
    else
        guard_list_tell(g, &v->talk);
}

/* UCX may connect there now, and be connected from there. */
static void introduction_succeed(struct ucx_guard *g, struct guard_visitor *v)
{
    struct guard_known k = {.at = v->from,
                            .chosen = true,
                            .watched = g->config.allowed(g->config.ctx, v->introduction->to.key)};
    memcpy(k.key, v->introduction->to.key, KEY_BYTES);
    if (guard_list_remember(g, &v->talk, k.key, true) && guard_known_set(&g->tables, &k))
        introduction_end(v, NULL);
    else
        introduction_fail(v, "no memory to remember its addresses");
}

/* The connection stands, or why it does not. */
static bool introduction_is_connected(struct guard_visitor *v)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (!v->connecting)
        return true;
    v->connecting = false;
    if (getsockopt(v->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        introduction_fail(v, strerror(error ? error : errno));
        return false;
    }
    return true;
}

void guard_introduction_go(struct ucx_guard *g, struct guard_visitor *v)
{
    if (!introduction_is_connected(v))
        return;
    switch (guard_talk_go(&v->talk, NULL, NULL)) {
    case GUARD_WANTS_READ:
        guard_watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLIN, v, WATCH_VISITOR);
        break;
    case GUARD_WANTS_WRITE:
        guard_watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLOUT, v, WATCH_VISITOR);
        break;
    case GUARD_DONE: introduction_succeed(g, v); break;
    default: introduction_fail(v, v->talk.why.text); break;
    }
}

static void introduction_start(struct ucx_guard *g, struct guard_visitor *v,
                               struct ucx_introduction *i)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(i->to.port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(i->to.port)};
    *v = (struct guard_visitor){
        .fd = -1, .introduction = i, .deadline_ms = guard_now_ms() + GUARD_DEADLINE_MS};
    bool good = inet_pton(AF_INET, i->to.host, &in.sin_addr) == 1
                    ? guard_address_of((struct sockaddr *)&in, sizeof in, &v->from)
                    : inet_pton(AF_INET6, i->to.host, &in6.sin6_addr) == 1 &&
                          guard_address_of((struct sockaddr *)&in6, sizeof in6, &v->from);
    if (good)
        introduction_connect(g, v);
    else
        introduction_fail(v, "this is no numeric address");
}

void guard_introductions_start(struct ucx_guard *g)
{
    for (int n = GUARD_MAX_UNPROVEN; n < GUARD_VISITORS; n++) {
        if (g->door->visitors[n].introduction)
            continue;
        pthread_mutex_lock(&g->lock);
        struct ucx_introduction *i = g->first;
        if (i && !(g->first = i->next))
            g->tail = &g->first;
        pthread_mutex_unlock(&g->lock);
        if (!i)
            return;
        introduction_start(g, &g->door->visitors[n], i);
    }
}

void guard_introduction_expire(struct guard_visitor *v)
{
    introduction_fail(v, v->connecting
                             ? "no answer within 2 s"
                             : "no proof within 2 s (is this agent still a member there?)");
}
