/* What is written by hand must read as what a JSON library would have written. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai.h"
#include "coordinator/gateway/openai_json.h"
#include "tests/test.h"

static const struct openai_head chat = {.id = "chatcmpl-1",
                                        .created_s = 1700000000,
                                        .model = "m\"\\\n\xC3\xA9",
                                        .chat = true,
                                        .include_usage = true};
static const struct openai_head plain = {
    .id = "cmpl-2", .created_s = 5, .model = "m", .chat = false};

static void assert_event(struct buffer *out, json_t *expected)
{
    json_error_t problem;
    buffer_cstr(out);
    assert_memory_equal(out->data, "data: ", 6);
    assert_memory_equal(out->data + out->size - 2, "\n\n", 2);
    char *text = json_dumps(expected, JSON_COMPACT);
    assert_non_null(text);
    if (strlen(text) != out->size - 8 || memcmp(text, out->data + 6, out->size - 8) != 0)
        fail_msg("%.*s\nis not\n%s", (int)out->size, (const char *)out->data, text);
    json_t *got =
        json_loadb((const char *)out->data + 6, out->size - 8, JSON_REJECT_DUPLICATES, &problem);
    assert_true(got && json_equal(got, expected));
    json_decref(got);
    json_decref(expected);
    free(text);
    buffer_free(out);
}

static json_t *envelope(const struct openai_head *h, const char *object, json_t *choice)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:[o]}", "id", h->id, "object", object, "created",
                     (json_int_t)h->created_s, "model", h->model, "choices", choice);
}

TEST(chunks_are_byte_for_byte_what_jansson_writes)
{
    static const char nasty[] =
        "a\"b\\c/d\b\f\n\r\t\x01\x1f\x7f \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80</script>";
    struct buffer out = {0};
    openai_event_text(&out, &chat, 0, nasty, sizeof nasty - 1);
    json_t *value = envelope(&chat, "chat.completion.chunk",
                             json_pack("{s:i, s:{s:s}, s:n, s:n}", "index", 0, "delta", "content",
                                       nasty, "logprobs", "finish_reason"));
    json_object_set_new(value, "usage", json_null());
    assert_event(&out, value);
    openai_event_role(&out, &chat, 0);
    value = envelope(&chat, "chat.completion.chunk",
                     json_pack("{s:i, s:{s:s, s:s}, s:n, s:n}", "index", 0, "delta", "role",
                               "assistant", "content", "", "logprobs", "finish_reason"));
    json_object_set_new(value, "usage", json_null());
    assert_event(&out, value);
    openai_event_text(&out, &plain, 0, nasty, sizeof nasty - 1);
    assert_event(&out, envelope(&plain, "text_completion",
                                json_pack("{s:i, s:s, s:n, s:n}", "index", 0, "text", nasty,
                                          "logprobs", "finish_reason")));
    openai_event_finish(&out, &plain, 0, "stop");
    assert_event(&out, envelope(&plain, "text_completion",
                                json_pack("{s:i, s:s, s:n, s:s}", "index", 0, "text", "",
                                          "logprobs", "finish_reason", "stop")));
}

TEST(a_piece_tells_the_tokens_so_far_where_that_is_asked_for)
{
    struct request_usage so_far = {.prompt_tokens = 7, .output_tokens = 3};
    struct openai_head h = chat;
    struct buffer out = {0};
    h.tells_usage = true;
    h.usage = &so_far;
    openai_event_text(&out, &h, 0, "a", 1);
    json_t *value = envelope(&h, "chat.completion.chunk",
                             json_pack("{s:i, s:{s:s}, s:n, s:n}", "index", 0, "delta", "content",
                                       "a", "logprobs", "finish_reason"));
    json_object_set_new(value, "usage",
                        json_pack("{s:i, s:i, s:i}", "prompt_tokens", 7, "completion_tokens", 3,
                                  "total_tokens", 10));
    assert_event(&out, value);
}

/* The data of an event, which is taken off the text. */
static json_t *event_next(const char **text, const char *type)
{
    char head[80];
    int n = snprintf(head, sizeof head, "event: %s\ndata: ", type);
    if (strncmp(*text, head, (size_t)n) != 0)
        fail_msg("no %s in %s", type, *text);
    const char *end = strstr(*text, "\n\n");
    assert_non_null(end);
    json_t *got = json_loadb(*text + n, (size_t)(end - *text - n), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(got);
    *text = end + 2;
    return got;
}

TEST(a_response_that_fails_goes_on_with_its_numbers_and_ends)
{
    struct answer_blocks blocks = {0};
    struct openai_head h = {.dialect = &dialect_responses, .id = "resp_1", .model = "m"};
    struct buffer out = {0};
    h.blocks = &blocks;
    dialect_responses.begin(&out, &h, 0);
    dialect_responses.text(&out, &h, 0, "So", 2);
    size_t begun = out.size;
    uint64_t events = blocks.events;
    (dialect_responses.fail)(&out, &h, 503, "agent \"a\" was lost", "link");
    const char *rest = buffer_cstr(&out) + begun;
    json_t *error = event_next(&rest, "error"), *failed = event_next(&rest, "response.failed");
    const json_t *response = json_object_get(failed, "response");
    assert_int_equal(json_integer_value(json_object_get(error, "sequence_number")), events);
    assert_string_equal(json_string_value(json_object_get(error, "message")),
                        "agent \"a\" was lost");
    assert_int_equal(json_integer_value(json_object_get(failed, "sequence_number")), events + 1);
    assert_string_equal(json_string_value(json_object_get(response, "status")), "failed");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(response, "error"), "code")), "link");
    assert_string_equal(rest, "");
    json_decref(error);
    json_decref(failed);
    buffer_free(&out);
    buffer_free(&blocks.said);
    buffer_free(&blocks.items);
}

