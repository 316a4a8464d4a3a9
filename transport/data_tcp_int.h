/* What the files of data_tcp share. Only data_tcp*.c (and its tests) include this.
 *
 * One thread owns everything here but what stands under base.lock; it holds `awake` but for its
 * sleep and the callbacks of frames. Whoever posts a small frame and finds `awake` free sends the
 * frame itself (it never waits for it: the thread calls back with it held, when links break).
 * Between two endpoints there is one connection, whoever opened it; both directions share it. When
 * both open one at the same time, the one stays that was opened by the smaller key, and the other
 * ends when what is on its way has come.
 *
 * The parts, from bottom to top; each calls only parts before it:
 *
 *   data_tcp_seal.c        the encryption of records
 *   data_tcp_watch.c       what epoll watches, and the clock
 *   data_tcp_frame.c       frames, arrivals and their queues
 *   data_tcp_peer.c        the peer behind a key: its links, what waits for it
 *   data_tcp_loss.c        what the network loses
 *   data_tcp_connection.c  a proven connection: its greeting and its end
 *   data_tcp_send.c        which record goes next
 *   data_tcp_receive.c     records that come
 *   data_tcp_serve.c       a connection at work: opened, woken, judged by the clock
 *   data_tcp_proof.c       dialling, and everything until both ends are proven
 *   data_tcp_listen.c      the listening socket, admission of strangers
 *   data_tcp_post.c        what is posted finds a connection, or dials one
 *   data_tcp.c             the endpoint, its thread and its face
 *
 * Records: a clear head of 8 bytes (u32: length of the text in the lower 24 bits, kind in the upper
 * 8; u32: number of a frame, else 0), the sealed text, a seal of 16 bytes; little-endian. A frame
 * with a payload of at most 64 KiB is one record. A larger one is announced by its header; its
 * receiver grants it once there is a buffer for it, and then its payload follows in records of 64
 * KiB. So a connection is always read, nothing large holds up what is small, and a full pool is
 * felt by the sender alone, frame by frame. */
#ifndef HP_TRANSPORT_DATA_TCP_INT_H
#define HP_TRANSPORT_DATA_TCP_INT_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "transport/data_address.h"
#include "transport/data_int.h"
#include "transport/data_tcp_seal.h"
#include "transport/tcp_loss.h"

enum {
    TCP_HEAD_BYTES = 8,
    TCP_CHUNK_BYTES = 64 << 10,                               /* of a large payload in one record */
    TCP_TEXT_BYTES = FRAME_HEADER_BYTES + DATA_CONTROL_BYTES, /* the longest record's text */
    TCP_RECORD_BYTES = TCP_HEAD_BYTES + TCP_TEXT_BYTES + SEAL_BYTES,
    TCP_READ_BYTES = 4 * TCP_RECORD_BYTES,
    TCP_WRITE_BYTES = 2 * TCP_RECORD_BYTES,
    TCP_UNSENT_BYTES =
        256 << 10, /* in the kernel, not sent yet: what a small frame may have to wait for (2 ms at
                      1 Gbit/s), and how long the thread may wait for a core */
    TCP_MAX_ANNOUNCED = 64, /* large frames of one direction that are announced and not through */
    TCP_MAX_QUEUED = 4096,  /* frames that wait for one peer */
    TCP_MAX_ORDERS = 65536, /* that wait for the thread */
    TCP_MAX_STRANGERS = 256,
    TCP_MAX_STRANGERS_OF_SOURCE = 32,
    TCP_MAX_OF_KEY = 16,   /* connections that one key has opened here */
    TCP_PROOF_MS = 2000,   /* from the first byte of a connection to its proof */
    TCP_HELD_MS = 1000,    /* for a key that is not in the set yet */
    TCP_BEAT_MS = 500,     /* something is sent at least this often */
    TCP_SILENCE_MS = 2500, /* nothing was heard for this long: the peer is gone */
    TCP_STALL_MS =
        10000, /* a granted frame, or one that found no room, does not move for this long */
    TCP_UNREAD_MS = 15000, /* the kernel takes nothing for this long: longer than a peer whose pool
                              is full stays (TCP_STALL_MS) */
    TCP_RETIRE_MS = 5000,
    TCP_CLOSE_MS = 1000,
    TCP_TICK_MS = 100,
    TCP_COUNT_MS = 1000 /* how often it is asked what was lost */
};

