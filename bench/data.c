/* One end of a data channel under load; bench/data.py and tests/long/endings.py put several
 * together. data sink KIND HOST NETWORK receives; says `address TEXT`; answers each line of input
 * with `BYTES SECONDS CPU_SECONDS BUFFERS_BYTES` so far data flood KIND HOST NETWORK ADDRESS KEY S
 *     keeps eight frames of 4 MiB under way for S seconds; says `BYTES CPU_SECONDS` in the end
 *   data cut KIND HOST NETWORK ADDRESS KEY S
 *     keeps 64 frames of 96 KiB under way; after S seconds it shuts its connection as if the
 *     receiver were no member any more; ends well when every frame has come to an end
 *   data ping KIND HOST NETWORK ADDRESS KEY N
 *     sends N small frames one by one, each answered; says `MEAN_MS WORST_MS` of the round trip
 * KIND is tcp, ucx or plain (a socket and a loop over send or recv: what the others are measured
 * against; no ping, no cut). KEY 1 to 7 is who this end is. */
#include "transport/data.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "transport/data_address.h"

enum {
    FRAME_BYTES_EACH = 4 << 20,
    IN_FLIGHT = 8,
    CUT_FRAME_BYTES = 96 << 10,
    CUT_IN_FLIGHT = 64,
    KEYS = 8,
    SESSION = 1,
    PLAIN_READ_BYTES = 256 << 10
};

struct bench_end {
    struct data_endpoint *d;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t bytes;
    int done, failed, echoes;
    struct data_link *back; /* to whoever pings */
};

static struct bench_end end = {.lock = PTHREAD_MUTEX_INITIALIZER,
                               .changed = PTHREAD_COND_INITIALIZER};

static void fail(const char *what)
{
    fprintf(stderr, "bench/data: %s\n", what);
    exit(1);
}

static double now_s(void)
{
    return (double)env_now_ns(&env_real) * 1e-9;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* ---- ends of the data channel ---- */

static void keys_of(int number, struct key_pair *k, uint8_t public[KEY_BYTES])
{
    uint8_t secret[KEY_BYTES];
    memset(secret, 0x40 + number, sizeof secret);
    crypto_scalarmult_base(public, secret);
    key_encode(public, k->public_key);
    key_encode(secret, k->secret_key);
}

/* Answers a ping on a link to the address that its payload holds. */
static void answer(struct data_buffer *payload)
{
    if (!end.back && data_connect(end.d, payload->bytes, payload->size, &end.back, NULL) < 0)
        fail("a ping without an address");
    struct frame_header h = {.kind = FRAME_PROBE_ECHO, .session = SESSION};
    data_post(end.back, &h, NULL, NULL, NULL);
}

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    (void)ctx;
    if (h->kind == FRAME_PROBE)
        answer(payload);
    pthread_mutex_lock(&end.lock);
    end.bytes += h->payload_bytes;
    end.echoes += h->kind == FRAME_PROBE_ECHO;
    if (h->kind == FRAME_PROBE_ECHO)
        pthread_cond_signal(&end.changed);
    pthread_mutex_unlock(&end.lock);
    data_buffer_release(end.d, payload);
}

static void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    (void)ctx;
    if (link != end.back) /* whoever pinged may go */
        fprintf(stderr, "bench/data: %s\n", why->text);
}

static void on_done(void *ctx, int status)
{
    (void)ctx;
    pthread_mutex_lock(&end.lock);
    end.done++;
    end.failed += status != 0;
    pthread_cond_signal(&end.changed);
    pthread_mutex_unlock(&end.lock);
}

static void end_open(const char *kind, const char *host, const char *network, int number)
{
    struct err e = {0};
    uint8_t keys[KEYS][KEY_BYTES];
    struct data_config c = {
        .network = network, .host = host, .callbacks = {NULL, on_frame, on_down}};
    struct key_pair other;
    for (int i = 0; i < KEYS; i++)
        keys_of(i, i == number ? &c.keys : &other, keys[i]);
    int rc =
        strcmp(kind, "tcp") == 0 ? data_open_tcp(&c, &end.d, &e) : data_open_ucx(&c, &end.d, &e);
    if (rc < 0)
        fail(e.text);
    data_peers_allow(end.d, (const uint8_t(*)[KEY_BYTES])keys, KEYS, NULL);
    data_allow(end.d, SESSION, NULL, NULL);
}

static struct data_link *link_open(const char *address)
{
    struct data_link *link;
    struct err e = {0};
    if (data_connect(end.d, (const uint8_t *)address, strlen(address), &link, &e) < 0)
        fail(e.text);
    return link;
}

/* Keeps frames under way until `until_s`, or until one failed; then waits for all to end. Returns
 * how many there were. */
static int frames_send(struct data_link *link, double until_s, size_t bytes, int in_flight)
{
    struct frame_header h = {.kind = FRAME_KV, .session = SESSION, .dtype = FRAME_BYTES};
    int posted = 0;
    pthread_mutex_lock(&end.lock);
    while (now_s() < until_s && end.failed == 0) {
        while (posted - end.done >= in_flight)
            pthread_cond_wait(&end.changed, &end.lock);
        pthread_mutex_unlock(&end.lock);
        struct data_buffer *b = data_buffer_get(end.d, bytes);
        if (!b)
            fail("no buffer");
        data_post(link, &h, b, on_done, NULL);
        posted++;
        pthread_mutex_lock(&end.lock);
    }
    while (end.done < posted)
        pthread_cond_wait(&end.changed, &end.lock);
    pthread_mutex_unlock(&end.lock);
    return posted;
}

