/* The parts of the guard, from bottom to top; each calls only parts before it:
 *   ucx_guard_real.c       the system's functions that this program stands before
 *   ucx_guard_talk.c       the talk on one connection
 *   ucx_guard_table.c      who is known, and who was let in
 *   ucx_guard_watch.c      what the guard's thread watches
 *   ucx_guard_listen.c     listeners, and what UCX gets for an answer when it listens or accepts
 *   ucx_guard_connect.c    what it gets when it connects, sends and receives
 *   ucx_guard_calls.c      UCX's calls, told from everybody else's
 *   ucx_guard_visitors.c   who comes
 *   ucx_guard_introduce.c  whom we go to
 *   ucx_guard_door.c       the thread that does both
 *   ucx_guard.c            the face
 * Only these files and their tests include this. */
#ifndef HP_TRANSPORT_UCX_GUARD_INT_H
#define HP_TRANSPORT_UCX_GUARD_INT_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "transport/handshake.h"
#include "transport/tcp_loss.h"
#include "transport/ucx_guard.h"

/* ---- socket addresses: IPv4 as mapped IPv6 ---- */

struct guard_address {
    uint8_t ip[16];
    uint16_t port;
};

bool guard_address_of(const struct sockaddr *sa, socklen_t size, struct guard_address *out);
socklen_t guard_address_to(const struct guard_address *a, struct sockaddr_storage *out);
bool guard_address_equal(const struct guard_address *a, const struct guard_address *b);

/* ---- the talk on one connection: the handshake, then one byte, then perhaps a list of addresses
 * from each side ---- */

enum { GUARD_LIST_ADDRESSES = 8, GUARD_LIST_BYTES = 1 + GUARD_LIST_ADDRESSES * 18 };

enum guard_wish { GUARD_WISH_GIVE = 1, GUARD_WISH_INTRODUCE = 2 };

enum guard_turn {
    GUARD_WANTS_READ,
    GUARD_WANTS_WRITE,
    GUARD_HELD,   /* responder: the key is not allowed (yet) */
    GUARD_GIVE,   /* done: what follows is UCX's */
    GUARD_ANSWER, /* responder: the initiator's list is there; call guard_talk_tell, and go on */
    GUARD_DONE,   /* done: close */
    GUARD_REFUSED /* close; `why` says the reason */
};

struct guard_talk {
    int fd; /* non-blocking */
    enum guard_wish wish;
    bool initiator;
    enum { TALK_HANDSHAKE, TALK_WISH, TALK_FIRST_LIST, TALK_SECOND_LIST } phase;
    struct handshake handshake;
    uint8_t buffer[GUARD_LIST_BYTES], own_list[GUARD_LIST_BYTES];
    size_t n_read, n_written;
    struct err why; /* refused */
};

int guard_talk_initiate(struct guard_talk *t, int fd, const struct key_pair *own,
                        const uint8_t responder[KEY_BYTES], enum guard_wish wish, struct err *e);
int guard_talk_respond(struct guard_talk *t, int fd, const struct key_pair *own, struct err *e);
/* Goes on as far as it can without blocking. `allowed` as in ucx_guard_config; NULL: nobody. */
enum guard_turn guard_talk_go(struct guard_talk *t, bool (*allowed)(void *, const uint8_t *),
                              void *ctx);
/* The list to send. */
void guard_talk_tell(struct guard_talk *t, const struct guard_address *list, size_t n);
/* GUARD_ANSWER, and the initiator's GUARD_DONE: the list that came. */
size_t guard_talk_list(const struct guard_talk *t, struct guard_address out[GUARD_LIST_ADDRESSES]);
/* True once the other has sent a first message that a stranger could not have made. */
bool guard_talk_has_begun(const struct guard_talk *t);
void guard_talk_wipe(struct guard_talk *t);

/* ---- who is known, and who was let in ---- */

enum { GUARD_MAX_KNOWN = 8192, GUARD_MAX_ADMITTED = 65536 };

