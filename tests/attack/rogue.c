/* A hostile client of the control channel: what a stranger who knows the server's public key (it is
 * in every join token), or who stole an agent's key, can send. Raw ZeroMQ, so that none of our own
 * limits stand in its way.
 *
 *   rogue HOST:PORT SERVER_KEY_HEX MODE [KEY_FILE]
 *
 * MODE bomb BYTES NAME   one message of that many bytes, of type NAME, full of empty maps
 *      flood N           so many connections, each with a key of its own, each proven; holds them
 * until its standard input ends
 *      ask - KEY_FILE    of every line VERB<tab>ARGUMENTS<tab>BYTES of its standard input a
 * question with so many bytes beside it; prints each answer's code, or "nothing"
 *
 * The others print "sent", and then the answer's bytes, or "nothing" after 3 s (ROGUE_SECONDS). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/bytes.h"
#include "transport/keys.h"
#include "transport/message.h"

static void *connect_as(void *context, const char *address, const char *server_key,
                        const struct key_pair *own)
{
    void *s = zmq_socket(context, ZMQ_DEALER);
    char endpoint[300];
    const char *seconds = getenv("ROGUE_SECONDS");
    int linger = 0, timeout_ms = 1000 * (seconds ? atoi(seconds) : 3);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
    zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, server_key, KEY_TEXT - 1);
    zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, own->public_key, KEY_TEXT - 1);
    zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, own->secret_key, KEY_TEXT - 1);
    zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(s, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    zmq_setsockopt(s, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms);
    if (zmq_connect(s, endpoint) != 0) {
        fprintf(stderr, "rogue: %s: %s\n", endpoint, zmq_strerror(zmq_errno()));
        exit(1);
    }
    return s;
}

/* {"v": 1, "t": NAME, "body": {"x": [{}, {}, ...]}} */
static struct buffer bomb_make(size_t size, const char *name)
{
    struct buffer out = {0};
    size_t n = size > 64 ? size - 64 : 1, body = 8 + n;
    const uint8_t word = (uint8_t)(0xa0 | strlen(name));
    const uint8_t bin[] = {0xa4,
                           'b',
                           'o',
                           'd',
                           'y',
                           0xc6,
                           (uint8_t)(body >> 24),
                           (uint8_t)(body >> 16),
                           (uint8_t)(body >> 8),
                           (uint8_t)body};
    const uint8_t map[] = {
        0x81,      0xa1, 'x', 0xdd, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
        (uint8_t)n};
    buffer_append(&out, "\x83\xa1v\x01\xa1t", 6);
    buffer_append(&out, &word, 1);
    buffer_append(&out, name, strlen(name));
    buffer_append(&out, bin, sizeof bin);
    buffer_append(&out, map, sizeof map);
    memset(buffer_extend(&out, n), 0x80, n);
    return out;
}

static void answer_print(void *s)
{
    static char answer[1 << 16];
    int got = zmq_recv(s, answer, sizeof answer, 0);
    if (got < 0) {
        puts("nothing");
        return;
    }
    fwrite(answer, 1, (size_t)got < sizeof answer ? (size_t)got : sizeof answer, stdout);
    putchar('\n');
}

static int run_bomb(void *context, char **argv, const char *server_key, const struct key_pair *own)
{
    struct buffer b = bomb_make(strtoul(argv[4], NULL, 10), argv[5]);
    void *s = connect_as(context, argv[1], server_key, own);
    if (zmq_send(s, b.data, b.size, 0) < 0)
        printf("not sent: %s\n", zmq_strerror(zmq_errno()));
    else
        puts("sent");
    answer_print(s);
    zmq_close(s);
    buffer_free(&b);
    return 0;
}