static void flood(const char *address, double seconds)
{
    int posted = frames_send(link_open(address), now_s() + seconds, FRAME_BYTES_EACH, IN_FLIGHT);
    printf("%llu %.6f\n", (unsigned long long)posted * FRAME_BYTES_EACH, cpu_s());
}

static void *cut_wait(void *seconds)
{
    usleep((useconds_t)(*(const double *)seconds * 1e6));
    data_peers_allow(end.d, NULL, 0, NULL);
    return NULL;
}

static void cut(const char *address, double seconds)
{
    pthread_t t;
    if (pthread_create(&t, NULL, cut_wait, &seconds) != 0)
        fail("no thread");
    frames_send(link_open(address), now_s() + seconds + 10, CUT_FRAME_BYTES, CUT_IN_FLIGHT);
    pthread_join(t, NULL);
}

static void ping(const char *address, int n)
{
    struct data_link *link = link_open(address);
    struct frame_header h = {.kind = FRAME_PROBE, .session = SESSION, .dtype = FRAME_BYTES};
    double sum = 0, worst = 0;
    for (int i = -3; i < n; i++) { /* the first ones connect */
        size_t size;
        const uint8_t *own = data_address(end.d, &size);
        struct data_buffer *b = data_buffer_get(end.d, size);
        memcpy(b->bytes, own, size);
        double started = now_s();
        data_post(link, &h, b, NULL, NULL);
        pthread_mutex_lock(&end.lock);
        while (end.echoes < i + 4)
            pthread_cond_wait(&end.changed, &end.lock);
        pthread_mutex_unlock(&end.lock);
        double took = now_s() - started;
        sum += i < 0 ? 0 : took;
        worst = i >= 0 && took > worst ? took : worst;
        usleep(5000);
    }
    printf("%.3f %.3f\n", sum / n * 1e3, worst * 1e3);
}

/* ---- the plain loop ---- */

static void *plain_receive(void *ctx)
{
    int fd = (int)(intptr_t)ctx;
    uint8_t *bytes = malloc(PLAIN_READ_BYTES);
    for (ssize_t n; bytes && (n = recv(fd, bytes, PLAIN_READ_BYTES, 0)) > 0;)
        __atomic_fetch_add(&end.bytes, (uint64_t)n, __ATOMIC_RELAXED);
    free(bytes);
    close(fd);
    return NULL;
}

static void *plain_accept(void *ctx)
{
    int listener = (int)(intptr_t)ctx;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t t;
        if (pthread_create(&t, NULL, plain_receive, (void *)(intptr_t)fd) == 0)
            pthread_detach(t);
    }
    return NULL;
}

static void plain_listen(const char *host)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, host, &at.sin_addr);
    pthread_t t;
    if (bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0 ||
        pthread_create(&t, NULL, plain_accept, (void *)(intptr_t)fd) != 0)
        fail("cannot listen");
    printf("address %s:%u\n", host, ntohs(at.sin_port));
}

static void plain_flood(const char *address, double seconds)
{
    char host[64];
    unsigned port;
    struct sockaddr_in at = {.sin_family = AF_INET};
    if (sscanf(address, "%63[^:]:%u", host, &port) != 2)
        fail("no address");
    inet_pton(AF_INET, host, &at.sin_addr);
    at.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    uint8_t *bytes = calloc(1, FRAME_BYTES_EACH);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        fail("cannot connect");
    uint64_t sent = 0;
    for (double until = now_s() + seconds; now_s() < until; sent += FRAME_BYTES_EACH)
        if (send(fd, bytes, FRAME_BYTES_EACH, 0) < 0)
            break;
    printf("%llu %.6f\n", (unsigned long long)sent, cpu_s());
    free(bytes);
    close(fd);
}

/* ---- roles ---- */

static uint64_t bytes_so_far(void)
{
    pthread_mutex_lock(&end.lock);
    uint64_t bytes = __atomic_load_n(&end.bytes, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&end.lock);
    return bytes;
}

static uint64_t buffers_bytes(void)
{
    struct data_stats s = {0};
    if (end.d)
        data_stats(end.d, &s);
    return s.buffers_bytes;
}

static void sink(const char *kind, const char *host, const char *network)
{
    char line[64];
    size_t size;
    if (strcmp(kind, "plain") == 0) {
        plain_listen(host);
    } else {
        end_open(kind, host, network, 0);
        const uint8_t *address = data_address(end.d, &size);
        printf("address %.*s\n", (int)size, (const char *)address);
    }
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("%llu %.6f %.6f %llu\n", (unsigned long long)bytes_so_far(), now_s(), cpu_s(),
               (unsigned long long)buffers_bytes());
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5 || sodium_init() < 0)
        fail("see the head of bench/data.c");
    bool plain = strcmp(argv[2], "plain") == 0;
    if (strcmp(argv[1], "sink") == 0) {
        sink(argv[2], argv[3], argv[4]);
    } else if (argc == 8 && plain) {
        plain_flood(argv[5], atof(argv[7]));
    } else if (argc == 8) {
        end_open(argv[2], argv[3], argv[4], atoi(argv[6]));
        if (strcmp(argv[1], "flood") == 0)
            flood(argv[5], atof(argv[7]));
        else if (strcmp(argv[1], "cut") == 0)
            cut(argv[5], atof(argv[7]));
        else
            ping(argv[5], atoi(argv[7]));
    }
    if (strcmp(argv[1], "sink") != 0)
        data_close(&end.d);
    return 0;
}