/* Where the holder of a key says that it listens; it must prove that it does when we connect. */
struct guard_known {
    struct guard_address at;
    uint8_t key[KEY_BYTES];
    bool chosen;  /* we asked it: so it may connect to us, too (UCX connects back) */
    bool watched; /* forgotten when its key leaves the set */
};

struct guard_admitted {
    int fd;
    uint64_t inode; /* tells whether the descriptor is still that socket */
    bool watched; /* goes when its key leaves the set (we may connect to keys that never were in it)
                   */
    uint8_t key[KEY_BYTES];
    struct tcp_loss sent; /* over it, as TCP said last */
};

struct guard_tables {
    pthread_mutex_t lock; /* guards all below */
    struct guard_known *known;
    size_t n_known, known_capacity, known_next; /* when full, the oldest goes */
    struct guard_admitted *admitted;
    size_t n_admitted, admitted_capacity;
};

void guard_tables_init(struct guard_tables *t);
void guard_tables_fini(struct guard_tables *t);
/* False when memory ran out. */
bool guard_known_set(struct guard_tables *t, const struct guard_known *k);
bool guard_known_find(struct guard_tables *t, const struct guard_address *at,
                      uint8_t key[KEY_BYTES]);
/* May the holder of this key connect to us? A struct ucx_guard as context, for guard_talk_go. */
bool guard_allows(void *guard, const uint8_t key[KEY_BYTES]);
/* Remembers whose connection a descriptor is, so that it can be shut down. False when memory ran
 * out. */
bool guard_admitted_add(struct guard_tables *t, int fd, const uint8_t key[KEY_BYTES], bool watched);
/* Forgets addresses of keys that are not allowed any more, and shuts down their connections. */
void guard_tables_check(struct guard_tables *t, bool (*allowed)(void *, const uint8_t *),
                        void *ctx);
/* What TCP has sent over each since it was asked last; those that UCX has closed are forgotten. */
void guard_admitted_count(struct guard_tables *t, ucx_guard_loss_fn add, void *ctx);
/* A number that no other open socket has; 0 when `fd` is none. */
uint64_t guard_inode_of(int fd);

/* ---- listeners, known to all threads ---- */

struct guard_listener {
    struct guard_listener *next; /* under the lock of ucx_guard_listen.c */
    struct ucx_guard *guard;
    int stand_in;   /* UCX's descriptor */
    uint64_t inode; /* of the stand-in */
    int real, pair; /* the guard's: the listening socket, and its end of the pair */
    struct guard_listener *next_paused; /* the thread's own */
    struct guard_address at;
};

struct ucx_guard {
    struct ucx_guard_config config;
    struct guard_tables tables;
    pthread_t thread;
    bool thread_started;
    int epoll, wake;
    int listen_error; /* on the thread that opens */
    atomic_bool stopping, peers_changed, testing;
    atomic_uint tested;
    pthread_mutex_t lock; /* guards the introductions that wait */
    struct ucx_introduction *first, **tail;
    struct guard_door *door; /* the thread's own */
};

/* ---- visitors (ucx_guard_visitors.c): whom the thread talks to ---- */

enum { GUARD_MAX_INTRODUCING = 64, GUARD_VISITORS = GUARD_MAX_UNPROVEN + GUARD_MAX_INTRODUCING };

/* One connection that the thread talks on: a visitor at a listener, or an introduction of ours. */
struct guard_visitor {
    int fd;                          /* -1: free */
    struct guard_listener *listener; /* NULL: an introduction */
    struct ucx_introduction *introduction;
    struct guard_address from; /* or to, of an introduction */
    bool connecting;
    uint64_t since_ms, deadline_ms;
    uint64_t turn; /* of the thread, in which it came */
    struct guard_talk talk;
};

struct guard_door {
    struct guard_visitor visitors[GUARD_VISITORS]; /* first GUARD_MAX_UNPROVEN for those who come */
    struct guard_listener *paused;                 /* a list: no descriptors were left for them */
    uint64_t paused_until_ms;
    uint64_t turn;
};

/* ---- what the thread watches (ucx_guard_watch.c) ---- */

uint64_t guard_now_ms(void);

/* What an epoll event is about: the kind in the low bits of a pointer; all of them are aligned to
 * 8. */
