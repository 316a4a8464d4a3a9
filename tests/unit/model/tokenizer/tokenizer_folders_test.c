/* Folders with tokenizer.model or tekken.json instead of tokenizer.json, against what SentencePiece
 * and tiktoken make of odd texts: tests/unit/model/tokenizer/cases/folders.json, made by
 * make_folders.py beside it. */
#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/model/model_fixture.h"
#include "tests/unit/model/tokenizer/tokenizer_fixture.h"

static json_t *load_cases(struct json_at *at)
{
    json_t *root;
    struct err e = {0};
    if (json_load_wide_at("tests/unit/model/tokenizer/cases/folders.json", &root, at, &e) < 0)
        fail_msg("%s", e.text);
    return root;
}

static const json_t *case_named(const json_t *root, const char *name)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(root, "folders"), i,
                       f) if (strcmp(json_string_value(json_object_get(f, "name")), name) ==
                              0) return f;
    fail_msg("no case \"%s\"", name);
    return NULL;
}

static void decode_base64(const json_t *from, struct buffer *out)
{
    const char *text = json_string_value(from);
    size_t n = 0;
    assert_true(buffer_extend(out, strlen(text)));
    assert_int_equal(sodium_base642bin(out->data, out->size, text, strlen(text), NULL, &n, NULL,
                                       sodium_base64_VARIANT_ORIGINAL),
                     0);
    out->size = n;
}

/* Writes a case's file into the test's folder. */
static void write_case(const json_t *f)
{
    const json_t *tekken = json_object_get(f, "tekken");
    if (tekken) {
        char *text = json_dumps(tekken, 0);
        write_text("tekken.json", text);
        free(text);
        return;
    }
    struct buffer bytes = {0};
    decode_base64(json_object_get(f, "file"), &bytes);
    write_bytes("tokenizer.model", bytes.data, bytes.size);
    buffer_free(&bytes);
}

static struct tokenizer *folder_tokenizer(void)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    if (tokenizer_from_hub(folder, &t, &e) < 0)
        fail_msg("%s", e.text);
    return t;
}

