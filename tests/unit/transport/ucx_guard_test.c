/* The guard before UCX: strangers with raw sockets, members who come, go, and lie about who they
 * are. */
#include <arpa/inet.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "common/env.h"
#include "transport/data.h"
#include "transport/data_address.h"
#include "transport/data_int.h"
#include "transport/handshake.h"
#include "transport/ucx_guard_int.h"

enum { SESSION = 7 };

struct end {
    struct data_endpoint *d;
    struct key_pair keys;
    uint8_t key[KEY_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int frames, downs, done, failed; /* under the lock, with what follows */
    struct err why;
};

static void end_count(struct end *end, int *value)
{
    pthread_mutex_lock(&end->lock);
    ++*value;
    pthread_cond_broadcast(&end->changed);
    pthread_mutex_unlock(&end->lock);
}

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct end *end = ctx;
    (void)h;
    data_buffer_release(end->d, payload);
    end_count(end, &end->frames);
}

static void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct end *end = ctx;
    (void)link;
    pthread_mutex_lock(&end->lock);
    end->why = *why;
    pthread_mutex_unlock(&end->lock);
    end_count(end, &end->downs);
}

static void on_done(void *ctx, int status)
{
    struct end *end = ctx;
    if (status != 0)
        end_count(end, &end->failed);
    end_count(end, &end->done);
}

static void end_prepare(struct end *end)
{
    memset(end, 0, sizeof *end);
    pthread_mutex_init(&end->lock, NULL);
    pthread_cond_init(&end->changed, NULL);
    assert_int_equal(key_pair_create(&end->keys, NULL), 0);
    assert_int_equal(key_decode(end->keys.public_key, end->key, NULL), 0);
}

static void end_open(struct end *end)
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

static bool wait_for(struct end *end, const int *value, int at_least)
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

static int look_at(struct end *end, const int *value)
{
    pthread_mutex_lock(&end->lock);
    int v = *value;
    pthread_mutex_unlock(&end->lock);
    return v;
}

static void admit(struct end *end, const struct end *other)
{
    assert_int_equal(data_peers_allow(end->d, &other->key, 1, NULL), 0);
}

static struct data_address address_of(const struct end *end)
{
    size_t size;
    struct err e = {0};
    struct data_address a;
    const uint8_t *bytes = data_address(end->d, &size);
    if (data_address_parse(bytes, size, &a, &e) < 0)
        fail_msg("%s", e.text);
    return a;
}

static struct data_link *link_at(struct end *from, const struct data_address *to)
{
    char text[DATA_ADDRESS_TEXT];
    struct err e = {0};
    struct data_link *link = NULL;
    size_t size = data_address_print(to, text);
    if (data_connect(from->d, (const uint8_t *)text, size, &link, &e) < 0)
        fail_msg("%s", e.text);
    return link;
}

static struct data_link *link_to(struct end *from, const struct end *to)
{
    struct data_address a = address_of(to);
    return link_at(from, &a);
}

static void post(struct end *from, struct data_link *link, size_t bytes)
{
    struct frame_header h = {.kind = FRAME_KV, .session = SESSION, .dtype = FRAME_BYTES};
    struct data_buffer *b = bytes ? data_buffer_get(from->d, bytes) : NULL;
    if (b)
        memset(b->bytes, 1, bytes);
    data_post(link, &h, b, on_done, from);
}

static uint64_t refused_by(const struct end *end)
{
    struct data_stats s;
    data_stats(end->d, &s);
    return s.refused_strangers;
}

