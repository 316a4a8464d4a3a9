/* What reaches us around UCX: any bytes to the guard, as a stranger's, as a proven peer's wish and
 * lists, as the answer to our introduction; and any frame header that UCX hands over. The first
 * byte chooses. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/data_int.h"
#include "transport/ucx_guard_int.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct key_pair keys;
static uint8_t own_key[KEY_BYTES];
static struct data_endpoint *endpoint;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct data_config c = {0};
    if (key_pair_create(&keys, NULL) < 0 || key_decode(keys.public_key, own_key, NULL) < 0 ||
        data_open_inproc(&c, &endpoint, NULL) < 0)
        abort();
    return data_allow(endpoint, 0, NULL, NULL);
}

static bool all_are_allowed(void *ctx, const uint8_t *key)
{
    (void)ctx, (void)key;
    return true;
}

/* Goes on until the talk ends or waits for more than there is. */
static void talk_drive(struct guard_talk *t)
{
    struct guard_address list[GUARD_LIST_ADDRESSES];
    struct guard_tables tables;
    enum guard_turn turn = guard_talk_go(t, all_are_allowed, NULL);
    if (turn == GUARD_ANSWER) {
        guard_talk_tell(t, list, 0);
        turn = guard_talk_go(t, all_are_allowed, NULL);
    }
    if (turn == GUARD_DONE || turn == GUARD_ANSWER) {
        guard_tables_init(&tables);
        size_t n = guard_talk_list(t, list);
        for (size_t i = 0; i < n; i++) {
            struct guard_known k = {.at = list[i], .chosen = i % 2};
            struct sockaddr_storage sa;
            struct guard_address back;
            uint8_t found[KEY_BYTES];
            socklen_t size = guard_address_to(&list[i], &sa);
            if (!guard_known_set(&tables, &k) || !guard_known_find(&tables, &list[i], found) ||
                !guard_address_of((struct sockaddr *)&sa, size, &back) ||
                !guard_address_equal(&back, &list[i]))
                abort();
        }
        guard_tables_fini(&tables);
    }
}

static void talk_try(uint8_t mode, const uint8_t *data, size_t size)
{
    int pair[2];
    struct guard_talk t;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
        abort();
    if (mode == 2 ? guard_talk_initiate(&t, pair[0], &keys, own_key, GUARD_WISH_INTRODUCE, NULL)
                  : guard_talk_respond(&t, pair[0], &keys, NULL))
        abort();
    if (mode == 1)
        t.phase = TALK_WISH;
    if (mode == 2)
        t.phase = TALK_SECOND_LIST;
    size_t sent = size > 4096 ? 4096 : size;
    if (write(pair[1], data, sent) != (ssize_t)sent)
        abort();
    talk_drive(&t);
    size_t left = 0; /* what the talk did not need is still there: it is UCX's */
    uint8_t rest[4096];
    ssize_t n = read(pair[0], rest, sizeof rest);
    left = n > 0 ? (size_t)n : 0;
    if (mode == 0 && sent - left > HANDSHAKE_FIRST_BYTES)
        abort(); /* a stranger was heard beyond its first message */
    guard_talk_wipe(&t);
    close(pair[0]);
    close(pair[1]);
}

static void header_try(const uint8_t *data, size_t size)
{
    struct frame_header h;
    uint64_t payload = 0;
    memcpy(&payload, data, size < sizeof payload ? size : sizeof payload);
    size_t at = size < sizeof payload ? size : sizeof payload;
    if (data_admit(endpoint, data + at, size - at, payload, NULL, &h) == 0)
        data_buffer_release(endpoint, data_receive_buffer(endpoint, &h));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t mode = data[0] % 4;
    if (mode == 3)
        header_try(data + 1, size - 1);
    else
        talk_try(mode, data + 1, size - 1);
    return 0;
}
