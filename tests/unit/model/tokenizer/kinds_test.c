/* Tokenizers of every kind against what Hugging Face's library and SentencePiece make of odd texts:
 * tests/unit/model/tokenizer/cases/kinds.json, made by make_kinds.py beside it. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/files/gguf.h"
#include "model/tokenizer/charsmap.h"
#include "model/tokenizer/tokenizer_int.h"
#include "tests/test.h"

static json_t *load_cases(struct json_at *at)
{
    json_t *root;
    struct err e = {0};
    if (json_load_at("tests/unit/model/tokenizer/cases/kinds.json", &root, at, &e) < 0)
        fail_msg("%s", e.text);
    return root;
}

static void check_ids(const char *kind, const struct tokenizer *t, const char *text, size_t size,
                      const json_t *wanted)
{
    struct buffer ids = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, size, true, &ids, &e) < 0)
        fail_msg("%s: \"%s\": %s", kind, text, e.text);
    const uint32_t *id = (const uint32_t *)(const void *)ids.data;
    size_t n = ids.size / sizeof *id, least = tokenizer_least_tokens(t, text, size, SIZE_MAX);
    if (least > n)
        fail_msg("%s: \"%s\" has at least %zu tokens, and has %zu", kind, text, least, n);
    for (size_t i = 0; i < n || i < json_array_size(wanted); i++) {
        long long want = i < json_array_size(wanted) ? json_integer_value(json_array_get(wanted, i))
                                                     : -1,
                  got = i < n ? (long long)id[i] : -1;
        if (want != got)
            fail_msg("%s: \"%s\": token %zu is %lld, expected %lld", kind, text, i, got, want);
    }
    buffer_free(&ids);
}

static void check_text(const char *kind, const struct tokenizer *t, const json_t *ids,
                       const char *wanted)
{
    struct buffer text = {0};
    struct token_stream s;
    size_t i;
    json_t *id;
    token_stream_init(&s, t, false);
    json_array_foreach((json_t *)ids, i, id)
        token_stream_push(&s, (uint32_t)json_integer_value(id), &text);
    token_stream_finish(&s, &text);
    if (strcmp(buffer_cstr(&text), wanted) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", kind, buffer_cstr(&text), wanted);
    buffer_free(&text);
}

TEST(every_kind_gives_the_ids_and_texts_of_the_library)
{
    struct json_at at, kinds, tokenizer;
    json_t *root = load_cases(&at);
    struct err e = {0};
    assert_int_equal(json_get(&at, "kinds", &kinds, &e), 0);
    size_t n = json_array_size(kinds.value);
    assert_true(n >= 7);
    for (size_t i = 0; i < n; i++) {
        struct json_at kind = json_item(&kinds, i);
        const char *name = json_string_value(json_object_get(kind.value, "name"));
        struct tokenizer *t = NULL;
        assert_int_equal(json_get(&kind, "tokenizer", &tokenizer, &e), 0);
        if (tokenizer_from_json(&tokenizer, NULL, NULL, NULL, &t, &e) < 0)
            fail_msg("%s: %s", name, e.text);
        size_t c;
        json_t *value;
        json_array_foreach(json_object_get(kind.value, "cases"), c, value)
        {
            const json_t *text = json_array_get(value, 0), *ids = json_array_get(value, 1);
            check_ids(name, t, json_string_value(text), json_string_length(text), ids);
            check_text(name, t, ids, json_string_value(json_array_get(value, 2)));
        }
        tokenizer_destroy(&t);
    }
    json_decref(root);
}

/* The keys of a GGUF file with SentencePiece's unigram model. */
struct pieces_fixture {
    struct gguf g;
    struct gguf_key keys[8];
    struct gguf_string kind, *words;
    float *scores;
    int32_t *types;
    uint8_t charsmap[4096], yes;
};

static void add_key(struct pieces_fixture *f, const char *name, struct gguf_key key)
{
    key.name = (struct gguf_string){name, strlen(name)};
    f->keys[f->g.n_keys++] = key;
    f->g.keys = f->keys;
}

