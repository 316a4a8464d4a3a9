/* Tokenizers and chat templates against what the reference implementation says of the models in
 * shared/golden (HP_GOLDEN points elsewhere). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "model/files/gguf.h"
#include "model/files/mapped_file.h"
#include "model/template/template.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/test.h"

struct subject {
    char name[1200];
    struct tokenizer *tokenizer;
    struct buffer template_source;
    json_t *expected;
};

static int n_subjects;

static const char *golden_folder(void)
{
    static char folder[1024];
    const char *given = getenv("HP_GOLDEN"), *shared = getenv("HP_SHARED");
    snprintf(folder, sizeof folder, "%s%s",
             given    ? given
             : shared ? shared
                      : "../shared",
             given ? "" : "/golden");
    return access(folder, R_OK) == 0 ? folder : NULL;
}

static void check_ids(struct subject *s, const char *text, bool add_special, json_t *expected)
{
    struct buffer ids = {0};
    struct err e = {0};
    if (tokenizer_encode(s->tokenizer, text, strlen(text), add_special, &ids, &e) < 0)
        fail_msg("%s: \"%s\": %s", s->name, text, e.text);
    const uint32_t *id = (const uint32_t *)(const void *)ids.data;
    size_t n = ids.size / sizeof *id, wanted = json_array_size(expected),
           least = tokenizer_least_tokens(s->tokenizer, text, strlen(text), SIZE_MAX);
    if (least > n)
        fail_msg("%s: \"%s\" has at least %zu tokens, and has %zu", s->name, text, least, n);
    for (size_t i = 0; i < n || i < wanted; i++) {
        long long want = i < wanted ? json_integer_value(json_array_get(expected, i)) : -1,
                  got = i < n ? (long long)id[i] : -1;
        if (want != got)
            fail_msg("%s: \"%s\": token %zu is %lld, expected %lld", s->name, text, i, got, want);
    }
    buffer_free(&ids);
}

static void check_text(struct subject *s, const char *what, struct buffer *got,
                       const char *expected)
{
    if (strcmp(buffer_cstr(got), expected) != 0)
        fail_msg("%s: %s: \"%s\", expected \"%s\"", s->name, what, buffer_cstr(got), expected);
}

static void check_decode(struct subject *s, json_t *ids, const char *expected)
{
    size_t n = json_array_size(ids);
    uint32_t *id = calloc(n + 1, sizeof *id);
    struct buffer whole = {0}, pieces = {0};
    struct token_stream stream;
    token_stream_init(&stream, s->tokenizer, false);
    for (size_t i = 0; i < n; i++) {
        id[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
        token_stream_push(&stream, id[i], &pieces);
    }
    token_stream_finish(&stream, &pieces);
    assert_int_equal(tokenizer_decode(s->tokenizer, id, n, &whole, NULL), 0);
    check_text(s, "decoded", &whole, expected);
    check_text(s, "streamed", &pieces, expected);
    free(id);
    buffer_free(&whole);
    buffer_free(&pieces);
}

static void check_tokenize(struct subject *s)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(s->expected, "tokenize"), i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "text"));
        check_ids(s, text, true, json_object_get(entry, "ids"));
        check_ids(s, text, false, json_object_get(entry, "ids_without_special"));
        check_decode(s, json_object_get(entry, "ids_without_special"),
                     json_string_value(json_object_get(entry, "decoded")));
    }
}

static void check_chat_entry(struct subject *s, const struct chat_template *t, json_t *entry)
{
    struct buffer text = {0};
    struct err e = {0};
    json_t *variables = json_pack(
        "{s:O, s:O, s:s, s:s}", "messages", json_object_get(entry, "messages"),
        "add_generation_prompt", json_object_get(entry, "add_generation_prompt"), "bos_token",
        tokenizer_bos_text(s->tokenizer), "eos_token", tokenizer_eos_text(s->tokenizer));
    assert_non_null(variables);
    int rc = template_render(t, variables, NULL, &text, &e);
    const char *refusal = json_string_value(json_object_get(entry, "error"));
    if (refusal) {
        if (rc != HP_EINVAL || !strstr(e.text, refusal))
            fail_msg("%s: expected a refusal (%s), got %d: %s", s->name, refusal, rc,
                     rc < 0 ? e.text : buffer_cstr(&text));
    } else {
        if (rc < 0)
            fail_msg("%s: %s", s->name, e.text);
        const char *expected = json_string_value(json_object_get(entry, "text"));
        check_text(s, "rendered", &text, expected);
        check_ids(s, expected, false, json_object_get(entry, "ids"));
    }
    json_decref(variables);
    buffer_free(&text);
}

static void check_chat(struct subject *s)
{
    json_t *chats = json_object_get(s->expected, "chat"), *entry;
    size_t i;
    struct chat_template *t = NULL;
    struct err e = {0};
    if (json_array_size(chats) == 0)
        return;
    if (template_compile(buffer_cstr(&s->template_source), s->template_source.size, &t, &e) < 0)
        fail_msg("%s: %s", s->name, e.text);
    json_array_foreach(chats, i, entry) check_chat_entry(s, t, entry);
    template_destroy(&t);
}

static void open_hub(struct subject *s, const char *folder)
{
    struct err e = {0};
    char path[1300];
    snprintf(s->name, sizeof s->name, "%s/hf", folder);
    if (tokenizer_from_hub(s->name, &s->tokenizer, &e) < 0)
        fail_msg("%s", e.text);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", s->name);
    json_t *settings = json_load_file(path, 0, NULL);
    const char *source = json_string_value(json_object_get(settings, "chat_template"));
    if (source)
        buffer_append(&s->template_source, source, strlen(source));
    json_decref(settings);
}

/* False for a file whose number formats this build does not read. */
static bool open_gguf(struct subject *s, const char *path)
{
    struct err e = {0};
    struct mapped_file map;
    struct gguf g = {0};
    struct gguf_string source = {0};
    snprintf(s->name, sizeof s->name, "%s", path);
    if (mapped_file_open(path, &map, &e) < 0)
        fail_msg("%s", e.text);
    int rc = gguf_parse(s->name, map.data, map.bytes, GGUF_WEIGHTS, &g, &e);
    bool readable = rc != HP_EUNSUPPORTED;
    if (rc == 0 && (rc = gguf_get_string(&g, s->name, "tokenizer.chat_template", &source, &e)) == 0)
        rc = tokenizer_from_gguf(&g, s->name, NULL, &s->tokenizer, &e);
    if (rc < 0 && readable)
        fail_msg("%s", e.text);
    buffer_append(&s->template_source, source.data, source.size);
    gguf_free(&g);
    mapped_file_close(&map);
    return readable;
}

