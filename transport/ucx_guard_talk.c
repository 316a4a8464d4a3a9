#include <errno.h>
#include <string.h>

#include "transport/ucx_guard_int.h"

/* ---- socket addresses ---- */

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool guard_address_of(const struct sockaddr *sa, socklen_t size, struct guard_address *out)
{
    memset(out, 0, sizeof *out);
    if (sa->sa_family == AF_INET && size >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;
        memcpy(out->ip, mapped, sizeof mapped);
        memcpy(out->ip + 12, &in->sin_addr, 4);
        out->port = ntohs(in->sin_port);
        return true;
    }
    if (sa->sa_family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)sa;
        memcpy(out->ip, &in->sin6_addr, 16);
        out->port = ntohs(in->sin6_port);
        return true;
    }
    return false;
}

socklen_t guard_address_to(const struct guard_address *a, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (memcmp(a->ip, mapped, sizeof mapped) == 0) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)out;
        in->sin_family = AF_INET;
        memcpy(&in->sin_addr, a->ip + 12, 4);
        in->sin_port = htons(a->port);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)(void *)out;
    in->sin6_family = AF_INET6;
    memcpy(&in->sin6_addr, a->ip, 16);
    in->sin6_port = htons(a->port);
    return sizeof *in;
}

bool guard_address_equal(const struct guard_address *a, const struct guard_address *b)
{
    return a->port == b->port && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

/* ---- bytes in and out ---- */

static enum guard_turn talk_refuse(struct guard_talk *t, int code, const char *why)
{
    err_set(&t->why, code, "%s", why);
    return GUARD_REFUSED;
}

/* Sends the rest of `size` bytes. True when all have left; else *turn says why not. */
static bool talk_send(struct guard_talk *t, const uint8_t *bytes, size_t size,
                      enum guard_turn *turn)
{
    while (t->n_written < size) {
        ssize_t n = guard_real_send(t->fd, bytes + t->n_written, size - t->n_written,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            bool later = errno == EAGAIN || errno == EWOULDBLOCK;
            *turn = later ? GUARD_WANTS_WRITE : talk_refuse(t, HP_ELINK, strerror(errno));
            return false;
        }
        t->n_written += (size_t)n;
    }
    t->n_written = 0;
    return true;
}

/* Reads up to `size` bytes into the buffer and not one more: what follows may be UCX's. */
static bool talk_receive(struct guard_talk *t, size_t size, enum guard_turn *turn)
{
    while (t->n_read < size) {
        ssize_t n = guard_real_recv(t->fd, t->buffer + t->n_read, size - t->n_read, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
            *turn = later
                        ? GUARD_WANTS_READ
                        : talk_refuse(t, HP_ELINK,
                                      n == 0 ? "the peer closed the connection during the handshake"
                                             : strerror(errno));
            return false;
        }
        t->n_read += (size_t)n;
    }
    t->n_read = 0;
    return true;
}

/* ---- the handshake ---- */

static int talk_begin(struct guard_talk *t, int fd, bool initiator)
{
    memset(t, 0, sizeof *t);
    t->fd = fd;
    t->initiator = initiator;
    t->phase = TALK_HANDSHAKE;
    return 0;
}

int guard_talk_initiate(struct guard_talk *t, int fd, const struct key_pair *own,
                        const uint8_t responder[KEY_BYTES], enum guard_wish wish, struct err *e)
{
    talk_begin(t, fd, true);
    t->wish = wish;
    return handshake_initiate(&t->handshake, own, responder, HANDSHAKE_UCX, handshake_ciphers(), e);
}

int guard_talk_respond(struct guard_talk *t, int fd, const struct key_pair *own, struct err *e)
{
    talk_begin(t, fd, false);
    return handshake_respond(&t->handshake, own, HANDSHAKE_UCX, handshake_ciphers(), e);
}

static bool talk_handshake_write(struct guard_talk *t, enum guard_turn *turn)
{
    size_t size;
    const uint8_t *bytes = handshake_output(&t->handshake, &size);
    if (!talk_send(t, bytes, size, turn))
        return false;
    handshake_sent(&t->handshake);
    return true;
}

static bool talk_handshake_read(struct guard_talk *t, enum guard_turn *turn)
{
    size_t size = handshake_wants(&t->handshake);
    if (!talk_receive(t, size, turn))
        return false;
    if (handshake_read(&t->handshake, t->buffer, size, &t->why) < 0) {
        *turn = GUARD_REFUSED;
        return false;
    }
    return true;
}

static bool talk_handshake_ask(struct guard_talk *t, bool (*allowed)(void *, const uint8_t *),
                               void *ctx, enum guard_turn *turn)
{
    *turn = GUARD_HELD;
    if (!allowed || !allowed(ctx, handshake_peer(&t->handshake)))
        return false;
    *turn = GUARD_REFUSED;
    return handshake_admit(&t->handshake, &t->why) == 0;
}

static bool talk_handshake_go(struct guard_talk *t, bool (*allowed)(void *, const uint8_t *),
                              void *ctx, enum guard_turn *turn)
{
    for (;;) {
        bool on = false;
        switch (handshake_state(&t->handshake)) {
        case HANDSHAKE_WRITE: on = talk_handshake_write(t, turn); break;
        case HANDSHAKE_READ: on = talk_handshake_read(t, turn); break;
        case HANDSHAKE_ASK: on = talk_handshake_ask(t, allowed, ctx, turn); break;
        case HANDSHAKE_DONE: return true;
        case HANDSHAKE_FAILED: *turn = GUARD_REFUSED; break;
        }
        if (!on)
            return false;
    }
}

/* ---- what comes after it ---- */

static void list_write(const struct guard_address *list, size_t n, uint8_t out[GUARD_LIST_BYTES])
{
    memset(out, 0, GUARD_LIST_BYTES);
    out[0] = (uint8_t)n;
    for (size_t i = 0; i < n; i++) {
        uint8_t *at = out + 1 + i * 18;
        memcpy(at, list[i].ip, 16);
        at[16] = (uint8_t)list[i].port;
        at[17] = (uint8_t)(list[i].port >> 8);
    }
}

void guard_talk_tell(struct guard_talk *t, const struct guard_address *list, size_t n)
{
    list_write(list, n, t->own_list);
}

size_t guard_talk_list(const struct guard_talk *t, struct guard_address out[GUARD_LIST_ADDRESSES])
{
    size_t n = t->buffer[0] > GUARD_LIST_ADDRESSES ? 0 : t->buffer[0];
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = t->buffer + 1 + i * 18;
        memcpy(out[i].ip, at, 16);
        out[i].port = (uint16_t)(at[16] | at[17] << 8);
    }
    return n;
}

