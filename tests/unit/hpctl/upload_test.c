/* Uploads to an agent that the test plays.
 * Waits: for agents that do not answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "hpctl/upload.h"
#include "tests/test.h"
#include "transport/data.h"

enum { SESSION = 5, CHUNKS = 4, CHUNK_BYTES = 1 << 20 };

struct taker {
    struct data_endpoint *d;
    _Atomic(struct data_buffer *) kept[CHUNKS];
    int n, keeps; /* so many it never gives back */
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct taker *t = ctx;
    (void)h;
    if (t->n < t->keeps)
        t->kept[t->n] = payload;
    else
        data_buffer_release(t->d, payload);
    t->n++;
}

/* Where it listens, and which chunks it wants. */
static json_t *request_of(const struct taker *t)
{
    size_t size;
    const uint8_t *address = data_address(t->d, &size);
    char hex[2 * 512 + 1] = "";
    assert_true(size < 512);
    for (size_t i = 0; i < size; i++)
        snprintf(hex + 2 * i, 3, "%02x", address[i]);
    return json_pack("{s:i, s:[{s:s, s:[i, i, i, i]}]}", "session", SESSION, "targets", "address",
                     hex, "chunks", 0, 1, 2, 3);
}

typedef int (*open_fn)(const struct data_config *c, struct data_endpoint **out, struct err *e);

/* Uploads to an agent that keeps so many chunks for ever; what comes of it. */
static int upload_try(open_fn open_endpoint, int keeps, struct err *e)
{
    static const uint8_t zeros[CHUNK_BYTES];
    char path[] = "/tmp/hp-upload-XXXXXX";
    int fd = mkstemp(path);
    struct manifest_file file = {.name = strrchr(path, '/') + 1, .bytes = CHUNKS * CHUNK_BYTES};
    struct manifest_chunk chunks[CHUNKS];
    struct taker t = {.keeps = keeps};
    struct key_pair agent, admin;
    uint8_t key[KEY_BYTES];
    struct upload *u = NULL;
    uint64_t bytes = 0;
    assert_true(fd >= 0);
    for (int i = 0; i < CHUNKS; i++) {
        assert_int_equal(write(fd, zeros, sizeof zeros), sizeof zeros);
        chunks[i] = (struct manifest_chunk){.digest = {zeros, 32},
                                            .file = 0,
                                            .offset = (uint64_t)i * CHUNK_BYTES,
                                            .bytes = CHUNK_BYTES};
    }
    struct manifest m = {.files = {&file, 1}, .chunks = {chunks, CHUNKS}};
    assert_true(key_pair_create(&agent, NULL) == 0 && key_pair_create(&admin, NULL) == 0 &&
                key_decode(admin.public_key, key, NULL) == 0);
    struct data_config c = {.network = "lo",
                            .host = "127.0.0.1",
                            .keys = agent,
                            .pool_limit_bytes = CHUNK_BYTES,
                            .callbacks = {&t, on_frame, NULL}};
    if (open_endpoint == data_open_inproc)
        c.pool_limit_bytes = 8 * CHUNKS * CHUNK_BYTES; /* there nobody waits for room */
    assert_int_equal(open_endpoint(&c, &t.d, e), 0);
    assert_true(data_allow(t.d, SESSION, NULL, e) == 0 &&
                data_peers_allow(t.d, (const uint8_t(*)[KEY_BYTES])key, 1, e) == 0);
    json_t *request = request_of(&t);
    assert_int_equal(upload_open(path, &m, &admin, &u, e), 0);
    struct progress_bar bar;
    progress_init(&bar, true);
    int rc = upload_send(u, request, &bar, &bytes, e);
    if (rc == 0)
        assert_int_equal(bytes, CHUNKS * CHUNK_BYTES);
    upload_close(&u);
    for (int i = 0; i < keeps; i++)
        data_buffer_release(t.d, t.kept[i]);
    data_close(&t.d);
    json_decref(request);
    close(fd);
    unlink(path);
    return rc;
}

TEST(chunks_that_are_taken_are_uploaded)
{
    struct err e = {0};
    static const open_fn kinds[] = {data_open_ucx, data_open_inproc};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (upload_try(kinds[i], 0, &e) < 0)
            fail_msg("kind %zu: %s", i, e.text);
}

TEST(an_agent_that_takes_nothing_more_ends_the_upload_with_a_reason)
{
    struct err e = {0};
    char scaled[32];
    double scale = env_time_scale();
    snprintf(scaled, sizeof scaled, "%g", scale / 20);
    setenv("HP_TIME_SCALE", scaled, 1);
    alarm(60); /* one that waits for ever ends the test */
    assert_int_equal(upload_try(data_open_ucx, 1, &e), HP_ETIMEOUT);
    alarm(0);
    assert_non_null(strstr(e.text, "has taken no weights"));
    snprintf(scaled, sizeof scaled, "%g", scale);
    setenv("HP_TIME_SCALE", scaled, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_that_are_taken_are_uploaded),
        cmocka_unit_test(an_agent_that_takes_nothing_more_ends_the_upload_with_a_reason),
    };
    return cmocka_run_group_tests_name("upload", tests, NULL, NULL);
}