static void remove_files(void)
{
    static const char *const names[] = {"tokenizer.model", "tekken.json", "tokenizer_config.json",
                                        "added_tokens.json"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

static void check_case(const char *name, const struct tokenizer *t, const json_t *c, bool marks)
{
    const json_t *text = json_array_get(c, 0), *wanted = json_array_get(c, 1),
                 *back = json_array_get(c, 2);
    struct buffer ids = {0}, out = {0};
    struct err e = {0};
    if (tokenizer_encode(t, json_string_value(text), json_string_length(text), marks, &ids, &e) < 0)
        fail_msg("%s: \"%s\": %s", name, json_string_value(text), e.text);
    const uint32_t *id = (const uint32_t *)(const void *)ids.data;
    size_t n = ids.size / sizeof *id;
    assert_in_range(
        tokenizer_least_tokens(t, json_string_value(text), json_string_length(text), SIZE_MAX), 0,
        n);
    for (size_t i = 0; i < n || i < json_array_size(wanted); i++) {
        long long want = i < json_array_size(wanted) ? json_integer_value(json_array_get(wanted, i))
                                                     : -1,
                  got = i < n ? (long long)id[i] : -1;
        if (want != got)
            fail_msg("%s: \"%s\": token %zu is %lld, expected %lld", name, json_string_value(text),
                     i, got, want);
    }
    if (json_is_string(back)) {
        assert_int_equal(tokenizer_decode(t, n ? id + marks : NULL, n ? n - marks : 0, &out, &e),
                         0);
        if (strcmp(buffer_cstr(&out), json_string_value(back)) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", name, buffer_cstr(&out),
                     json_string_value(back));
    }
    buffer_free(&ids);
    buffer_free(&out);
}

TEST(folders_without_tokenizer_json_give_the_ids_of_sentencepiece_and_tiktoken)
{
    struct json_at at;
    json_t *root = load_cases(&at), *f, *c;
    size_t i, k, n = 0;
    json_array_foreach(json_object_get(root, "folders"), i, f)
    {
        const char *name = json_string_value(json_object_get(f, "name"));
        remove_files();
        write_case(f);
        struct tokenizer *t = folder_tokenizer();
        json_array_foreach(json_object_get(f, "cases"), k, c)
        {
            check_case(name, t, c, json_object_get(f, "tekken") != NULL);
            n++;
        }
        tokenizer_destroy(&t);
    }
    assert_true(n > 100);
    json_decref(root);
}

TEST(what_folders_say_of_special_tokens_holds_for_pieces)
{
    struct json_at at;
    remove_files();
    json_t *root = load_cases(&at);
    write_case(case_named(root, "bpe"));
    struct tokenizer *t = folder_tokenizer();
    int n_ends;
    assert_string_equal(tokenizer_kind(t), "sentencepiece");
    assert_string_equal(tokenizer_bos_text(t), "<s>");
    assert_int_equal(tokenizer_end_ids(t, &n_ends)[0], 2);
    expect_ids(t, "", 0, true, "1");
    expect_ids(t, "</s>", 4, false, "2");
    tokenizer_destroy(&t);

    /* Added tokens take ids of pieces and ids of their own, by either file. */
    write_text("tokenizer_config.json",
               "{\"tokenizer_class\": \"LlamaTokenizer\", \"legacy\": false, \"add_bos_token\": "
               "false, \"add_eos_token\": true, \"eos_token\": \"<end>\", "
               "\"additional_special_tokens\": [\"<more>\"], \"added_tokens_decoder\": {\"480\": "
               "{\"content\": \"<end>\", \"special\": true}}}");
    write_text("added_tokens.json", "{\"<more>\": 490, \"<end>\": 480, \"<plain>\": 491}");
    t = folder_tokenizer();
    assert_int_equal(tokenizer_vocabulary(t), 492);
    expect_ids(t, "<more><end><plain>", 18, true, "490 480 491 480");
    assert_true(t->vocabulary.tokens[490].special && !t->vocabulary.tokens[491].special);
    assert_int_equal(tokenizer_end_ids(t, &n_ends)[0], 480);
    /* Only the whole text gets a space before it. */
    struct buffer first = {0}, behind = {0};
    struct err e;
    assert_int_equal(tokenizer_encode(t, "the", 3, false, &first, &e), 0);
    assert_int_equal(tokenizer_encode(t, "<more>the", 9, false, &behind, &e), 0);
    assert_int_equal(tokenizer_decode(t, (const uint32_t *)(const void *)behind.data + 1,
                                      behind.size / 4 - 1, &first, &e),
                     0);
    assert_true(first.size > 3 && memcmp(first.data + first.size - 3, "the", 3) == 0);
    assert_true(behind.size / 4 > 2); /* "the" without its space is no piece of this vocabulary */
    buffer_free(&first);
    buffer_free(&behind);
    tokenizer_destroy(&t);

    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"XLMRobertaTokenizer\"}");
    assert_int_equal(tokenizer_from_hub(folder, &t, &e), HP_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "XLMRobertaTokenizer"));
    json_decref(root);
}