enum tcp_record {
    RECORD_HELLO = 1, /* u64 instance, u64 sequence, u8 alone */
    RECORD_FRAME,     /* header, payload of at most 64 KiB */
    RECORD_ANNOUNCE,  /* header; the head holds the frame's number */
    RECORD_GRANT,     /* u8: 1 send it, 0 dropped; of the frame in the head */
    RECORD_PAYLOAD,   /* the next bytes of the frame in the head */
    RECORD_BEAT,
    RECORD_BYE, /* u8 enum tcp_bye */
    RECORD_END
};

enum tcp_bye { BYE_CLOSING = 1, BYE_RETIRING, BYE_REFUSED };

enum { HELLO_BYTES = 17 };

struct tcp_endpoint;
struct tcp_peer;
struct tcp_conn;

/* Whatever epoll may wake. The first member of its owner. */
struct tcp_watch {
    void (*ready)(struct tcp_watch *w, uint32_t events);
    void (*free)(struct tcp_watch *w);
    struct tcp_watch
        *next_dead; /* freed at the end of the turn, since later events of it may name it */
};

struct tcp_order {
    struct tcp_order *next;
    bool is_frame; /* else: the link goes */
    struct tcp_link *link;
};

/* One posted frame. */
struct tcp_frame {
    struct tcp_order order;
    struct tcp_frame *next; /* in its queue */
    uint8_t header[FRAME_HEADER_BYTES];
    bool background; /* a chunk of weights: after all else */
    bool granted;
    uint32_t number; /* while announced */
    struct data_buffer *payload;
    size_t sealed_bytes;
    uint64_t leaves_at; /* it has left when so many bytes of the connection have */
    data_done_fn done;
    void *done_ctx;
};

struct tcp_queue {
    struct tcp_frame *head, **tail;
    size_t count;
};

struct tcp_link {
    struct data_link base;
    struct data_address where;
    struct tcp_order gone; /* so that disconnecting needs no memory */
    /* the thread's own */
    struct tcp_link *next;
    struct tcp_peer *peer; /* from the first post until it breaks */
    bool down;
};

/* A connection that is not proven yet: a stranger, or one that this endpoint opened. */
struct tcp_proof {
    struct tcp_watch watch;
    struct tcp_endpoint *endpoint;
    struct tcp_proof *next;
    int fd;
    struct tcp_peer *peer; /* that is dialled; NULL: a stranger */
    bool connecting;
    struct handshake handshake;
    uint8_t input[HANDSHAKE_MAX_BYTES];
    size_t n_input;
    uint64_t deadline_ms, held_until_ms; /* by the endpoint's clock */
    struct sockaddr_storage from;
};

/* A large frame that comes. */
struct tcp_arrival {
    struct tcp_arrival *next;
    uint32_t number;
    enum { ARRIVAL_WAITS, ARRIVAL_GRANT_DUE, ARRIVAL_DENY_DUE, ARRIVAL_COMES } state;
    struct frame_header header;
    struct data_buffer *payload;
    size_t got_bytes;
};

struct tcp_conn {
    struct tcp_watch watch;
    struct tcp_endpoint *endpoint;
    struct tcp_conn *next;
    struct tcp_peer *peer;
    int fd;
    bool initiated; /* by this endpoint */
    bool greeted;   /* its HELLO has come */
    bool retiring;  /* starts no frame any more */
    bool dirty;     /* has something new to send */
    bool dead;
    uint64_t instance, sequence; /* of the peer's HELLO */
    uint64_t opened_ms, heard_ms, sent_ms, moved_ms, pushed_ms, retired_ms;
    uint32_t events; /* asked of epoll */
    /* receiving */
    struct tcp_seal opener;
    uint8_t *in;
    size_t in_start, in_end;
    int low_water; /* SO_RCVLOWAT */
    bool parked;   /* the record at in_start is open, and its frame waits for room */
    uint64_t parked_ms;
    struct tcp_arrival *arrivals;
    int n_arrivals;
    bool bye_came;
    /* sending */
    struct tcp_seal sealer;
    uint8_t *out;
    size_t out_start, out_end;
    uint64_t sealed_bytes, left_bytes; /* since the connection began */
    struct tcp_loss sent;              /* over it, as TCP says, */
    uint64_t counted_ms;               /* and when it was last asked */
    bool hello_due, bye_due, bye_sent;
    enum tcp_bye bye;
    uint32_t next_number;
    struct tcp_queue announced; /* large frames, granted or not */
    struct tcp_queue leaving;   /* sealed, not yet in the kernel's hands */
};

/* Whoever holds one key. */
struct tcp_peer {
    struct tcp_peer *next;
    struct tcp_endpoint *endpoint;
    uint8_t key[KEY_BYTES];
    bool self;                 /* this endpoint's own key */
    bool admitted;             /* its key was in the set when last looked at */
    struct data_address where; /* port 0: nobody said yet */
    struct tcp_conn *current;  /* carries what is posted */
    struct tcp_proof *dialling;
    int n_conns;
    struct tcp_link *links;
    struct tcp_queue small, large, background; /* frames no connection has taken yet */
};