enum guard_watched { WATCH_WAKE, WATCH_REAL, WATCH_PAIR, WATCH_VISITOR };
int guard_watch_set(struct ucx_guard *g, int op, int fd, uint32_t events, const void *what,
                    enum guard_watched kind);
/* Adds a listener to the thread's watch. */
int guard_listener_watch(struct ucx_guard *g, struct guard_listener *l);

/* Somebody came. */
void guard_visitor_welcome(struct ucx_guard *g, struct guard_listener *l, int fd,
                           const struct guard_address *from);
/* Goes on with the talk as far as it can; it may end. */
void guard_visitor_go(struct ucx_guard *g, struct guard_visitor *v);
void guard_visitor_refuse(struct ucx_guard *g, struct guard_visitor *v, const char *why);
void guard_visitor_end(struct guard_visitor *v);
/* Remembers where the other end of a talk listens, as it says. False when memory ran out. */
bool guard_list_remember(struct ucx_guard *g, const struct guard_talk *t,
                         const uint8_t key[KEY_BYTES], bool chosen);
/* Says where we listen. */
void guard_list_tell(struct ucx_guard *g, struct guard_talk *t);

/* ---- introductions (ucx_guard_introduce.c) ---- */

/* Introductions that wait begin, as far as there are places. */
void guard_introductions_start(struct ucx_guard *g);
void guard_introduction_go(struct ucx_guard *g, struct guard_visitor *v);
void guard_introduction_expire(struct guard_visitor *v);

/* ---- the door (ucx_guard_door.c) ---- */

struct guard_door *guard_door_create(void);
/* After the thread has ended. */
void guard_door_destroy(struct guard_door *door);
/* Makes the descriptors; 0, or -1 with errno. */
int guard_door_open(struct ucx_guard *g);
/* The thread; `ctx` is the guard. */
void *guard_door_run(void *ctx);

/* Called by the guard's thread: UCX closed the stand-in. Frees the listener. */
void guard_listener_remove(struct guard_listener *l);
/* Fills in where the guard's listeners listen; returns how many. */
size_t guard_listeners_list(struct ucx_guard *g, struct guard_address out[GUARD_LIST_ADDRESSES]);
/* Forgets all of a guard. */
void guard_listeners_free(struct ucx_guard *g);
/* Hands a proven connection to UCX; false when its queue is full. The caller still closes its own
 * descriptor. */
bool guard_listener_give(struct guard_listener *l, int fd, const uint8_t key[KEY_BYTES]);
/* Where UCX's code lies, its modules included once they are loaded. */
void guard_ranges_find(void);
/* The system's own (ucx_guard_real.c). */
int guard_real_bind(int fd, const struct sockaddr *address, socklen_t size);
int guard_real_listen(int fd, int backlog);
int guard_real_accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size);
int guard_real_accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size,
                       int flags);
int guard_real_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int guard_real_connect(int fd, const struct sockaddr *address, socklen_t size);
ssize_t guard_real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t guard_real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t guard_real_recv(int fd, void *bytes, size_t size, int flags);

/* ---- what UCX gets for an answer; `g` is the guard of the calling thread, or NULL ---- */

int guard_ucx_bind(struct ucx_guard *g, int fd, const struct sockaddr *address, socklen_t size);
int guard_ucx_listen(struct ucx_guard *g, int fd, int backlog);
int guard_ucx_accept(int fd, struct sockaddr *address, socklen_t *size);
int guard_ucx_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int guard_ucx_connect(struct ucx_guard *g, int fd, const struct sockaddr *address, socklen_t size);
ssize_t guard_ucx_send(int fd, const void *bytes, size_t size, int flags);
ssize_t guard_ucx_sendmsg(int fd, const struct msghdr *message, int flags);
/* At most GUARD_RECEIVE_BYTES at once: a peer that sends megabytes keeps no other waiting longer.
 */
enum { GUARD_RECEIVE_BYTES = 256 << 10 };
ssize_t guard_ucx_recv(int fd, void *bytes, size_t size, int flags);

#endif