TEST(every_control_character_and_every_length_reads_back)
{
    uint64_t seed = 42;
    for (int round = 0; round < 2000; round++) {
        char text[64];
        size_t n = random_next(&seed) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(random_next(&seed) % 128 ? random_next(&seed) % 127 + 1 : '"');
        struct buffer out = {0};
        json_write_string(&out, text, n);
        json_t *got = json_loadb((const char *)out.data, out.size, JSON_DECODE_ANY, NULL);
        assert_true(got && json_string_length(got) == n &&
                    memcmp(json_string_value(got), text, n) == 0);
        json_decref(got);
        buffer_free(&out);
    }
}

TEST(errors_are_valid_json_whatever_bytes_they_quote)
{
    static const char *const texts[] = {"\xff",
                                        "caf\xE9",
                                        "cut \xE2\x82",
                                        "\xC0\x80",
                                        "\xED\xA0\x80",
                                        "\xF4\x90\x80\x80",
                                        "fine \xC3\xA9",
                                        "",
                                        NULL};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buffer out = {0};
        json_error_t problem;
        openai_json_error(&out, 404, texts[i], texts[i], texts[i]);
        json_t *got =
            json_loadb((const char *)out.data, out.size, JSON_REJECT_DUPLICATES, &problem);
        if (!got)
            fail_msg("%s: %.*s", problem.text, (int)out.size, (const char *)out.data);
        json_t *error = json_object_get(got, "error");
        assert_string_equal(json_string_value(json_object_get(error, "type")), "not_found_error");
        assert_true(json_is_string(json_object_get(error, "message")));
        json_decref(got);
        buffer_free(&out);
    }
}

TEST(a_stream_with_room_in_its_buffer_allocates_nothing)
{
    struct buffer out = {0};
    openai_event_text(&out, &chat, 0, "0123456789", 10);
    const uint8_t *where = out.data;
    for (int i = 0; i < 1000; i++) {
        out.size = 0; /* as when it was sent */
        openai_event_text(&out, &chat, 0, "abc\n", 4);
        assert_ptr_equal(out.data, where);
    }
    buffer_free(&out);
}

TEST(no_fault_of_a_client_is_an_error_of_the_server)
{
    static const struct {
        int rc, status;
    } cases[] = {{HP_EINVAL, 400}, {HP_ELIMIT, 400}, {HP_EPARSE, 400},    {HP_EUNSUPPORTED, 400},
                 {HP_ENOENT, 404}, {HP_EBUSY, 429},  {HP_ECANCELED, 503}, {HP_ESTALE, 503},
                 {HP_ELINK, 503},  {HP_ENOMEM, 503}, {HP_ENOSPACE, 503},  {HP_ETIMEOUT, 504},
                 {HP_EBUG, 500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(openai_status_of(cases[i].rc), cases[i].status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_byte_for_byte_what_jansson_writes),
        cmocka_unit_test(a_piece_tells_the_tokens_so_far_where_that_is_asked_for),
        cmocka_unit_test(a_response_that_fails_goes_on_with_its_numbers_and_ends),
        cmocka_unit_test(every_control_character_and_every_length_reads_back),
        cmocka_unit_test(errors_are_valid_json_whatever_bytes_they_quote),
        cmocka_unit_test(a_stream_with_room_in_its_buffer_allocates_nothing),
        cmocka_unit_test(no_fault_of_a_client_is_an_error_of_the_server),
    };
    return cmocka_run_group_tests_name("openai_json", tests, NULL, NULL);
}
