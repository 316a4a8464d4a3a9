/* An end of a data channel over UCX for tests, and strangers with sockets of their own. */
#ifndef HP_TESTS_UCX_FIXTURE_H
#define HP_TESTS_UCX_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "eventually.h"
#include "tests/test.h"
#include "transport/data.h"
#include "transport/data_address.h"

enum { SESSION = 7 };

struct ucx_end {
    struct data_endpoint *d;
    struct key_pair keys;
    uint8_t key[KEY_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int frames, downs, done, failed; /* under the lock, with what follows */
    struct err why;
};

static inline void end_count(struct ucx_end *end, int *value)
{
    pthread_mutex_lock(&end->lock);
    ++*value;
    pthread_cond_broadcast(&end->changed);
    pthread_mutex_unlock(&end->lock);
}

static inline void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct ucx_end *end = ctx;
    (void)h;
    data_buffer_release(end->d, payload);
    end_count(end, &end->frames);
}

static inline void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct ucx_end *end = ctx;
    (void)link;
    pthread_mutex_lock(&end->lock);
    end->why = *why;
    pthread_mutex_unlock(&end->lock);
    end_count(end, &end->downs);
}

static inline void on_done(void *ctx, int status)
{
    struct ucx_end *end = ctx;
    if (status != 0)
        end_count(end, &end->failed);
    end_count(end, &end->done);
}

static inline void end_prepare(struct ucx_end *end)
{
    memset(end, 0, sizeof *end);
    pthread_mutex_init(&end->lock, NULL);
    pthread_cond_init(&end->changed, NULL);
    assert_int_equal(key_pair_create(&end->keys, NULL), 0);
    assert_int_equal(key_decode(end->keys.public_key, end->key, NULL), 0);
}

