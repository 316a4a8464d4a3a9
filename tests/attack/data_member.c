/* A bad member of the data channel (TCP): it has an agent's key, and says what a member must not
 * say. data_test.py sets it on real agents. data_member KEY_FILE HOST PORT PEER_KEY_FILE lies each
 * lie on a connection of its own; prints "N refused" when all were data_member KEY_FILE HOST PORT
 * PEER_KEY_FILE sessions   100000 frames of sessions that it was not told data_member KEY_FILE HOST
 * PORT PEER_KEY_FILE hoard      announces as much as it may, and sends nothing of it data_member
 * KEY_FILE HOST PORT PEER_KEY_FILE knock      proves itself; prints "in" or "refused" */
#include <stdio.h>

#include "tests/attack/raw.h"

static int fail(const char *what)
{
    fprintf(stderr, "data_member: %s\n", what);
    return 1;
}

static int say_lies(struct raw *r, const struct data_address *to)
{
    for (int i = 0; i < RAW_LIES; i++) {
        if (!raw_prove(r, to))
            return fail("not let in");
        raw_lies[i].lie(r);
        if (!raw_is_closed_within(r->fd, 3000))
            return fail(raw_lies[i].what);
        raw_close(r);
    }
    printf("%d refused\n", RAW_LIES);
    return 0;
}

static int guess_sessions(struct raw *r, const struct data_address *to)
{
    enum { GUESSES = 100000 };
    if (!raw_prove(r, to))
        return fail("not let in");
    raw_hello(r);
    for (uint64_t i = 0; i < GUESSES; i++) {
        uint8_t text[FRAME_HEADER_BYTES];
        raw_header(text, i * 0x9e3779b97f4a7c15u, 0);
        raw_say(r, RECORD_FRAME, 0, text, sizeof text);
    }
    raw_say(r, RECORD_BEAT, 0, NULL, 0);
    bool stands = !raw_is_closed_within(r->fd, 300);
    printf("%d guessed, %s\n", GUESSES, stands ? "still connected" : "hung up");
    raw_close(r);
    return 0;
}

static int hoard(struct raw *r, const struct data_address *to)
{
    uint8_t text[FRAME_HEADER_BYTES];
    if (!raw_prove(r, to))
        return fail("not let in");
    raw_hello(r);
    raw_header(text, 1, (uint64_t)1 << 30);
    for (uint32_t i = 1; i <= TCP_MAX_ANNOUNCED; i++)
        raw_say(r, RECORD_ANNOUNCE, i, text, sizeof text);
    printf("%s\n", raw_hear_kind(r, RECORD_GRANT) ? "answered" : "hung up");
    raw_close(r);
    return 0;
}

static int knock(struct raw *r, const struct data_address *to)
{
    bool in = raw_prove(r, to) && raw_hear_kind(r, RECORD_HELLO);
    printf("%s\n", in ? "in" : "refused");
    raw_close(r);
    return 0;
}

int main(int argc, char **argv)
{
    struct key_pair own, peer;
    struct data_address to = {.kind = DATA_KIND_TCP};
    struct raw r;
    struct err e = {0};
    if (argc != 6)
        return fail("see the head of data_member.c");
    if (key_pair_load(argv[1], &own, &e) < 0 || key_pair_load(argv[4], &peer, &e) < 0 ||
        key_decode(peer.public_key, to.key, &e) < 0 || !raw_init(&r, &own))
        return fail(e.text);
    snprintf(to.host, sizeof to.host, "%s", argv[2]);
    to.port = (uint16_t)atoi(argv[3]);
    if (strcmp(argv[5], "lies") == 0)
        return say_lies(&r, &to);
    if (strcmp(argv[5], "sessions") == 0)
        return guess_sessions(&r, &to);
    return strcmp(argv[5], "hoard") == 0 ? hoard(&r, &to) : knock(&r, &to);
}
