/* Tokenizers with small vocabularies of their own, from GGUF keys. */
#include <stdio.h>
#include <string.h>

#include "model/files/gguf.h"
#include "model/tokenizer/tokenizer_int.h"
#include "tests/test.h"
#include "tests/unit/model/tokenizer/tokenizer_fixture.h"

static struct gguf_string text_key(const char *s)
{
    return (struct gguf_string){s, strlen(s)};
}

enum { MAX_TOKENS = 300 };

struct gguf_fixture {
    struct gguf g;
    struct gguf_key keys[12];
    struct gguf_string words[MAX_TOKENS], merges[2], pre, model;
    char names[256][8];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    uint32_t bos, eos;
    uint8_t yes;
};

static void add_key(struct gguf_fixture *f, const char *name, enum gguf_type type,
                    enum gguf_type element, uint64_t count, const void *data,
                    struct gguf_string *strings)
{
    f->keys[f->g.n_keys++] = (struct gguf_key){text_key(name), type, element, count, data, strings};
    f->g.keys = f->keys;
}

static void make_bytes_gguf(struct gguf_fixture *f, const char *pre)
{
    *f = (struct gguf_fixture){.bos = 258, .eos = 257, .yes = 1};
    for (int i = 0; i < 256; i++) {
        struct buffer c = {0};
        pretokenize_byte_append(&c, (uint8_t)i);
        snprintf(f->names[i], sizeof f->names[i], "%s", buffer_cstr(&c));
        f->words[i] = text_key(f->names[i]);
        f->types[i] = 1;
        buffer_free(&c);
    }
    static const char *const more[] = {"he", "<|im_end|>", "<|begin|>", "<|user|>", "[PAD260]"};
    static const int32_t types[] = {1, 3, 3, 4, 5};
    for (int i = 0; i < 5; i++) {
        f->words[256 + i] = text_key(more[i]);
        f->types[256 + i] = types[i];
    }
    f->merges[0] = text_key("h e");
    f->pre = text_key(pre);
    f->model = text_key("gpt2");
    add_key(f, "tokenizer.ggml.model", GGUF_STRING, 0, 1, NULL, &f->model);
    add_key(f, "tokenizer.ggml.pre", GGUF_STRING, 0, 1, NULL, &f->pre);
    add_key(f, "tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, 261, NULL, f->words);
    add_key(f, "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, 261, f->types, NULL);
    add_key(f, "tokenizer.ggml.merges", GGUF_ARRAY, GGUF_STRING, 1, NULL, f->merges);
    add_key(f, "tokenizer.ggml.bos_token_id", GGUF_U32, 0, 1, &f->bos, NULL);
    add_key(f, "tokenizer.ggml.add_bos_token", GGUF_BOOL, 0, 1, &f->yes, NULL);
}

TEST(gguf_keys_make_a_byte_level_tokenizer)
{
    struct gguf_fixture f;
    struct tokenizer *t = NULL;
    struct err e = {0};
    make_bytes_gguf(&f, "qwen2");
    if (tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e) < 0)
        fail_msg("%s", e.text);
    expect_ids(t, "he 12", 5, true, "258 256 32 49 50");
    expect_ids(t, "<|im_end|>[PAD260]", 18, false, "257 91 80 65 68 50 54 48 93");
    expect_ids(t, "e\u0301", 3, false, "195 169"); /* this pattern's models bring text into NFC */
    expect_text(t, (const uint32_t[]){257, 259, 260, 256}, 4, "<|im_end|><|user|>he");
    int n;
    assert_int_equal(tokenizer_end_ids(t, &n)[0], 257); /* by its spelling: no key names it */
    assert_int_equal(n, 1);
    assert_int_equal(tokenizer_vocabulary(t), 260);
    assert_string_equal(tokenizer_bos_text(t), "<|begin|>");
    tokenizer_destroy(&t);
}

TEST(gguf_keys_make_a_sentencepiece_tokenizer)
{
    struct gguf_fixture f = {.bos = 1, .eos = 2};
    struct tokenizer *t = NULL;
    struct err e = {0};
    static const char *const words[] = {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "<0xFF>",
                                        "▁",     "h",   "i",    "hi",     "▁hi",    "e"};
    static const int32_t types[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, 0, 0, 0, -9, -9, -9, -1, -2, -9};
    for (int i = 0; i < 12; i++)
        f.words[i] = text_key(words[i]);
    f.model = text_key("llama");
    add_key(&f, "tokenizer.ggml.model", GGUF_STRING, 0, 1, NULL, &f.model);
    add_key(&f, "tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, 12, NULL, f.words);
    add_key(&f, "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, 12, (const void *)types, NULL);
    add_key(&f, "tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32, 12, (const void *)scores, NULL);
    add_key(&f, "tokenizer.ggml.bos_token_id", GGUF_U32, 0, 1, &f.bos, NULL);
    add_key(&f, "tokenizer.ggml.eos_token_id", GGUF_U32, 0, 1, &f.eos, NULL);
    if (tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e) < 0)
        fail_msg("%s", e.text);
    expect_ids(t, "hi</s> hié", 11, true, "1 10 2 6 10 3 4");
    expect_ids(t, "ůů", 4, false, "6 0");
    expect_text(t, (const uint32_t[]){10, 10, 3, 4}, 4, "hi hié");
    tokenizer_destroy(&t);
}

/* Keys as writers other than llama.cpp's leave them. */
TEST(gguf_keys_of_other_writers_are_read)
{
    static const char *const words[] = {"<unk>", "<s>", "</s>", "▁", "h", "i", "hi"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, -9, -9, -9, -1};
    static const int32_t nothing = -1;
    static const uint8_t yes = 1, no = 0;
    for (int without = 0; without < 4; without++) {
        struct gguf_fixture f = {0};
        struct tokenizer *t = NULL;
        struct err e = {0};
        for (int i = 0; i < 7; i++)
            f.words[i] = text_key(words[i]);
        f.model = text_key("llama");
        add_key(&f, "tokenizer.ggml.model", GGUF_STRING, 0, 1, NULL, &f.model);
        add_key(&f, "tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, 7, NULL, f.words);
        add_key(&f, "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, 7, (const void *)types,
                NULL);
        if (without != 3)
            add_key(&f, "tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32, 7, (const void *)scores,
                    NULL);
        if (without == 1)
            add_key(&f, "tokenizer.ggml.eos_token_id", GGUF_I32, 0, 1, (const void *)&nothing,
                    NULL);
        if (without >= 1)
            add_key(&f, "tokenizer.ggml.add_bos_token", GGUF_U8, 0, 1, without == 2 ? &no : &yes,
                    NULL);
        if (tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e) < 0)
            fail_msg("%s", e.text);
        int n;
        tokenizer_end_ids(t, &n);
        assert_int_equal(n, without == 1 ? 0 : 1);
        assert_string_equal(tokenizer_eos_text(t), without == 1 ? "" : "</s>");
        assert_string_equal(tokenizer_bos_text(t), "<s>");
        expect_text(t, (const uint32_t[]){3, 6}, 2, "hi");
        struct buffer ids = {0};
        if (without == 3) {
            assert_int_equal(tokenizer_encode(t, "hi", 2, true, &ids, &e), HP_EUNSUPPORTED);
            assert_non_null(strstr(e.text, "tokenizer.ggml.scores"));
        } else {
            expect_ids(t, "hi", 2, true, without == 2 ? "3 6" : "1 3 6");
        }
        buffer_free(&ids);
        tokenizer_destroy(&t);
    }
}

TEST(a_file_without_a_tokenizer_is_run_by_ids)
{
    static const char *const kinds[] = {NULL, "none", "no_vocab"};
    for (int i = 0; i < 3; i++) {
        struct gguf_fixture f = {0};
        struct tokenizer *t = NULL;
        struct err e = {0};
        struct buffer ids = {0}, text = {0};
        f.model = text_key(kinds[i] ? kinds[i] : "");
        if (kinds[i])
            add_key(&f, "tokenizer.ggml.model", GGUF_STRING, 0, 1, NULL, &f.model);
        if (tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e) < 0)
            fail_msg("%s", e.text);
        assert_string_equal(tokenizer_kind(t), "none");
        assert_int_equal(tokenizer_encode(t, "hi", 2, true, &ids, &e), HP_EUNSUPPORTED);
        assert_string_equal(e.text, "the model's file has no tokenizer; give it token ids");
        assert_int_equal(tokenizer_encode(t, "", 0, true, &ids, &e), 0);
        assert_int_equal(tokenizer_decode(t, (const uint32_t[]){1, 2}, 2, &text, &e), 0);
        assert_int_equal(ids.size + text.size, 0);
        buffer_free(&ids);
        buffer_free(&text);
        tokenizer_destroy(&t);
    }
}

TEST(broken_gguf_keys_are_refused_by_name)
{
    static const struct {
        int key; /* of make_bytes_gguf */
        uint64_t count;
        const char *name, *says;
    } cases[] = {
        {2, 0, NULL, "m.gguf: has no tokenizer.ggml.tokens"},
        {2, 261, "x", "m.gguf: has no tokenizer.ggml.tokens"},
        {3, 9, NULL, "m.gguf: tokenizer.ggml.token_type has 9 entries for 261 tokens"},
        {4, 1, "x", "m.gguf: has no tokenizer.ggml.merges"},
        {4, 2, NULL, "m.gguf: tokenizer.ggml.merges[1] is not two tokens"},
        {0, 1, "x", "m.gguf: tokenizer.ggml.model is \"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_fixture f;
        struct tokenizer *t = NULL;
        struct err e = {0};
        make_bytes_gguf(&f, "llama-bpe");
        f.merges[1] = text_key("he");
        f.keys[cases[i].key].count = cases[i].count;
        if (cases[i].name)
            f.keys[cases[i].key].name = text_key(cases[i].name);
        int rc = tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e);
        if (rc >= 0 || !strstr(e.text, cases[i].says))
            fail_msg("%zu: %d \"%s\", expected \"%s\"", i, rc, e.text, cases[i].says);
    }
    struct gguf_fixture f;
    struct tokenizer *t = NULL;
    struct err e = {0};
    make_bytes_gguf(&f, "klingon");
    assert_int_equal(tokenizer_from_gguf(&f.g, "m.gguf", NULL, &t, &e), HP_EUNSUPPORTED);
    assert_non_null(
        strstr(e.text, "m.gguf: the pre-tokenizer \"klingon\" is not known; known are llama-bpe"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_keys_make_a_byte_level_tokenizer),
        cmocka_unit_test(gguf_keys_make_a_sentencepiece_tokenizer),
        cmocka_unit_test(gguf_keys_of_other_writers_are_read),
        cmocka_unit_test(a_file_without_a_tokenizer_is_run_by_ids),
        cmocka_unit_test(broken_gguf_keys_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("tokenizer gguf", tests, NULL, NULL);
}
