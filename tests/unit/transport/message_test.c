#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/manifest.h"
#include "tests/test.h"
#include "transport/frame.h"
#include "transport/keys.h"
#include "transport/message.h"

TEST(a_message_survives_the_wire)
{
    static const uint32_t ids[] = {5, 6, 4000000000u};
    struct sampling_bias bias[] = {{7, -1.5}, {9, 100}};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN, .id = 42};
    m.u.sequence_open = (struct message_sequence_open){.deployment = 1,
                                                       .generation = 2,
                                                       .sequence = 1u << 31,
                                                       .prompt = {ids, 3},
                                                       .sampling.temperature = 0.7,
                                                       .all_logits = true,
                                                       .sampling.bias = {bias, 2}};
    struct buffer wire = {0};
    struct arena arena = {0};
    struct err e = {0};
    struct message back;
    message_encode(&m, &wire);
    if (message_decode(wire.data, wire.size, &arena, &back, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(back.type, MESSAGE_SEQUENCE_OPEN);
    assert_int_equal(back.id, 42);
    const struct message_sequence_open *o = &back.u.sequence_open;
    assert_int_equal(o->prompt.count, 3);
    assert_memory_equal(o->prompt.items, ids, sizeof ids);
    assert_true(o->sampling.temperature == 0.7 && o->all_logits && o->sampling.bias.count == 2);
    assert_true(((struct sampling_bias *)o->sampling.bias.items)[1].bias == 100);
    arena_free(&arena);
    buffer_free(&wire);
}

TEST(another_version_is_refused_with_both_named)
{
    static const uint8_t other[] = {0x82, 0xa1, 'v', 99, 0xa1, 't', 0xa4, 'j', 'o', 'i', 'n'};
    struct arena arena = {0};
    struct err e = {0};
    struct message m;
    assert_int_equal(message_decode(other, sizeof other, &arena, &m, &e), HP_EPROTO);
    assert_non_null(strstr(e.text, "version 99"));
    assert_non_null(strstr(e.text, "version 1"));
    arena_free(&arena);
}

TEST(an_unknown_type_keeps_its_id_so_that_it_can_be_answered)
{
    static const uint8_t other[] = {0x83, 0xa1, 'v', 1,    0xa1, 't', 0xa3,
                                    'n',  'e',  'w', 0xa2, 'i',  'd', 17};
    struct arena arena = {0};
    struct err e = {0};
    struct message m;
    assert_int_equal(message_decode(other, sizeof other, &arena, &m, &e), HP_EUNSUPPORTED);
    assert_int_equal(m.id, 17);
    arena_free(&arena);
}

TEST(lying_lengths_cost_no_memory)
{
    static const struct {
        uint8_t bytes[16];
        size_t size;
    } cases[] = {
        {{0xdd, 0xff, 0xff, 0xff, 0xff}, 5},    /* an array of 4 billion */
        {{0xdf, 0x7f, 0xff, 0xff, 0xff, 1}, 6}, /* a map of 2 billion */
        {{0xc6, 0xff, 0xff, 0xff, 0xff, 0}, 6}, /* bytes past the end */
        {{0x81, 0xa1, 'v'}, 3},                 /* cut short */
        {{0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91}, 11}, /* no end */
        {{0xc7, 1, 1, 1}, 4}, /* an extension type */
        {{0x80, 0x80}, 2},    /* two values */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {.limit_bytes = 4096};
        struct message m;
        struct err e = {0};
        assert_int_equal(message_decode(cases[i].bytes, cases[i].size, &arena, &m, &e), HP_EPARSE);
        arena_free(&arena);
    }
}

/* Decodes what `m` becomes after every `from` byte in it is `to`. */
static int decode_changed(const struct message *m, char from, char to, struct message *out,
                          struct arena *arena, struct err *e)
{
    static uint8_t bytes[4096];
    struct buffer wire = {0};
    message_encode(m, &wire);
    assert_in_range(wire.size, 1, sizeof bytes);
    for (size_t i = 0; i < wire.size; i++)
        bytes[i] = wire.data[i] == (uint8_t)from ? (uint8_t)to : wire.data[i];
    size_t size = wire.size;
    buffer_free(&wire);
    return message_decode(bytes, size, arena, out, e);
}

TEST(text_that_is_not_utf8_is_refused_by_name)
{
    struct message m = {.type = MESSAGE_JOIN, .u.join = {.hostname = "caf~"}}, back;
    struct arena arena = {0};
    struct err e = {0};
    assert_int_equal(decode_changed(&m, '~', '~', &back, &arena, &e), 0);
    assert_string_equal(back.u.join.hostname, "caf~");
    assert_int_equal(decode_changed(&m, '~', '\xe9', &back, &arena, &e), HP_EPARSE);
    assert_string_equal(e.text, "join: message field \"hostname\" is not text in UTF-8");
    arena_free(&arena);
}

TEST(what_is_sent_is_utf8_whatever_it_was)
{
    struct message m = {.type = MESSAGE_JOIN,
                        .u.join = {.hostname = "caf\xe9", .name = "caf\xc3\xa9"}},
                   back;
    struct arena arena = {0};
    struct err e = {0};
    assert_int_equal(decode_changed(&m, '~', '~', &back, &arena, &e), 0);
    assert_string_equal(back.u.join.hostname, "caf?");
    assert_string_equal(back.u.join.name, "caf\xc3\xa9");
    arena_free(&arena);
}

/* An envelope of type `word` around `n` times `filling` after `head`. */
static struct buffer bomb(const char *word, const uint8_t *head, size_t head_size, uint8_t filling,
                          size_t n)
{
    struct buffer out = {0};
    size_t body = head_size + n;
    uint8_t length[] = {0xc6, (uint8_t)(body >> 24), (uint8_t)(body >> 16), (uint8_t)(body >> 8),
                        (uint8_t)body},
            text = (uint8_t)(0xa0 | strlen(word));
    buffer_append(&out, "\x83\xa1v\x01\xa1t", 6);
    buffer_append(&out, &text, 1);
    buffer_append(&out, word, strlen(word));
    buffer_append(&out,
                  "\xa4"
                  "body",
                  5);
    buffer_append(&out, length, sizeof length);
    buffer_append(&out, head, head_size);
    memset(buffer_extend(&out, n), filling, n);
    return out;
}

TEST(a_message_of_many_small_values_costs_no_memory)
{
    enum { N = 1 << 19 };
    static const uint8_t unknown[] = {0x81, 0xa1, 'z', 0xdd, 0, N >> 16, N >> 8 & 255, N & 255},
                         held[] = {0x81, 0xa4, 'h',     'e',          'l',    'd',
                                   0xdd, 0,    N >> 16, N >> 8 & 255, N & 255};
    struct arena arena = {.limit_bytes = 4096};
    struct message m;
    struct err e = {0};
    struct buffer wire = bomb("heartbeat", unknown, sizeof unknown, 0xc0, N);
    assert_int_equal(message_decode(wire.data, wire.size, &arena, &m, &e), 0);
    buffer_free(&wire);
    wire = bomb("heartbeat", held, sizeof held, 0x80, N);
    assert_int_equal(message_decode(wire.data, wire.size, &arena, &m, &e), HP_EPARSE);
    assert_string_equal(e.text,
                        "heartbeat: message field \"held\" has 524288 rows; 1024 are the limit");
    buffer_free(&wire);
    arena_free(&arena);
}

TEST(a_message_has_the_size_of_its_kind)
{
    static const uint8_t none[] = {0x80};
    static const struct {
        const char *word;
        size_t bytes;
        int expected;
    } cases[] = {{"heartbeat", 2 << 20, HP_ELIMIT},
                 {"join", 2 << 20, HP_ELIMIT},
                 {"logits", 21 << 20, HP_ELIMIT},
                 {"logits", 5 << 20, HP_EPARSE},
                 {"ask", 21 << 20, HP_EPARSE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m;
        struct err e = {0};
        struct arena arena = {0};
        struct buffer wire = bomb(cases[i].word, none, 1, 0, cases[i].bytes);
        assert_int_equal(message_decode(wire.data, wire.size, &arena, &m, &e), cases[i].expected);
        buffer_free(&wire);
        arena_free(&arena);
    }
}

TEST(a_field_comes_once_and_unknown_ones_are_skipped)
{
    static const struct {
        uint8_t bytes[48];
        size_t size;
        int expected;
        uint64_t number;
    } cases[] = {
        {{0x81, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 7}, 9, 0, 7},
        {{0x81, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 0xd1, 1, 2}, 11, 0, 258},
        {{0x81, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 0xff}, 9, HP_EPARSE, 0},
        {{0x81, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 0xa1, '7'}, 10, HP_EPARSE, 0},
        {{0x82, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 7, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 8},
         17,
         HP_EPARSE,
         0},
        {{0x82, 0xa1, 'z', 0x82, 1, 0x92, 0xc0, 0xcb, 0,   0,   0,   0,   0,   0,
          0,    0,    2,   0xc4, 1, 9,    0xa6, 'n',  'u', 'm', 'b', 'e', 'r', 9},
         28,
         0,
         9},
        {{0x82, 0x91, 1, 2, 0xa6, 'n', 'u', 'm', 'b', 'e', 'r', 9}, 12, 0, 9},
        {{0x91, 1}, 2, HP_EPARSE, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m;
        struct err e = {0};
        struct arena arena = {0};
        struct buffer wire = bomb("heartbeat_ack", cases[i].bytes, cases[i].size, 0, 0);
        if (message_decode(wire.data, wire.size, &arena, &m, &e) != cases[i].expected)
            fail_msg("case %zu: %s", i, e.text);
        if (cases[i].expected == 0)
            assert_int_equal(m.u.heartbeat_ack.number, cases[i].number);
        buffer_free(&wire);
        arena_free(&arena);
    }
}

TEST(a_frame_header_survives_and_every_flipped_bit_is_found)
{
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = 3,
                             .dtype = FRAME_F16,
                             .n_runs = 2,
                             .session = 1,
                             .deployment = 2,
                             .generation = 3,
                             .batch = 4,
                             .sequence = 5,
                             .first_position = 6,
                             .n_tokens = 7,
                             .payload_bytes = 48,
                             .sent_ns = 8},
                        back;
    uint8_t wire[FRAME_HEADER_BYTES];
    frame_header_encode(&h, wire);
    assert_int_equal(frame_header_decode(wire, sizeof wire, &back, NULL), 0);
    assert_int_equal(back.n_tokens, 7);
    assert_int_equal(back.batch, 4);
    for (int bit = 0; bit < FRAME_HEADER_BYTES * 8; bit++) {
        wire[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        assert_int_equal(frame_header_decode(wire, sizeof wire, &back, NULL), HP_EPROTO);
        wire[bit / 8] ^= (uint8_t)(1 << (bit % 8));
    }
    assert_int_equal(frame_header_decode(wire, sizeof wire - 1, &back, NULL), HP_EPROTO);
}

TEST(rows_cross_in_formats_that_both_sides_know_by_word)
{
    static const struct {
        const char *word;
        enum frame_dtype dtype;
        uint64_t bytes; /* of 128 elements */
    } cases[] = {{"f32", FRAME_F32, 512},
                 {"f16", FRAME_F16, 256},
                 {"bf16", FRAME_BF16, 256},
                 {"q8", FRAME_Q8, 144}};
    enum frame_dtype dtype;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(frame_dtype_of_word(cases[i].word, &dtype) && dtype == cases[i].dtype);
        assert_string_equal(frame_dtype_word(dtype), cases[i].word);
        assert_non_null(strstr(FRAME_DTYPES_KNOWN, cases[i].word));
        assert_int_equal(frame_dtype_bytes(dtype, 128), cases[i].bytes);
        assert_true(frame_dtype_ratio(dtype) == (double)cases[i].bytes / 512);
        assert_int_equal(128 % frame_dtype_block(dtype), 0);
    }
    assert_false(frame_dtype_of_word("bytes", &dtype)); /* no rows */
    assert_false(frame_dtype_of_word("int8", &dtype));
    for (uint16_t d = 0; d < FRAME_DTYPE_END + 2; d++) {
        struct frame_header h = {.kind = FRAME_ACTIVATION, .dtype = d}, back;
        uint8_t wire[FRAME_HEADER_BYTES];
        frame_header_encode(&h, wire);
        assert_int_equal(frame_header_decode(wire, sizeof wire, &back, NULL),
                         d < FRAME_DTYPE_END ? 0 : HP_EPROTO);
    }
}

TEST(runs_must_add_up_to_the_header)
{
    struct batch_run runs[] = {{.sequence = 1, .n_tokens = 4},
                               {.sequence = 2, .n_tokens = 1, .n_logits = 1}},
                     back[2];
    struct frame_header h = {
        .kind = FRAME_ACTIVATION, .n_runs = 2, .n_tokens = 5, .payload_bytes = 2 * FRAME_RUN_BYTES};
    uint8_t payload[2 * FRAME_RUN_BYTES];
    frame_runs_encode(runs, 2, payload);
    assert_int_equal(frame_runs_decode(&h, payload, back, NULL), 0);
    assert_int_equal(back[1].n_logits, 1);
    h.n_tokens = 6;
    assert_int_equal(frame_runs_decode(&h, payload, back, NULL), HP_EPROTO);
    h.n_runs = 3;
    assert_int_equal(frame_runs_decode(&h, payload, back, NULL), HP_EPROTO);
}

TEST(keys_and_values_say_which_they_are)
{
    const struct kv_range r = {
        .group = 1, .first_block = 2, .n_blocks = 3, .first = 64, .count = 9};
    struct frame_header h = {.kind = FRAME_KV,
                             .first_position = r.first,
                             .n_tokens = r.count,
                             .payload_bytes = FRAME_KV_BYTES + 1};
    uint8_t payload[FRAME_KV_BYTES + 1];
    struct kv_range back;
    frame_kv_encode(&r, payload);
    assert_int_equal(frame_kv_decode(&h, payload, &back, NULL), 0);
    assert_memory_equal(&back, &r, sizeof r);
    h.n_runs = 1;
    assert_int_equal(frame_kv_decode(&h, payload, &back, NULL), HP_EPROTO);
    h.n_runs = 0;
    h.payload_bytes = FRAME_KV_BYTES; /* nothing behind it */
    assert_int_equal(frame_kv_decode(&h, payload, &back, NULL), HP_EPROTO);
    h.payload_bytes = 0;
    assert_int_equal(frame_kv_decode(&h, NULL, &back, NULL), HP_EPROTO);
}

TEST(a_join_token_carries_key_and_secret)
{
    struct key_pair k;
    struct join_token t, back;
    struct err e = {0};
    char text[JOIN_TOKEN_TEXT];
    assert_int_equal(key_pair_create(&k, &e), 0);
    memcpy(t.server_key, k.public_key, KEY_TEXT);
    snprintf(t.secret, sizeof t.secret, "00112233445566778899aabbccddeeff");
    join_token_text(&t, text);
    assert_int_equal(join_token_parse(text, &back, &e), 0);
    assert_string_equal(back.server_key, k.public_key);
    assert_string_equal(back.secret, t.secret);
    static const char *const bad[] = {"", "hp1-", "hp1-00-11", "hello"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(join_token_parse(bad[i], &back, &e), HP_EINVAL);
    text[10] = 'x';
    assert_int_equal(join_token_parse(text, &back, &e), HP_EINVAL);
}

TEST(a_key_file_that_others_may_read_is_refused)
{
    char folder[] = "/tmp/hp-keys-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/key", folder);
    struct key_pair a, b;
    struct err e = {0};
    assert_int_equal(key_pair_load_or_create(file, &a, &e), 0);
    assert_int_equal(key_pair_load_or_create(file, &b, &e), 0);
    assert_string_equal(a.secret_key, b.secret_key);
    chmod(file, 0644);
    assert_int_equal(key_pair_load(file, &b, &e), HP_EDENIED);
    unlink(file);
    rmdir(folder);
}

static void files_of_removed(const char *folder)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

TEST(a_kill_while_keys_are_made_leaves_whole_ones_or_none)
{
    struct err e = {0};
    for (int i = 0; i < 100; i++) {
        char folder[] = "/tmp/hp-keys-XXXXXX", file[64];
        struct key_pair a, b;
        assert_non_null(mkdtemp(folder));
        snprintf(file, sizeof file, "%s/key", folder);
        pid_t child = fork();
        if (child == 0) {
            key_pair_load_or_create(file, &a, &e);
            _exit(0);
        }
        usleep((useconds_t)(i * 20));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (key_pair_load_or_create(file, &a, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(key_pair_load(file, &b, &e), 0);
        assert_string_equal(a.secret_key, b.secret_key);
        files_of_removed(folder);
    }
}

static void check_manifest(struct manifest *m, int expected)
{
    struct buffer wire = {0};
    struct arena arena = {0};
    struct manifest back;
    struct err e = {0};
    manifest_encode(m, &wire);
    int rc = manifest_decode(wire.data, wire.size, &arena, &back, &e);
    if (rc != expected)
        fail_msg("expected %d, got %d: %s", expected, rc, e.text);
    arena_free(&arena);
    buffer_free(&wire);
}

TEST(a_manifest_keeps_to_its_files)
{
    uint8_t digest[DIGEST_BYTES] = {1};
    struct manifest_file file = {"model.gguf", 1000};
    struct manifest_chunk chunks[] = {{0, 100, 100, {digest, DIGEST_BYTES}},
                                      {0, 200, 800, {digest, DIGEST_BYTES}}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .chunks = {chunks, 2}};
    check_manifest(&m, 0);
    chunks[1].bytes = 801;
    check_manifest(&m, HP_EPARSE);
    chunks[1].bytes = 800;
    chunks[1].offset = 199;
    check_manifest(&m, HP_EPARSE);
    chunks[1].offset = UINT64_MAX - 10;
    check_manifest(&m, HP_EPARSE);
    chunks[1].offset = 200;
    chunks[0].digest.size = 31;
    check_manifest(&m, HP_EPARSE);
    chunks[0].digest.size = DIGEST_BYTES;
    static const char *const names[] = {"",     "/etc/passwd", "../x", "a/../b",
                                        "a//b", "a/",          ".",    "a\nb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        file.name = names[i];
        check_manifest(&m, HP_EPARSE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_survives_the_wire),
        cmocka_unit_test(another_version_is_refused_with_both_named),
        cmocka_unit_test(an_unknown_type_keeps_its_id_so_that_it_can_be_answered),
        cmocka_unit_test(lying_lengths_cost_no_memory),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_by_name),
        cmocka_unit_test(what_is_sent_is_utf8_whatever_it_was),
        cmocka_unit_test(a_message_of_many_small_values_costs_no_memory),
        cmocka_unit_test(a_message_has_the_size_of_its_kind),
        cmocka_unit_test(a_field_comes_once_and_unknown_ones_are_skipped),
        cmocka_unit_test(a_frame_header_survives_and_every_flipped_bit_is_found),
        cmocka_unit_test(rows_cross_in_formats_that_both_sides_know_by_word),
        cmocka_unit_test(runs_must_add_up_to_the_header),
        cmocka_unit_test(keys_and_values_say_which_they_are),
        cmocka_unit_test(a_join_token_carries_key_and_secret),
        cmocka_unit_test(a_key_file_that_others_may_read_is_refused),
        cmocka_unit_test(a_kill_while_keys_are_made_leaves_whole_ones_or_none),
        cmocka_unit_test(a_manifest_keeps_to_its_files),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