static void check_subject(struct subject *s, json_t *expected, void (*check)(struct subject *))
{
    s->expected = expected;
    check(s);
    n_subjects++;
    tokenizer_destroy(&s->tokenizer);
    buffer_free(&s->template_source);
}

/* Both forms of one model: the folder hf and the first GGUF file in each number format. */
static void check_model(const char *folder, void (*check)(struct subject *))
{
    char path[1200];
    struct dirent *d;
    snprintf(path, sizeof path, "%.1000s/expected.json", folder);
    json_t *expected = json_load_file(path, 0, NULL);
    if (!expected)
        return;
    struct subject hub = {.tokenizer = NULL};
    open_hub(&hub, folder);
    check_subject(&hub, expected, check);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((d = readdir(dir))) {
        size_t n = strlen(d->d_name);
        if (n < 5 || strcmp(d->d_name + n - 5, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%.900s/%.255s", folder, d->d_name);
        struct subject s = {.tokenizer = NULL};
        if (open_gguf(&s, path))
            check_subject(&s, expected, check);
    }
    closedir(dir);
    json_decref(expected);
}

static void check_all(void (*check)(struct subject *))
{
    const char *golden = golden_folder();
    if (!golden) {
        print_message("no golden models: HP_GOLDEN, HP_SHARED and ../shared are absent\n");
        skip();
    }
    DIR *dir = opendir(golden);
    assert_non_null(dir);
    struct dirent *d;
    n_subjects = 0;
    while ((d = readdir(dir))) {
        char folder[1024];
        snprintf(folder, sizeof folder, "%.700s/%.255s", golden, d->d_name);
        if (d->d_name[0] != '.')
            check_model(folder, check);
    }
    closedir(dir);
    assert_true(n_subjects > 0);
}

TEST(ids_and_decoded_text_are_those_of_the_reference)
{
    check_all(check_tokenize);
}

TEST(chats_are_rendered_and_tokenized_as_by_the_reference)
{
    check_all(check_chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_decoded_text_are_those_of_the_reference),
        cmocka_unit_test(chats_are_rendered_and_tokenized_as_by_the_reference),
    };
    return cmocka_run_group_tests_name("tokenizer_golden", tests, NULL, NULL);
}