struct tcp_endpoint {
    struct data_endpoint base;
    struct key_pair keys;
    uint8_t key[KEY_BYTES];
    uint64_t instance;
    pthread_t thread;
    bool thread_started;
    int epoll, wake_fd, listener;
    struct tcp_watch wake_watch, listen_watch;
    pthread_mutex_t awake;                   /* see above; before base.lock */
    struct tcp_order *orders, **orders_tail; /* under base.lock, as all up to n_spare */
    size_t n_orders;
    bool asleep; /* and not woken yet: an order has to */
    struct tcp_frame *spare;
    size_t n_spare;
    atomic_bool stopping, room, peers_changed;
    /* the thread's own */
    uint64_t clock_ms, ticked_ms, turned_ns; /* time in which it listened; of it when it last looked
                                                around; when it last looked at the clock */
    double time_scale;
    bool closing;
    struct tcp_peer *peers;
    struct tcp_conn *conns;
    struct tcp_proof *proofs;
    int n_strangers;
    bool listening;
    struct tcp_watch *dead;
    struct tcp_arrival *spare_arrivals;
    size_t n_spare_arrivals;
    uint64_t hello_sequence;
};

/* ---- data_tcp_watch.c ---- */
uint64_t tcp_ms(const struct tcp_endpoint *d, uint64_t ms); /* stretched by HP_TIME_SCALE */
/* False: the kernel refuses another. */
bool tcp_watch_add(struct tcp_endpoint *d, int fd, struct tcp_watch *w, uint32_t events);
/* No event reaches it any more; it is freed at the end of the turn. */
void tcp_watch_bury(struct tcp_endpoint *d, struct tcp_watch *w,
                    void (*free_watch)(struct tcp_watch *w));
/* A tcp_watch's `ready` that does nothing. */
void tcp_watch_ignore(struct tcp_watch *w, uint32_t events);
/* The end of a turn: what was buried in it is freed. */
void tcp_watches_free(struct tcp_endpoint *d);

/* ---- data_tcp_frame.c ---- */
struct tcp_frame *tcp_frame_get(struct tcp_endpoint *d); /* any thread; NULL: no memory */
/* Ends a frame: gives its buffer back, tells whoever posted it. */
void tcp_frame_end(struct tcp_endpoint *d, struct tcp_frame *f, int status);
void tcp_frames_free(struct tcp_endpoint *d);                /* what was kept */
struct tcp_arrival *tcp_arrival_get(struct tcp_endpoint *d); /* NULL: no memory */
void tcp_arrival_put_back(struct tcp_endpoint *d, struct tcp_arrival *a);
/* Queues of frames: put at the end, taken (NULL: it is empty) from the front, removed anywhere. */
void tcp_queue_init(struct tcp_queue *q);
void tcp_queue_put(struct tcp_queue *q, struct tcp_frame *f);
struct tcp_frame *tcp_queue_take(struct tcp_queue *q);
void tcp_queue_remove(struct tcp_queue *q, struct tcp_frame *f);
/* Ends all of its frames. */
void tcp_queue_fail(struct tcp_endpoint *d, struct tcp_queue *q, int status);
/* The callback may post on any connection, but frees none. */
void tcp_frame_deliver(struct tcp_endpoint *d, const struct frame_header *h,
                       struct data_buffer *payload);

/* ---- data_tcp_listen.c ---- */
int tcp_listen(struct tcp_endpoint *d, const char *host, uint16_t port, struct err *e);
/* Watches the listening socket again, which is left alone while no descriptors are left. */
void tcp_listen_again(struct tcp_endpoint *d);

/* ---- data_tcp_proof.c ---- */
/* Begins a connection to where the peer is said to be. */
void tcp_dial(struct tcp_peer *peer);
/* `peer` NULL: a stranger. NULL: no memory. */
struct tcp_proof *tcp_proof_create(struct tcp_endpoint *d, int fd, struct tcp_peer *peer,
                                   uint32_t events);
/* The proof failed: a stranger is counted, a peer that was dialled fails. */
void tcp_proof_fail(struct tcp_proof *p, int status, const char *why);
/* A stranger was refused: counted, and told in the log once a second. */
void tcp_refused_count(struct tcp_endpoint *d, const struct sockaddr_storage *from,
                       const char *why);