static bool wait_refused(const struct end *end, uint64_t at_least)
{
    for (int i = 0; i < 1000 * env_time_scale(); i++) {
        if (refused_by(end) >= at_least)
            return true;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return false;
}

/* ---- strangers
 * ------------------------------------------------------------------------------------------------------------------
 */

/* UCX's magic for TCP, one active-message header, zeros: enough to end a process whose UCX reads
 * it. */
static const uint8_t deadly[77] = {0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca, 0x0a, 0x40};

static int stranger_connect(uint16_t port)
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
static bool is_turned_away(int fd)
{
    uint8_t byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* The inodes of all sockets of this process. */
static size_t own_sockets(unsigned long *inodes, size_t max)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat s;
        if (n < max && fstat(atoi(entry->d_name), &s) == 0 && S_ISSOCK(s.st_mode))
            inodes[n++] = s.st_ino;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* All TCP ports at which this process listens. */
static int own_ports(uint16_t *ports, int max)
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

static void bytes_of_strangers_reach_ucx_at_no_port(void **state)
{
    (void)state;
    struct end a, b;
    uint16_t ports[16];
    end_open(&a);
    int n = own_ports(ports, 16);
    assert_true(n >= 2); /* the listener, and that of UCX's interface */
    end_open(&b);
    admit(&a, &b);
    struct data_link *link = link_to(&b, &a);
    post(&b, link, 100);
    assert_true(wait_for(&a, &a.frames, 1));
    for (int i = 0; i < n; i++) {
        int fd = stranger_connect(ports[i]);
        assert_true(fd >= 0);
        assert_int_equal(send(fd, deadly, sizeof deadly, MSG_NOSIGNAL), sizeof deadly);
        assert_true(is_turned_away(fd));
        close(fd);
    }
    assert_true(wait_refused(&a, (uint64_t)n));
    assert_int_equal(refused_by(&a), n);
    post(&b, link, 100);
    assert_true(wait_for(&a, &a.frames, 2));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void silent_strangers_keep_no_member_out(void **state)
{
    (void)state;
    enum { SILENT = 400 };
    static int fds[SILENT];
    struct end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    uint16_t port = address_of(&a).port;
    for (int i = 0; i < SILENT; i++)
        assert_true((fds[i] = stranger_connect(port)) >= 0);
    struct data_link *link = link_to(&b, &a);
    post(&b, link, 100);
    assert_true(wait_for(&a, &a.frames, 1));
    for (int i = 0; i < SILENT; i++) {
        assert_true(is_turned_away(fds[i])); /* after 2 s at the latest */
        close(fds[i]);
    }
    assert_true(wait_refused(&a, SILENT));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void ten_thousand_connections_disturb_no_member(void **state)
{
    (void)state;
    enum { STRANGERS = 10000, EACH = 50 };
    struct end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    uint16_t port = address_of(&a).port;
    struct data_link *link = link_to(&b, &a);
    int frames = 0;
    for (int i = 0; i < STRANGERS; i++) {
        int fd = stranger_connect(port);
        if (fd >= 0 && i % 3 == 0)
            (void)!send(fd, deadly, (size_t)i % sizeof deadly, MSG_NOSIGNAL);
        if (fd >= 0)
            close(fd);
        if (i % EACH == 0) {
            post(&b, link, 100);
            assert_true(wait_for(&a, &a.frames, ++frames));
        }
    }
    assert_int_equal(look_at(&b, &b.downs), 0);
    assert_true(wait_refused(&a, STRANGERS * 9 / 10));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

/* Leads a handshake as initiator as far as it goes; the number of messages that were sent. */
static int handshake_try(int fd, const struct key_pair *own, const uint8_t responder[KEY_BYTES],
                         int messages)
{
    struct handshake h;
    uint8_t in[HANDSHAKE_MAX_BYTES];
    int sent = 0;
    assert_int_equal(
        handshake_initiate(&h, own, responder, HANDSHAKE_UCX, handshake_ciphers(), NULL), 0);
    while (sent < messages && handshake_state(&h) == HANDSHAKE_WRITE) {
        size_t size;
        const uint8_t *out = handshake_output(&h, &size);
        if (send(fd, out, size, MSG_NOSIGNAL) != (ssize_t)size)
            break;
        handshake_sent(&h);
        sent++;
        if (handshake_state(&h) == HANDSHAKE_READ &&
            (recv(fd, in, handshake_wants(&h), MSG_WAITALL) != (ssize_t)handshake_wants(&h) ||
             handshake_read(&h, in, handshake_wants(&h), NULL) < 0))
            break;
    }
    handshake_wipe(&h);
    return sent;
}

/* Closes it so that the other end sees an error at once. */
static void slam(int fd)
{
    struct linger none = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fd);
}

static void who_takes_the_place_of_one_that_hangs_up_is_not_taken_for_it(void **state)
{
    (void)state;
    enum { SILENT = 31 };
    int silent[SILENT];
    struct end a, b;
    struct handshake h;
    size_t size;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    struct data_address to = address_of(&a);
    for (int i = 0; i < SILENT; i++)
        assert_true((silent[i] = stranger_connect(to.port)) >= 0);
    nanosleep(&(struct timespec){0, 200000000}, NULL); /* all have been taken */
    pthread_mutex_lock(
        &a.d->lock); /* the guard stands still where it asks whether a key is allowed */
    int member = stranger_connect(to.port);
    assert_int_equal(
        handshake_initiate(&h, &b.keys, a.key, HANDSHAKE_UCX, handshake_ciphers(), NULL), 0);
    assert_int_equal(send(member, handshake_output(&h, &size), HANDSHAKE_FIRST_BYTES, MSG_NOSIGNAL),
                     HANDSHAKE_FIRST_BYTES);
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    int newcomer = stranger_connect(
        to.port); /* one too many: it gets the place of the first, who hangs up meanwhile */
    for (int i = 0; i < SILENT; i++)
        slam(silent[i]);
    pthread_mutex_unlock(&a.d->lock);
    assert_int_equal(handshake_try(newcomer, &b.keys, a.key, 2), 2);
    handshake_wipe(&h);
    close(member);
    close(newcomer);
    data_close(&a.d);
    data_close(&b.d);
}

static void no_port_stays_deaf_after_descriptors_ran_out(void **state)
{
    (void)state;
    struct end a;
    uint16_t ports[16];
    int fds[16] = {0};
    struct rlimit all, few;
    end_open(&a);
    int n = own_ports(ports, 16);
    assert_in_range(n, 2, 16);
    for (int i = 0; i < n; i++)
        assert_true((fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
    getrlimit(RLIMIT_NOFILE, &all);
    few = all;
    few.rlim_cur = (rlim_t)fds[n - 1] + 1; /* so that accept finds none */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < n; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(ports[i]),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        assert_int_equal(connect(fds[i], (struct sockaddr *)&to, sizeof to), 0);
    }
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    setrlimit(RLIMIT_NOFILE, &all);
    for (int i = 0; i < n; i++) {
        struct timeval patience = {5, 0};
        setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        assert_int_equal(send(fds[i], deadly, sizeof deadly, MSG_NOSIGNAL), sizeof deadly);
        assert_true(is_turned_away(fds[i]));
        close(fds[i]);
    }
    data_close(&a.d);
}

static void half_handshakes_end_at_their_deadline(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    struct data_address to = address_of(&a);
    int half = stranger_connect(to.port), silent_after = stranger_connect(to.port);
    assert_int_equal(send(half, deadly, 5, MSG_NOSIGNAL), 5);
    assert_int_equal(handshake_try(silent_after, &b.keys, a.key, 1),
                     1); /* a member that stops in the middle */
    assert_true(is_turned_away(half));
    assert_true(is_turned_away(silent_after));
    assert_true(wait_refused(&a, 2));
    close(half);
    close(silent_after);
    data_close(&a.d);
    data_close(&b.d);
}

static void keys_that_are_no_members_are_held_and_refused(void **state)
{
    (void)state;
    struct end a, b;
    struct key_pair foreign;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    assert_int_equal(key_pair_create(&foreign, NULL), 0);
    struct data_address to = address_of(&a);
    int fd = stranger_connect(to.port);
    struct timespec started, ended;
    clock_gettime(CLOCK_MONOTONIC, &started);
    assert_int_equal(handshake_try(fd, &foreign, a.key, 2), 1);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_true((double)(ended.tv_sec - started.tv_sec) <= 3 * env_time_scale());
    assert_true(wait_refused(&a, 1));
    close(fd);
    data_close(&a.d);
    data_close(&b.d);
}

/* ---- members
 * --------------------------------------------------------------------------------------------------------------------
 */

static void news_of_a_member_may_come_after_the_member(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a);
    end_open(&b);
    struct data_link *link = link_to(&b, &a);
    post(&b, link, 100);
    nanosleep(&(struct timespec){0, 200000000},
              NULL); /* less than the second that an unknown key is held */
    assert_int_equal(look_at(&a, &a.frames), 0);
    admit(&a, &b);
    assert_true(wait_for(&a, &a.frames, 1));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void a_key_that_leaves_the_set_loses_its_connection(void **state)
{
    (void)state;
    struct end a, b, c;
    end_open(&a);
    end_open(&b);
    end_open(&c);
    uint8_t both[2][KEY_BYTES];
    memcpy(both[0], b.key, KEY_BYTES);
    memcpy(both[1], c.key, KEY_BYTES);
    assert_int_equal(data_peers_allow(a.d, both, 2, NULL), 0);
    struct data_link *from_b = link_to(&b, &a), *from_c = link_to(&c, &a);
    post(&b, from_b, 100);
    post(&c, from_c, 200000);
    assert_true(wait_for(&a, &a.frames, 2));
    admit(&a, &c); /* and b no more */
    assert_true(wait_for(&b, &b.downs, 1));
    assert_int_equal(b.why.code, HP_ELINK);
    post(&b, from_b, 100);
    assert_true(wait_for(&b, &b.failed, 1));
    post(&c, from_c, 200000);
    assert_true(wait_for(&a, &a.frames, 3));
    assert_int_equal(look_at(&c, &c.downs), 0);
    data_disconnect(&from_b);
    struct data_link *again = link_to(&b, &a);
    post(&b, again, 100);
    assert_true(wait_for(&b, &b.downs, 2));
    assert_int_equal(look_at(&a, &a.frames), 3);
    data_disconnect(&again);
    data_disconnect(&from_c);
    data_close(&a.d);
    data_close(&b.d);
    data_close(&c.d);
}

static void a_link_that_cannot_be_made_names_host_port_and_reason(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a);
    end_open(&b);
    struct data_address nobody = address_of(&a);
    data_close(&a.d);
    struct data_link *link = link_at(&b, &nobody);
    char port[16];
    snprintf(port, sizeof port, "port %u", nobody.port);
    post(&b, link, 100);
    assert_true(wait_for(&b, &b.downs, 1));
    assert_non_null(strstr(b.why.text, "127.0.0.1"));
    assert_non_null(strstr(b.why.text, port));
    assert_non_null(strstr(b.why.text, "refused"));
    assert_string_not_equal(b.why.hint, "");
    assert_true(wait_for(&b, &b.failed, 1));
    data_disconnect(&link);
    data_close(&b.d);
}

static void an_address_with_another_key_is_not_connected(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a);
    end_open(&b);
    admit(&a, &b);
    struct data_address wrong = address_of(&a);
    memcpy(wrong.key, b.key, KEY_BYTES);
    struct data_link *link = link_at(&b, &wrong), *right = link_to(&b, &a);
    post(&b, link, 100);
    assert_true(wait_for(&b, &b.downs, 1));
    post(&b, right, 100);
    assert_true(wait_for(&a, &a.frames, 1));
    data_disconnect(&link);
    data_disconnect(&right);
    data_close(&a.d);
    data_close(&b.d);
}

static void a_fixed_port_is_used_and_the_next_one_and_both_again_after_a_restart(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a);
    uint16_t port = 0, ports[16];
    for (int i = 0; i < 50 && !port; i++) { /* two ports that are free now */
        uint16_t candidate = (uint16_t)(20000 + (getpid() * 7 + i * 2) % 10000);
        int fds[2] = {stranger_connect(candidate), stranger_connect((uint16_t)(candidate + 1))};
        port = fds[0] < 0 && fds[1] < 0 ? candidate : 0;
        for (int k = 0; k < 2; k++)
            if (fds[k] >= 0)
                close(fds[k]);
    }
    for (int turn = 0; turn < 2; turn++) {
        struct err e = {0};
        end_prepare(&b);
        struct data_config c = {.network = "lo",
                                .host = "127.0.0.1",
                                .port = port,
                                .keys = b.keys,
                                .callbacks = {&b, on_frame, on_down}};
        if (data_open_ucx(&c, &b.d, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(data_allow(b.d, SESSION, NULL, NULL), 0);
        assert_int_equal(address_of(&b).port, port);
        int n = own_ports(ports, 16), found = 0;
        for (int i = 0; i < n; i++)
            found += ports[i] == port || ports[i] == port + 1;
        assert_int_equal(found, 2);
        struct data_endpoint *third = NULL;
        assert_int_equal(data_open_ucx(&c, &third, &e), HP_EBUSY);
        admit(&b, &a);
        struct data_link *link = link_to(&a, &b);
        post(&a, link, 100);
        assert_true(wait_for(&b, &b.frames, 1));
        data_close(&b.d); /* the side that closes first keeps its ports for a while, if nobody asked
                             for them again */
        data_disconnect(&link);
    }
    data_close(&a.d);
}

/* A socket that listens, takes connections into its backlog, and never says a word. */
static int silent_listener(struct data_address *at)
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

static void a_peer_that_says_nothing_is_given_up_after_two_seconds(void **state)
{
    (void)state;
    struct end a;
    end_open(&a);
    struct data_address nobody = address_of(&a);
    int fd = silent_listener(&nobody);
    struct data_link *link = link_at(&a, &nobody);
    post(&a, link, 100);
    post(&a, link, 100000);
    assert_true(wait_for(&a, &a.failed, 2));
    assert_true(wait_for(&a, &a.downs, 1));
    assert_non_null(strstr(a.why.text, "within 2 s"));
    data_disconnect(&link);
    data_close(&a.d);
    close(fd);
}

static void closing_does_not_wait_for_a_peer_that_says_nothing(void **state)
{
    (void)state;
    struct end a;
    end_open(&a);
    struct data_address nobody = address_of(&a);
    int fd = silent_listener(&nobody);
    struct data_link *link = link_at(&a, &nobody);
    post(&a, link, 100);
    post(&a, link, 100000);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    data_disconnect(&link);
    data_close(&a.d);
    assert_int_equal(a.done, 2);
    assert_int_equal(a.failed, 2);
    close(fd);
}

static bool all_are_allowed(void *ctx, const uint8_t *key)
{
    (void)ctx, (void)key;
    return true;
}

/* Plays a member's guard on the next connection, up to the point where UCX would get it. */
static int play_guard(int listener, const struct end *member, const struct guard_address *at)
{
    struct guard_talk talk;
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(guard_talk_respond(&talk, fd, &member->keys, NULL), 0);
    enum guard_turn turn = GUARD_WANTS_READ;
    for (int i = 0; i < 2000 && turn != GUARD_DONE && turn != GUARD_GIVE && turn != GUARD_REFUSED;
         i++) {
        turn = guard_talk_go(&talk, all_are_allowed, NULL);
        if (turn == GUARD_ANSWER)
            guard_talk_tell(&talk, at, 1);
        else if (turn == GUARD_WANTS_READ)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    guard_talk_wipe(&talk);
    assert_true(turn == GUARD_DONE || turn == GUARD_GIVE);
    return fd;
}

static void a_member_whose_ucx_says_nothing_is_given_up(void **state)
{
    (void)state;
    struct end a, dumb;
    end_open(&a);
    end_prepare(&dumb);
    struct data_address at = address_of(&a);
    memcpy(at.key, dumb.key, KEY_BYTES);
    int listener = silent_listener(&at);
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(at.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct guard_address own;
    assert_true(guard_address_of((struct sockaddr *)&sa, sizeof sa, &own));
    struct data_link *link = link_at(&a, &at);
    post(&a, link, 100);
    close(play_guard(listener, &dumb, &own));
    int given = play_guard(listener, &dumb, &own);
    assert_true(wait_for(&a, &a.failed, 1));
    assert_true(wait_for(&a, &a.downs, 1));
    assert_non_null(strstr(a.why.text, "has not answered"));
    close(given);
    close(listener);
    data_disconnect(&link);
    data_close(&a.d);
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static void members_that_come_and_go_leave_nothing_behind(void **state)
{
    (void)state;
    enum { TURNS = 25 };
    struct end a, b;
    end_open(&a);
    int before = 0;
    for (int i = 0; i < TURNS; i++) {
        end_open(&b);
        admit(&a, &b);
        struct data_link *link = link_to(&b, &a);
        post(&b, link, i % 2 ? 200000 : 100);
        assert_true(wait_for(&a, &a.frames, i + 1));
        if (i % 3)
            data_disconnect(&link);
        data_close(&b.d);
        if (i == 4)
            before = open_descriptors();
    }
    int after = open_descriptors();
    for (int i = 0; i < 500 && after > before + 4; i++) { /* the other side notices in its time */
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        after = open_descriptors();
    }
    assert_in_range(after, 1, before + 4);
    data_close(&a.d);
}

/* ---- UCX itself
 * ------------------------------------------------------------------------------------------------------------------
 */

static void ucx_without_a_guard_can_not_listen(void **state)
{
    (void)state;
    struct end a; /* from now on UCX's calls are known */
    end_open(&a);
    ucp_config_t *config;
    ucp_context_h context;
    ucp_worker_h worker;
    assert_int_equal(ucp_config_read(NULL, NULL, &config), UCS_OK);
    ucp_config_modify(config, "TLS", "tcp");
    ucp_config_modify(config, "NET_DEVICES", "lo");
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    assert_int_equal(ucp_init(&p, config, &context), UCS_OK);
    ucp_config_release(config);
    ucp_worker_params_t w = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    assert_int_not_equal(ucp_worker_create(context, &w, &worker), UCS_OK);
    ucp_cleanup(context);
    data_close(&a.d);
}

static bool nobody_is_allowed(void *ctx, const uint8_t key[KEY_BYTES])
{
    (void)ctx, (void)key;
    return false;
}

static void nobody_counts(void *ctx, const char *from, const char *why)
{
    (void)ctx, (void)from, (void)why;
}

static void a_ucx_that_goes_around_the_guard_is_noticed(void **state)
{
    (void)state;
    struct ucx_guard_config c = {.allowed = nobody_is_allowed, .refused = nobody_counts};
    struct ucx_guard *g;
    struct err e = {0};
    assert_int_equal(key_pair_create(&c.keys, NULL), 0);
    assert_int_equal(ucx_guard_open(&c, &g, &e), 0);
    int fd =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a listener that the guard has not seen */
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof sa;
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa) | listen(fd, 5) |
                         getsockname(fd, (struct sockaddr *)&sa, &size),
                     0);
    struct data_address own = {
        .kind = DATA_KIND_UCX, .host = "127.0.0.1", .port = ntohs(sa.sin_port)};
    assert_int_equal(ucx_guard_test(g, &own, &e), HP_EUNSUPPORTED);
    close(fd);
    ucx_guard_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_strangers_reach_ucx_at_no_port),
        cmocka_unit_test(silent_strangers_keep_no_member_out),
        cmocka_unit_test(ten_thousand_connections_disturb_no_member),
        cmocka_unit_test(who_takes_the_place_of_one_that_hangs_up_is_not_taken_for_it),
        cmocka_unit_test(no_port_stays_deaf_after_descriptors_ran_out),
        cmocka_unit_test(half_handshakes_end_at_their_deadline),
        cmocka_unit_test(keys_that_are_no_members_are_held_and_refused),
        cmocka_unit_test(news_of_a_member_may_come_after_the_member),
        cmocka_unit_test(a_key_that_leaves_the_set_loses_its_connection),
        cmocka_unit_test(a_link_that_cannot_be_made_names_host_port_and_reason),
        cmocka_unit_test(an_address_with_another_key_is_not_connected),
        cmocka_unit_test(a_peer_that_says_nothing_is_given_up_after_two_seconds),
        cmocka_unit_test(closing_does_not_wait_for_a_peer_that_says_nothing),
        cmocka_unit_test(a_member_whose_ucx_says_nothing_is_given_up),
        cmocka_unit_test(members_that_come_and_go_leave_nothing_behind),
        cmocka_unit_test(a_fixed_port_is_used_and_the_next_one_and_both_again_after_a_restart),
        cmocka_unit_test(ucx_without_a_guard_can_not_listen),
        cmocka_unit_test(a_ucx_that_goes_around_the_guard_is_noticed),
    };
    return cmocka_run_group_tests_name("ucx_guard", tests, NULL, NULL);
}