static inline void end_open(struct ucx_end *end)
{
    struct err e = {0};
    end_prepare(end);
    struct data_config c = {.network = "lo",
                            .host = "127.0.0.1",
                            .keys = end->keys,
                            .callbacks = {end, on_frame, on_down}};
    if (data_open_ucx(&c, &end->d, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(data_allow(end->d, SESSION, NULL, &e), 0);
}

static inline bool wait_for(struct ucx_end *end, const int *value, int at_least)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(20 * env_time_scale());
    int rc = 0;
    pthread_mutex_lock(&end->lock);
    while (*value < at_least && rc == 0)
        rc = pthread_cond_timedwait(&end->changed, &end->lock, &until);
    bool reached = *value >= at_least;
    pthread_mutex_unlock(&end->lock);
    return reached;
}

static inline int look_at(struct ucx_end *end, const int *value)
{
    pthread_mutex_lock(&end->lock);
    int v = *value;
    pthread_mutex_unlock(&end->lock);
    return v;
}

/* Whether so many frames have reached `to`; false as soon as more links of `from` have broken than
 * `downs`, and when it takes too long. */
static inline bool frames_reach(struct ucx_end *to, struct ucx_end *from, int at_least, int downs)
{
    enum { STEP_NS = 100000000 };
    uint64_t until_ns = env_now_ns(&env_real) + (uint64_t)(20e9 * env_time_scale());
    struct timespec step;
    pthread_mutex_lock(&to->lock);
    while (to->frames < at_least && env_now_ns(&env_real) < until_ns &&
           look_at(from, &from->downs) <= downs) {
        clock_gettime(CLOCK_REALTIME, &step);
        step.tv_sec += (step.tv_nsec + STEP_NS) / 1000000000;
        step.tv_nsec = (step.tv_nsec + STEP_NS) % 1000000000;
        pthread_cond_timedwait(&to->changed, &to->lock, &step);
    }
    bool reached = to->frames >= at_least;
    pthread_mutex_unlock(&to->lock);
    return reached;
}

static inline void frames_come(struct ucx_end *to, struct ucx_end *from, int at_least)
{
    if (!frames_reach(to, from, at_least, look_at(from, &from->downs)))
        fail_msg("%d of %d frames came; links that broke: %d (%s)", look_at(to, &to->frames),
                 at_least, look_at(from, &from->downs), from->why.text);
}

static inline void admit(struct ucx_end *end, const struct ucx_end *other)
{
    assert_int_equal(data_peers_allow(end->d, &other->key, 1, NULL), 0);
}

static inline struct data_address address_of(const struct ucx_end *end)
{
    size_t size;
    struct err e = {0};
    struct data_address a;
    const uint8_t *bytes = data_address(end->d, &size);
    if (data_address_parse(bytes, size, &a, &e) < 0)
        fail_msg("%s", e.text);
    return a;
}

static inline struct data_link *link_at(struct ucx_end *from, const struct data_address *to)
{
    char text[DATA_ADDRESS_TEXT];
    struct err e = {0};
    struct data_link *link = NULL;
    size_t size = data_address_print(to, text);
    if (data_connect(from->d, (const uint8_t *)text, size, &link, &e) < 0)
        fail_msg("%s", e.text);
    return link;
}

static inline struct data_link *link_to(struct ucx_end *from, const struct ucx_end *to)
{
    struct data_address a = address_of(to);
    return link_at(from, &a);
}

static inline void post(struct ucx_end *from, struct data_link *link, size_t bytes)
{
    struct frame_header h = {.kind = FRAME_KV, .session = SESSION, .dtype = FRAME_BYTES};
    struct data_buffer *b = bytes ? data_buffer_get(from->d, bytes) : NULL;
    if (b)
        memset(b->bytes, 1, bytes);
    data_post(link, &h, b, on_done, from);
}

/* A link over which a frame has come. The guard's deadlines are seconds of the clock: on a box that
 * leaves this process no time it breaks before that, and another one is made. */
static inline struct data_link *link_up(struct ucx_end *from, struct ucx_end *to)
{
    enum { TRIES = 5 };
    for (int i = 0; i < TRIES; i++) {
        int frames = look_at(to, &to->frames), downs = look_at(from, &from->downs);
        struct data_link *link = link_to(from, to);
        post(from, link, 100);
        if (frames_reach(to, from, frames + 1, downs))
            return link;
        data_disconnect(&link);
    }
    fail_msg("no link of %d carries a frame: %s", TRIES, from->why.text);
    return NULL;
}

static inline uint64_t refused_by(const struct ucx_end *end)
{
    struct data_stats s;
    data_stats(end->d, &s);
    return s.refused_strangers;
}

static inline bool wait_refused(const struct ucx_end *end, uint64_t at_least)
{
    return EVENTUALLY(refused_by(end) >= at_least);
}

/* UCX's magic for TCP, one active-message header, zeros: enough to end a process whose UCX reads
 * it. */
static const uint8_t deadly[77] = {0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca, 0x0a, 0x40};

static inline int stranger_connect(uint16_t port)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {20, 0};
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* True when the other side closes without having said a byte. */
static inline bool is_turned_away(int fd)
{
    uint8_t byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* All TCP ports at which this process listens. */
static inline int own_ports(uint16_t *ports, int max)
{
    unsigned long inodes[256], inode;
    size_t n_inodes = own_sockets(inodes, 256);
    unsigned port, state;
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/net/tcp", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, " %*d: %*8x:%x %*8x:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state,
                   &inode) != 3 ||
            state != 10)
            continue;
        for (size_t i = 0; i < n_inodes; i++)
            if (inodes[i] == inode && n < max)
                ports[n++] = (uint16_t)port;
    }
    fclose(f);
    return n;
}

/* A socket that listens, takes connections into its backlog, and never says a word. */
static inline int silent_listener(struct data_address *at)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa) | listen(fd, 5) |
                         getsockname(fd, (struct sockaddr *)&sa, &size),
                     0);
    at->port = ntohs(sa.sin_port);
    return fd;
}

/* Closes it so that the other end sees an error at once. */
static inline void slam(int fd)
{
    struct linger none = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fd);
}

#endif