/* Those that take too long fail. */
void tcp_proofs_tick(struct tcp_endpoint *d);
/* The set of keys changed: those that were held may come in. */
void tcp_proofs_look(struct tcp_endpoint *d);
/* The end: all of them. */
void tcp_proofs_drop(struct tcp_endpoint *d);
/* A numeric host; 0: it is none. */
socklen_t tcp_sockaddr(const char *host, uint16_t port, struct sockaddr_storage *out);

/* ---- data_tcp_peer.c ---- */
struct tcp_peer *tcp_peer_get(struct tcp_endpoint *d,
                              const uint8_t key[KEY_BYTES]); /* finds or makes; NULL: no memory */
/* Whoever posts on the link disconnected it: frees it. */
void tcp_peer_link_gone(struct tcp_link *link);
/* The link is down for good, and its owner is told why. */
void tcp_link_fail(struct tcp_endpoint *d, struct tcp_link *link, const struct err *why);
/* Everything that is posted to it fails, its links are told why. */
void tcp_peer_fail(struct tcp_peer *peer, const struct err *why);
/* Whether frames wait that no connection has taken yet. */
bool tcp_peer_has_queue(const struct tcp_peer *peer);
/* Where it is and the beginning of its key, for people; gives `out`. */
const char *tcp_peer_name(const struct tcp_peer *peer, char out[96]);

/* ---- data_tcp_post.c ---- */
/* A frame for its link's peer: sent, queued, or ended because there is no way there. */
void tcp_peer_post(struct tcp_endpoint *d, struct tcp_frame *f);
/* Frames to this endpoint's own key come back, as far as there is room. */
void tcp_peer_self_deliver(struct tcp_peer *peer);
/* Each that has something to send gets a connection; who is of no use any more is freed. */
void tcp_peers_tick(struct tcp_endpoint *d);
/* The set of keys changed: connections of those that left it end. */
void tcp_peers_look(struct tcp_endpoint *d);

/* ---- data_tcp_serve.c ---- */
/* Takes the descriptor. NULL: no memory (the descriptor is closed). */
struct tcp_conn *tcp_conn_open(struct tcp_endpoint *d, struct tcp_peer *peer, int fd,
                               bool initiated, const struct handshake_result *r);
/* Connections that stand still too long end; those that are silent send a beat. */
void tcp_conns_tick(struct tcp_endpoint *d);

/* ---- data_tcp_loss.c ---- */
/* What TCP says of the connection so far counts for its peer. */
void tcp_conn_count(struct tcp_conn *c);

/* ---- data_tcp_connection.c ---- */
/* With its ciphers, on no socket yet. NULL: no memory. */
struct tcp_conn *tcp_conn_create(const struct handshake_result *r);
/* The other end's greeting: where there are two connections, it says which one stays. */
void tcp_conn_hello(struct tcp_conn *c, const uint8_t *text);
/* Its goodbye (enum tcp_bye). */
void tcp_conn_bye(struct tcp_conn *c, uint8_t why);
/* Ends it at once; `e` says why in words for whoever used it. */
void tcp_conn_break(struct tcp_conn *c, const struct err *e);
/* The same with the peer's name before the text; gives HP_ELINK. */
int tcp_conn_broken(struct tcp_conn *c, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Starts no frame any more; ends when what is on its way is through. */
void tcp_conn_retire(struct tcp_conn *c, enum tcp_bye bye);
/* What epoll is to wake it for. */
void tcp_conn_ask(struct tcp_conn *c, uint32_t events);
/* Wake the thread when so many bytes are there; 0: at once. */
void tcp_conn_low_water(struct tcp_conn *c, size_t missing);
/* With what has come of it. */
void tcp_arrival_free(struct tcp_conn *c, struct tcp_arrival *a);
void tcp_conn_free(struct tcp_watch *w);

/* ---- data_tcp_send.c ---- */
/* Seals and sends what is due, as far as the kernel takes it and the turn lasts. */
void tcp_conn_write(struct tcp_conn *c);
/* On the thread of whoever posts, which has `awake`: a small frame goes straight to the kernel when
 * nothing is ahead of it; else false, and it is the caller's still. What is left of it makes the
 * connection dirty. */
bool tcp_conn_send_now(struct tcp_conn *c, struct tcp_frame *f);
/* The other end's answer to a frame that was announced: it goes now, or has been dropped. */
void tcp_conn_granted(struct tcp_conn *c, uint32_t number, bool granted);

/* ---- data_tcp_receive.c ---- */
/* Reads once, and handles the records that are whole. */
void tcp_conn_read(struct tcp_conn *c);
/* There may be room in the pool. */
void tcp_conn_room(struct tcp_conn *c);

#endif
