/* Who comes to the listening sockets: each has a place, a deadline and the handshake's bytes, and
 * leaves as a member (to UCX) or refused. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transport/ucx_guard_int.h"

/* A whole network of IPv6 costs a stranger as little as one address of IPv4. */
static bool source_equal(const struct guard_address *a, const struct guard_address *b)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(a->ip, b->ip, memcmp(a->ip, mapped, sizeof mapped) == 0 ? 16 : 8) == 0;
}

static void refused_count(struct ucx_guard *g, const struct guard_visitor *v, const char *why)
{
    char ip[INET6_ADDRSTRLEN];
    if (atomic_load(&g->testing)) {
        atomic_fetch_add(&g->tested, 1);
        return;
    }
    inet_ntop(AF_INET6, v->from.ip, ip, sizeof ip);
    g->config.refused(g->config.ctx, strncmp(ip, "::ffff:", 7) == 0 ? ip + 7 : ip, why);
}

void guard_visitor_end(struct guard_visitor *v)
{
    if (v->fd >= 0)
        close(v->fd);
    guard_talk_wipe(&v->talk);
    v->fd = -1;
    v->introduction = NULL;
}

void guard_visitor_refuse(struct ucx_guard *g, struct guard_visitor *v, const char *why)
{
    refused_count(g, v, why);
    guard_visitor_end(v);
}

/* The oldest visitor of an address (NULL: of all), of those who have proven nothing if there is
 * one. */
static struct guard_visitor *visitor_oldest(struct guard_door *door,
                                            const struct guard_address *from)
{
    struct guard_visitor *oldest = NULL;
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++) {
        struct guard_visitor *v = &door->visitors[i];
        if (v->fd < 0 || (from && !source_equal(&v->from, from)))
            continue;
        bool better =
            oldest && guard_talk_has_begun(&v->talk) < guard_talk_has_begun(&oldest->talk);
        bool same = oldest && guard_talk_has_begun(&v->talk) == guard_talk_has_begun(&oldest->talk);
        if (!oldest || better || (same && v->since_ms < oldest->since_ms))
            oldest = v;
    }
    return oldest;
}

static struct guard_visitor *visitor_place(struct ucx_guard *g, const struct guard_address *from)
{
    struct guard_visitor *free_one = NULL;
    int of_address = 0;
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++) {
        struct guard_visitor *v = &g->door->visitors[i];
        if (v->fd < 0)
            free_one = v;
        else
            of_address += source_equal(&v->from, from);
    }
    if (free_one && of_address < GUARD_MAX_OF_ONE_ADDRESS)
        return free_one;
    struct guard_visitor *out =
        visitor_oldest(g->door, of_address >= GUARD_MAX_OF_ONE_ADDRESS ? from : NULL);
    guard_visitor_refuse(g, out, "its place was taken by a newcomer");
    return out;
}

static void visitor_give(struct ucx_guard *g, struct guard_visitor *v)
{
    guard_watch_set(g, EPOLL_CTL_DEL, v->fd, 0, v, WATCH_VISITOR);
    if (guard_listener_give(v->listener, v->fd, handshake_peer(&v->talk.handshake)))
        guard_visitor_end(v);
    else
        guard_visitor_refuse(g, v, "UCX has not taken the members that came before it");
}

bool guard_list_remember(struct ucx_guard *g, const struct guard_talk *t,
                         const uint8_t key[KEY_BYTES], bool chosen)
{
    struct guard_address list[GUARD_LIST_ADDRESSES];
    size_t n = guard_talk_list(t, list);
    bool all = true;
    struct guard_known k = {.chosen = chosen, .watched = g->config.allowed(g->config.ctx, key)};
    memcpy(k.key, key, KEY_BYTES);
    for (size_t i = 0; i < n; i++) {
        k.at = list[i];
        all &= guard_known_set(&g->tables, &k);
    }
    return all;
}

void guard_list_tell(struct ucx_guard *g, struct guard_talk *t)
{
    struct guard_address list[GUARD_LIST_ADDRESSES];
    guard_talk_tell(t, list, guard_listeners_list(g, list));
}

void guard_visitor_go(struct ucx_guard *g, struct guard_visitor *v)
{
    enum guard_turn turn = guard_talk_go(&v->talk, guard_allows, g);
    if (turn == GUARD_ANSWER) {
        guard_list_remember(g, &v->talk, handshake_peer(&v->talk.handshake), false);
        guard_list_tell(g, &v->talk);
        turn = guard_talk_go(&v->talk, guard_allows, g);
    }
    switch (turn) {
    case GUARD_WANTS_READ:
        guard_watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLIN, v, WATCH_VISITOR);
        break;
    case GUARD_WANTS_WRITE:
        guard_watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLOUT, v, WATCH_VISITOR);
        break;
    case GUARD_HELD: /* the news that this key is allowed may be on its way */
        guard_watch_set(g, EPOLL_CTL_MOD, v->fd, 0, v, WATCH_VISITOR);
        v->deadline_ms = v->since_ms + GUARD_HOLD_MS;
        break;
    case GUARD_GIVE: visitor_give(g, v); break;
    case GUARD_DONE: guard_visitor_end(v); break;
    case GUARD_ANSWER:
    case GUARD_REFUSED: guard_visitor_refuse(g, v, v->talk.why.text); break;
    }
}

void guard_visitor_welcome(struct ucx_guard *g, struct guard_listener *l, int fd,
                           const struct guard_address *from)
{
    struct guard_visitor *v = visitor_place(g, from);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    uint64_t now = guard_now_ms();
    *v = (struct guard_visitor){.fd = fd,
                                .listener = l,
                                .from = *from,
                                .since_ms = now,
                                .deadline_ms = now + GUARD_DEADLINE_MS,
                                .turn = g->door->turn};
    if (guard_talk_respond(&v->talk, fd, &g->config.keys, NULL) < 0 ||
        guard_watch_set(g, EPOLL_CTL_ADD, fd, 0, v, WATCH_VISITOR) != 0) {
        guard_visitor_refuse(g, v, "no room to hear it");
        return;
    }
    guard_visitor_go(g, v);
}