static void make_pieces(struct pieces_fixture *f, const json_t *from)
{
    const json_t *pieces = json_object_get(from, "pieces");
    const char *map = json_string_value(json_object_get(from, "charsmap"));
    size_t n = json_array_size(pieces), n_map = 0;
    *f = (struct pieces_fixture){.kind = {"t5", 2},
                                 .words = calloc(n, sizeof *f->words),
                                 .scores = calloc(n, sizeof *f->scores),
                                 .types = calloc(n, sizeof *f->types),
                                 .yes = 1};
    for (size_t i = 0; i < n; i++) {
        const json_t *piece = json_array_get(pieces, i);
        f->words[i] = (struct gguf_string){json_string_value(json_array_get(piece, 0)),
                                           json_string_length(json_array_get(piece, 0))};
        f->scores[i] = (float)json_number_value(json_array_get(piece, 1));
        f->types[i] = (int32_t)json_integer_value(json_array_get(piece, 2));
    }
    assert_int_equal(sodium_base642bin(f->charsmap, sizeof f->charsmap, map, strlen(map), NULL,
                                       &n_map, NULL, sodium_base64_VARIANT_ORIGINAL),
                     0);
    struct gguf_key numbers = {.type = GGUF_ARRAY, .count = n};
    add_key(f, "tokenizer.ggml.model",
            (struct gguf_key){.type = GGUF_STRING, .count = 1, .strings = &f->kind});
    numbers.element_type = GGUF_STRING;
    numbers.strings = f->words;
    add_key(f, "tokenizer.ggml.tokens", numbers);
    numbers.element_type = GGUF_F32;
    numbers.data = (const uint8_t *)f->scores;
    add_key(f, "tokenizer.ggml.scores", numbers);
    numbers.element_type = GGUF_I32;
    numbers.data = (const uint8_t *)f->types;
    add_key(f, "tokenizer.ggml.token_type", numbers);
    add_key(f, "tokenizer.ggml.precompiled_charsmap",
            (struct gguf_key){
                .type = GGUF_ARRAY, .element_type = GGUF_U8, .count = n_map, .data = f->charsmap});
    add_key(f, "tokenizer.ggml.remove_extra_whitespaces",
            (struct gguf_key){.type = GGUF_BOOL, .count = 1, .data = &f->yes});
    static const uint32_t eos = 2;
    add_key(f, "tokenizer.ggml.eos_token_id",
            (struct gguf_key){
                .type = GGUF_U32, .count = 1, .data = (const uint8_t *)(const void *)&eos});
}

TEST(unigram_keys_of_gguf_give_the_ids_of_sentencepiece)
{
    struct json_at at;
    json_t *root = load_cases(&at), *value, *from = json_object_get(root, "pieces");
    struct pieces_fixture f;
    struct tokenizer *t = NULL;
    struct err e = {0};
    make_pieces(&f, from);
    if (tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(tokenizer_kind(t), "unigram");
    size_t i;
    json_array_foreach(json_object_get(from, "cases"), i, value)
    {
        const json_t *text = json_array_get(value, 0);
        check_ids("pieces", t, json_string_value(text), json_string_length(text),
                  json_array_get(value, 1));
    }
    assert_true(i > 10);
    tokenizer_destroy(&t);
    free(f.words);
    free(f.scores);
    free(f.types);
    json_decref(root);
}

/* A table of characters out of a file: one byte becomes the text at `value`. */
static void table_put(uint32_t *units, uint8_t byte, uint32_t place, uint32_t value)
{
    uint32_t node = 256U ^ byte;
    units[node] = byte | 1U << 8 | (node ^ place) << 10;
    units[place] = value | 1U << 31;
}

TEST(tables_of_characters_make_nothing_but_utf8_and_no_end_of_it)
{
    enum { UNITS = 512, LONG = 3000 };
    struct {
        uint32_t bytes, units[UNITS];
        char texts[LONG];
    } file = {.bytes = sizeof file.units};
    struct arena arena = {0};
    struct charsmap map;
    struct buffer out = {0};
    struct err e = {0};
    file.units[0] = 256U << 10;
    table_put(file.units, 'a', 1, 0);  /* half a character */
    table_put(file.units, 0xC3, 2, 2); /* of half a character */
    table_put(file.units, 'b', 3, 2);
    table_put(file.units, 'c', 4, 4);
    memcpy(file.texts, "\xF0\0x", 3);
    memset(file.texts + 4, 'y', LONG - 5);
    assert_int_equal(charsmap_read(&file, sizeof file, &arena, &map, &e), 0);
    assert_int_equal(charsmap_apply(&map,
                                    "a\xC3\xA9"
                                    "b",
                                    4, 1000, &out, &e),
                     0);
    assert_string_equal(buffer_cstr(&out), "a\xC3\xA9x");
    out.size = 0;
    assert_int_equal(charsmap_apply(&map, "cccccc", 6, 7000, &out, &e), HP_ELIMIT);
    assert_true(out.size < 10000);
    buffer_free(&out);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_gives_the_ids_and_texts_of_the_library),
        cmocka_unit_test(unigram_keys_of_gguf_give_the_ids_of_sentencepiece),
        cmocka_unit_test(tables_of_characters_make_nothing_but_utf8_and_no_end_of_it),
    };
    return cmocka_run_group_tests_name("kinds of tokenizers", tests, NULL, NULL);
}