/* The code of the last part of an answer; "nothing" when none came within 3 s. */
static void code_print(void *s, uint64_t id)
{
    for (;;) {
        zmq_msg_t got;
        zmq_msg_init(&got);
        struct arena arena = {0};
        struct message m;
        bool came = zmq_msg_recv(&got, s, 0) >= 0;
        int rc =
            came ? message_decode(zmq_msg_data(&got), zmq_msg_size(&got), &arena, &m, NULL) : 0;
        bool mine = came && rc == 0 && m.id == id && (m.type != MESSAGE_ANSWER || !m.u.answer.more);
        if (!came)
            puts("nothing");
        else if (mine)
            puts(m.type == MESSAGE_ANSWER    ? m.u.answer.code[0] ? m.u.answer.code : "ok"
                 : m.type == MESSAGE_REFUSED ? m.u.refused.code
                                             : "another message");
        arena_free(&arena);
        zmq_msg_close(&got);
        if (!came || mine)
            return;
    }
}

static int run_asks(void *context, char **argv, const char *server_key, const struct key_pair *own)
{
    void *s = connect_as(context, argv[1], server_key, own);
    char *line = NULL;
    size_t capacity = 0;
    for (uint64_t id = 1; getline(&line, &capacity, stdin) > 0; id++) {
        char *at = line, *verb = strsep(&at, "\t\n"), *arguments = strsep(&at, "\t\n"),
             *bytes = strsep(&at, "\t\n");
        struct buffer blob = {0}, wire = {0};
        struct message m = {.type = MESSAGE_ASK, .id = id};
        size_t n = bytes ? strtoul(bytes, NULL, 10) : 0;
        if (n)
            memset(buffer_extend(&blob, n), 0xff, n);
        m.u.ask = (struct message_ask){verb, arguments ? arguments : "", {blob.data, blob.size}};
        message_encode(&m, &wire);
        zmq_send(s, wire.data, wire.size, 0);
        code_print(s, id);
        buffer_free(&blob);
        buffer_free(&wire);
    }
    free(line);
    zmq_close(s);
    return 0;
}

static int run_flood(void *context, char **argv, const char *server_key)
{
    long n = strtol(argv[4], NULL, 10);
    void **sockets = calloc((size_t)n, sizeof *sockets);
    struct err e = {0};
    for (long i = 0; i < n; i++) {
        struct key_pair own;
        if (key_pair_create(&own, &e) < 0)
            return 1;
        sockets[i] = connect_as(context, argv[1], server_key, &own);
        zmq_send(sockets[i], "x", 1, ZMQ_DONTWAIT);
    }
    puts("sent");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    for (long i = 0; i < n; i++)
        zmq_close(sockets[i]);
    free(sockets);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct key_pair own;
    char server_key[KEY_TEXT];
    uint8_t key[KEY_BYTES];
    if (argc < 5 || strlen(argv[2]) != 2 * KEY_BYTES) {
        fprintf(stderr,
                "usage: rogue HOST:PORT SERVER_KEY_HEX bomb BYTES NAME [KEY_FILE] | flood N | "
                "ask - KEY_FILE\n");
        return 2;
    }
    for (int i = 0; i < KEY_BYTES; i++)
        key[i] = (uint8_t)strtoul((char[3]){argv[2][2 * i], argv[2][2 * i + 1], 0}, NULL, 16);
    key_encode(key, server_key);
    bool bomb = strcmp(argv[3], "bomb") == 0 && argc >= 6,
         ask = strcmp(argv[3], "ask") == 0 && argc == 6;
    const char *key_file = ask ? argv[5] : bomb && argc > 6 ? argv[6] : NULL;
    if ((key_file ? key_pair_load(key_file, &own, &e) : key_pair_create(&own, &e)) < 0) {
        fprintf(stderr, "rogue: %s\n", e.text);
        return 1;
    }
    void *context = zmq_ctx_new();
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, 20000);
    int rc = ask    ? run_asks(context, argv, server_key, &own)
             : bomb ? run_bomb(context, argv, server_key, &own)
                    : run_flood(context, argv, server_key);
    zmq_ctx_term(context);
    return rc;
}