/* Initiator: says what it wants. Responder: hears it. */
static bool talk_wish(struct guard_talk *t, enum guard_turn *turn)
{
    if (t->initiator) {
        uint8_t wish = (uint8_t)t->wish;
        return talk_send(t, &wish, 1, turn);
    }
    if (!talk_receive(t, 1, turn))
        return false;
    t->wish = t->buffer[0];
    if (t->wish == GUARD_WISH_GIVE || t->wish == GUARD_WISH_INTRODUCE)
        return true;
    *turn = talk_refuse(t, HP_EPROTO, "the peer wants what this version does not know");
    return false;
}

/* The initiator's list goes first. */
static enum guard_turn talk_lists(struct guard_talk *t)
{
    enum guard_turn turn = GUARD_REFUSED;
    if (t->phase == TALK_FIRST_LIST) {
        bool done = t->initiator ? talk_send(t, t->own_list, GUARD_LIST_BYTES, &turn)
                                 : talk_receive(t, GUARD_LIST_BYTES, &turn);
        if (!done)
            return turn;
        t->phase = TALK_SECOND_LIST;
        if (!t->initiator)
            return GUARD_ANSWER;
    }
    bool done = t->initiator ? talk_receive(t, GUARD_LIST_BYTES, &turn)
                             : talk_send(t, t->own_list, GUARD_LIST_BYTES, &turn);
    return done ? GUARD_DONE : turn;
}

enum guard_turn guard_talk_go(struct guard_talk *t, bool (*allowed)(void *, const uint8_t *),
                              void *ctx)
{
    enum guard_turn turn = GUARD_REFUSED;
    if (t->phase == TALK_HANDSHAKE) {
        if (!talk_handshake_go(t, allowed, ctx, &turn))
            return turn;
        t->phase = TALK_WISH;
    }
    if (t->phase == TALK_WISH) {
        if (!talk_wish(t, &turn))
            return turn;
        if (t->wish == GUARD_WISH_GIVE)
            return GUARD_GIVE;
        t->phase = TALK_FIRST_LIST;
    }
    return talk_lists(t);
}

bool guard_talk_has_begun(const struct guard_talk *t)
{
    return t->phase != TALK_HANDSHAKE || handshake_state(&t->handshake) != HANDSHAKE_READ ||
           t->handshake.step > 0;
}

void guard_talk_wipe(struct guard_talk *t)
{
    handshake_wipe(&t->handshake);
}