TEST(a_folder_without_weights_or_config_can_be_tokenized)
{
    struct json_at at;
    remove_files();
    json_t *root = load_cases(&at);
    struct model *m;
    struct err e = {0};
    const struct tokenizer *t;
    write_case(case_named(root, "tekken"));
    if (model_open_text(folder, &m, &e) < 0 || model_tokenizer(m, &t, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(tokenizer_kind(t), "bpe");
    expect_ids(t, "[INST]", 6, true, "1 3");
    assert_string_equal(tokenizer_pad_text(t), "<pad>");
    model_close(&m);
    remove_files();
    assert_int_equal(model_open_text(folder, &m, &e), 0);
    assert_int_equal(model_tokenizer(m, &t, &e), HP_ENOENT);
    assert_non_null(strstr(e.hint, "tekken.json"));
    model_close(&m);
    json_decref(root);
}

TEST(pieces_that_are_cut_short_or_lie_are_refused)
{
    struct json_at at;
    json_t *root = load_cases(&at);
    struct buffer bytes = {0};
    struct err e = {0};
    const struct folder_settings none = {0};
    struct tokenizer *t = NULL;
    decode_base64(json_object_get(case_named(root, "unigram"), "file"), &bytes);
    for (size_t size = 0; size < bytes.size; size += size < 200 ? 1 : 97) {
        char *copy = malloc(size + 1); /* so that reading beyond it is seen */
        memcpy(copy, bytes.data, size);
        if (tokenizer_from_pieces("m", copy, size, &none, &t, &e) == 0)
            tokenizer_destroy(&t);
        else
            assert_true(e.code == HP_EPARSE);
        free(copy);
    }
    static const struct {
        const char *bytes;
        size_t size;
        int code;
        const char *says;
    } cases[] = {
        {"IQ== 0\nIg== 1\n", 14, HP_EPARSE, "not as in a SentencePiece"},
        {"\x0a\x03\x0a\x01"
         "a\x12\x02\x18\x03",
         9, HP_EUNSUPPORTED, "word"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x07",
         7, HP_EPARSE, "type 7"},
        {"\x0a\x03\x0a\x01"
         "a\x12\x03\xc0\x01\x01",
         10, HP_EUNSUPPORTED, "behind their words"},
        {"\x0a\x03\x0a\x09"
         "a",
         5, HP_EPARSE, "byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = tokenizer_from_pieces("m", cases[i].bytes, cases[i].size, &none, &t, &e);
        if (rc != cases[i].code || !strstr(e.text, cases[i].says))
            fail_msg("case %zu: %d, \"%s\"", i, rc, e.text);
    }
    buffer_free(&bytes);
    json_decref(root);
}

TEST(tekken_that_lies_is_refused)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"config\": {}, \"vocab\": []}", "pattern"},
        {"{\"config\": {\"pattern\": \"(\"}, \"vocab\": []}", "pattern"},
        {"{\"config\": {\"pattern\": \".\"}, \"vocab\": [{\"rank\": 1, \"token_bytes\": "
         "\"AA==\"}]}",
         "rank 1 at place 0"},
        {"{\"config\": {\"pattern\": \".\"}, \"vocab\": [{\"token_bytes\": \"?\"}]}", "base64"},
        {"{\"config\": {\"pattern\": \".\", \"default_vocab_size\": 1, "
         "\"default_num_special_tokens\": 2}, \"vocab\": []}",
         "of which 2"},
        {"{\"config\": {\"pattern\": \".\", \"default_num_special_tokens\": 1}, \"vocab\": [], "
         "\"special_tokens\": [{\"rank\": 1, \"token_str\": \"<s>\"}]}",
         "there are 1"},
    };
    struct tokenizer *t = NULL;
    struct err e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("tekken.json", cases[i].text);
        int rc = tokenizer_from_hub(folder, &t, &e);
        if (rc == 0 || !strstr(e.text, cases[i].says))
            fail_msg("case %zu: %d, \"%s\"", i, rc, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_without_tokenizer_json_give_the_ids_of_sentencepiece_and_tiktoken),
        cmocka_unit_test(what_folders_say_of_special_tokens_holds_for_pieces),
        cmocka_unit_test(a_folder_without_weights_or_config_can_be_tokenized),
        cmocka_unit_test(pieces_that_are_cut_short_or_lie_are_refused),
        cmocka_unit_test(tekken_that_lies_is_refused),
    };
    return cmocka_run_group_tests_name("folders' tokenizers", tests, make_folder, remove_folder);
}
