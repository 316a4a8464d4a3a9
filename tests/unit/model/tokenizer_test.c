/* Tokenizers with small vocabularies of their own, from tokenizer.json and from GGUF keys. */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model/gguf.h"
#include "model/tokenizer_int.h"

/* ---- makers
 * -------------------------------------------------------------------------------------------------
 */

static int from_json(const char *text, const char *settings, const char *config,
                     const char *generation, struct tokenizer **out, struct err *e)
{
    const char *texts[] = {text, settings, config, generation};
    json_t *roots[4] = {NULL};
    struct json_at at[4];
    for (int i = 0; i < 4; i++)
        if (texts[i] &&
            json_parse_at("tokenizer.json", texts[i], strlen(texts[i]), &roots[i], &at[i], e) < 0)
            fail_msg("%s", e->text);
    int rc = tokenizer_from_json(&at[0], roots[1] ? &at[1] : NULL, roots[2] ? &at[2] : NULL,
                                 roots[3] ? &at[3] : NULL, out, e);
    for (int i = 0; i < 4; i++)
        json_decref(roots[i]);
    return rc;
}

static struct tokenizer *made(const char *text, const char *settings, const char *config,
                              const char *generation)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    if (from_json(text, settings, config, generation, &t, &e) < 0)
        fail_msg("%s", e.text);
    return t;
}

/* A byte-level vocabulary: the 256 byte characters as ids 0 to 255, then `more` ("\"he\": 256,
 * ..."). */
static char *byte_level(const char *more, const char *merges, const char *added, const char *rest)
{
    static char text[1 << 16];
    struct buffer b = {0};
    for (int i = 0; i < 256; i++) {
        struct buffer c = {0};
        pretokenize_byte_append(&c, (uint8_t)i);
        const char *s = buffer_cstr(&c);
        buffer_printf(&b, "\"%s%s\": %d, ", *s == '"' || *s == '\\' ? "\\" : "", s, i);
        buffer_free(&c);
    }
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"BPE\", \"vocab\": {%s%s}, \"merges\": [%s]}, "
             "\"added_tokens\": [%s], %s"
             "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"use_regex\": true}, \"decoder\": "
             "{\"type\": \"ByteLevel\"}}",
             buffer_cstr(&b), more, merges, added, rest);
    buffer_free(&b);
    return text;
}

static const char pieces[] = "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", "
                             "\"byte_fallback\": %s, \"fuse_unk\": true, \"vocab\": {\"<unk>\": "
                             "0, \"<s>\": 1, \"</s>\": 2, "
                             "\"<0xC3>\": 3, \"<0xA9>\": 4, \"<0xFF>\": 5, \"▁\": 6, \"h\": 7, "
                             "\"i\": 8, \"hi\": 9, \"▁hi\": 10, \"e\": 11}, \"merges\": "
                             "[\"h i\", \"▁ hi\"]}, "
                             "\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": "
                             "true}, {\"id\": 1, \"content\": \"<s>\", \"special\": "
                             "true}, "
                             "{\"id\": 2, \"content\": \"</s>\", \"special\": true}], "
                             "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": "
                             "[{\"type\": \"Prepend\", \"prepend\": \"▁\"}, {\"type\": "
                             "\"Replace\", \"pattern\": "
                             "{\"String\": \" \"}, \"content\": \"▁\"}]}, "
                             "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                             "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": "
                             "{\"id\": \"A\"}}], "
                             "\"special_tokens\": {\"<s>\": {\"ids\": [1]}}}, "
                             "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
                             "\"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": "
                             "\" \"}, "
                             "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
                             "\"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}}";

static char *piece_text(const char *byte_fallback)
{
    static char text[4096];
    snprintf(text, sizeof text, pieces, byte_fallback);
    return text;
}

/* ---- checks
 * -------------------------------------------------------------------------------------------------
 */

static void expect_ids(const struct tokenizer *t, const char *text, size_t size, bool add_special,
                       const char *expected)
{
    struct buffer ids = {0}, words = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, size, add_special, &ids, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    const uint32_t *id = (const uint32_t *)(const void *)ids.data;
    for (size_t i = 0; i < ids.size / sizeof *id; i++)
        buffer_printf(&words, "%s%u", i ? " " : "", id[i]);
    if (strcmp(buffer_cstr(&words), expected) != 0)
        fail_msg("\"%s\": %s, expected %s", text, buffer_cstr(&words), expected);
    buffer_free(&ids);
    buffer_free(&words);
}

static void expect_text(const struct tokenizer *t, const uint32_t *ids, size_t n,
                        const char *expected)
{
    struct buffer out = {0};
    assert_int_equal(tokenizer_decode(t, ids, n, &out, NULL), 0);
    assert_string_equal(buffer_cstr(&out), expected);
    buffer_free(&out);
}

static void words_merge_and_never_across_their_ends(void **state)
{
    (void)state;
    struct tokenizer *t =
        made(byte_level("\"he\": 256, \"llo\": 257, \"ll\": 258, \"oĠ\": 259, \"Ġh\": 260",
                        "\"h e\", \"l l\", [\"ll\", \"o\"], \"o Ġ\", \"Ġ h\"", "", ""),
             NULL, NULL, NULL);
    expect_ids(t, "hello hello", 11, true, "256 257 32 256 257");
    expect_ids(t, "", 0, true, "");
    assert_string_equal(tokenizer_kind(t), "bpe");
    assert_int_equal(tokenizer_vocabulary(t), 261);
    tokenizer_destroy(&t);
    assert_null(t);
}

static void any_bytes_go_in_and_come_out(void **state)
{
    (void)state;
    struct tokenizer *t = made(byte_level("\"x\\u0100\": 256", "", "", ""), NULL, NULL, NULL);
    static const char bytes[] = "a\xff\xfe z\xc3(\xe2\x82\0\xf0\x9f";
    struct buffer ids = {0}, out = {0};
    struct err e = {0};
    assert_int_equal(tokenizer_encode(t, bytes, sizeof bytes - 1, true, &ids, &e), 0);
    const uint32_t *id = (const uint32_t *)(const void *)ids.data;
    assert_int_equal(ids.size / sizeof *id, sizeof bytes - 1);
    for (size_t i = 0; i < sizeof bytes - 1; i++)
        assert_int_equal(id[i], (uint8_t)bytes[i]);
    assert_int_equal(tokenizer_decode(t, id, ids.size / sizeof *id, &out, &e), 0);
    static const char text[] = "a\uFFFD\uFFFD z\uFFFD(\uFFFD\0\uFFFD";
    assert_int_equal(out.size, sizeof text - 1);
    assert_memory_equal(out.data, text, out.size);
    buffer_free(&ids);
    buffer_free(&out);
    tokenizer_destroy(&t);
}

static void added_tokens_are_found_in_the_text_the_longest_first(void **state)
{
    (void)state;
    struct tokenizer *t =
        made(byte_level("\"ab\": 256", "\"a b\"",
                        "{\"id\": 300, \"content\": \"<|a|>\", \"special\": true}, {\"id\": 301, "
                        "\"content\": \"<|a|>b\", \"normalized\": "
                        "false}, "
                        "{\"id\": 302, \"content\": \"<L>\", \"lstrip\": true}, {\"id\": 303, "
                        "\"content\": \"<R>\", \"rstrip\": true}, "
                        "{\"id\": 304, \"content\": \"one\", \"single_word\": true}, {\"id\": 305, "
                        "\"content\": \"É\", \"normalized\": true}",
                        "\"normalizer\": {\"type\": \"NFC\"}, "),
             NULL, NULL, NULL);
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"<|a|>", "300"},
        {"<|a|>b", "301"},
        {"<|a|>ab<|a|", "300 256 60 124 97 124"},
        {"a \n<L> b", "97 302 32 98"},
        {"a <R> \n b", "97 32 303 98"},
        {"one", "304"},
        {"ones", "111 110 101 115"},
        {"(one)", "40 304 41"},
        {"_one", "95 111 110 101"},
        {"E\u0301", "305"},
        {"  <L>", "302"},
        {"<R>  ", "303"},
        {"<|a|><|a|>", "300 300"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ids(t, cases[i].text, strlen(cases[i].text), true, cases[i].ids);
    expect_text(t, (const uint32_t[]){300, 256, 999999, 270, 302}, 5, "<|a|>ab<L>");
    struct token_stream s;
    struct buffer out = {0};
    token_stream_init(&s, t, true);
    token_stream_push(&s, 300, &out);
    token_stream_push(&s, 256, &out);
    token_stream_finish(&s, &out);
    assert_string_equal(buffer_cstr(&out), "ab");
    buffer_free(&out);
    tokenizer_destroy(&t);
}

static void a_stream_gives_whole_characters_only(void **state)
{
    (void)state;
    struct tokenizer *t = made(byte_level("\"x\\u0100\": 256", "", "", ""), NULL, NULL, NULL);
    static const char text[] = "é日🙂\xe2\x82"
                               "a\xf0\x9f\x99";
    static const char *const steps[] = {"",     "é", "", "",        "日", "", "", "",
                                        "🙂", "",  "", "\uFFFDa", "",   "", ""};
    struct token_stream s;
    token_stream_init(&s, t, false);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        struct buffer out = {0};
        token_stream_push(&s, (uint8_t)text[i], &out);
        assert_string_equal(buffer_cstr(&out), steps[i]);
        buffer_free(&out);
    }
    struct buffer out = {0};
    token_stream_finish(&s, &out);
    assert_string_equal(buffer_cstr(&out), "\uFFFD");
    buffer_free(&out);
    tokenizer_destroy(&t);
}

static void sentencepiece_puts_a_space_first_and_takes_one_away(void **state)
{
    (void)state;
    struct tokenizer *t = made(piece_text("true"), NULL, NULL, NULL);
    static const struct {
        const char *text, *ids;
    } cases[] = {{"hi", "1 10"},       {" hi", "1 6 10"},
                 {"hi hi", "1 10 10"}, {"", "1"},
                 {"</s>hi", "1 2 10"}, {"hi</s> hi", "1 10 2 6 10"},
                 {"é", "1 6 3 4"},     {"hé", "1 6 7 3 4"},
                 {"ů", "1 6 0"},       {"h\xff", "1 6 7 5"},
                 {"<0xFF>", "1 6 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ids(t, cases[i].text, strlen(cases[i].text), true, cases[i].ids);
    expect_text(t, (const uint32_t[]){10, 10, 3, 4}, 4, "hi hié");
    expect_text(t, (const uint32_t[]){6, 10}, 2, " hi");
    expect_text(t, (const uint32_t[]){2, 10}, 2, "</s> hi");
    expect_text(t, (const uint32_t[]){3, 10, 3}, 3, "\uFFFD hi\uFFFD");
    assert_string_equal(tokenizer_kind(t), "sentencepiece");
    tokenizer_destroy(&t);
}

/* A user's words are no orders: a template's tokens stay special, those in the words that it was
 * given do not. */
static void special_tokens_in_literal_text_are_plain_text(void **state)
{
    (void)state;
    /* Merges that make a special token are not stopped by a pattern here. */
    struct tokenizer *t = made(
        byte_level(
            "\"<s\": 256, \"<s>\": 257", "\"< s\", \"<s >\"",
            "{\"id\": 257, \"content\": \"<s>\", \"special\": true}, {\"id\": 258, \"content\": "
            "\"É\", \"special\": true, "
            "\"normalized\": true}, {\"id\": 259, \"content\": \"<w>\", \"normalized\": false}",
            "\"normalizer\": {\"type\": \"NFC\"}, "),
        NULL, NULL, NULL);
    pretokenizer_fini(&t->pretokenizer);
    assert_int_equal(pretokenizer_add(&t->pretokenizer,
                                      &(struct pretokenize_step){.kind = PRETOKENIZE_BYTES}, NULL),
                     0);
    static const struct {
        const char *text;
        struct text_span literal[2];
        size_t n;
        const char *ids;
    } cases[] = {
        {"<s>a<s>", {{0}}, 0, "257 97 257"},
        {"<s>a<s>", {{3, 7}}, 1, "257 97 256 62"},
        {"<s>a<s>", {{0, 7}}, 1, "256 62 97 256 62"},
        {"<s>a<s>", {{0, 1}, {4, 5}}, 2, "256 62 97 256 62"},
        {"<w><s>", {{0, 6}}, 1, "259 256 62"},
        {"E\u0301xE\u0301", {{0}}, 0, "258 120 258"},
        {"E\u0301xE\u0301", {{3, 7}}, 1, "258 120 195 137"},
        {"E\u0301xE\u0301", {{0, 3}}, 1, "195 137 120 258"},
        {"E\u0301", {{1, 3}}, 1, "195 137"}, /* the span joins what stands before it */
        {"", {{0}}, 1, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer ids = {0}, words = {0};
        struct err e = {0};
        const struct text_span *literal = cases[i].n ? cases[i].literal : NULL;
        if (tokenizer_encode_literal(t, cases[i].text, strlen(cases[i].text), literal, cases[i].n,
                                     true, &ids, &e) < 0)
            fail_msg("case %zu: %s", i, e.text);
        for (size_t k = 0; k < ids.size / sizeof(uint32_t); k++)
            buffer_printf(&words, "%s%u", k ? " " : "",
                          ((const uint32_t *)(const void *)ids.data)[k]);
        if (strcmp(buffer_cstr(&words), cases[i].ids) != 0)
            fail_msg("case %zu: %s, expected %s", i, buffer_cstr(&words), cases[i].ids);
        buffer_free(&ids);
        buffer_free(&words);
    }
    tokenizer_destroy(&t);
}

static void bytes_that_have_no_token_are_refused_with_their_place(void **state)
{
    (void)state;
    struct tokenizer *t = made("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}, "
                               "\"added_tokens\": [{\"id\": 2, "
                               "\"content\": \"<x>\", \"special\": true}]}",
                               NULL, NULL, NULL);
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"ab\xff",
         "byte 2 of the text is 0xff, which is not UTF-8, and the tokenizer has no byte tokens"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer ids = {0};
        struct err e = {0};
        assert_int_equal(tokenizer_encode(t, cases[i].text, strlen(cases[i].text), true, &ids, &e),
                         HP_EINVAL);
        assert_string_equal(e.text, cases[i].says);
        assert_int_equal(ids.size, 0);
        buffer_free(&ids);
    }
    expect_ids(t, "acb<x>bcca", 10, true,
               "0 1 2 1 0"); /* what has no token is dropped, as the libraries do */
    tokenizer_destroy(&t);
}

static void settings_say_what_is_added_and_where_it_ends(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *config, *generation, *ids, *bos, *eos;
        int n_ends;
        uint32_t ends[4];
    } cases[] = {
        {NULL, NULL, NULL, "1 10", "", "", 0, {0}},
        {"{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}}",
         NULL,
         NULL,
         "1 10",
         "<s>",
         "</s>",
         1,
         {2}},
        {"{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": false, \"bos_token\": "
         "\"<s>\"}",
         NULL,
         NULL,
         "10",
         "<s>",
         "",
         0,
         {0}},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_eos_token\": true, \"eos_token\": "
         "\"</s>\"}",
         NULL,
         NULL,
         "1 10 2",
         "",
         "</s>",
         1,
         {2}},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"add_bos_token\": false, "
         "\"bos_token\": \"<s>\"}",
         NULL,
         NULL,
         "1 10",
         "<s>",
         "",
         0,
         {0}},
        {"{\"eos_token\": null}",
         "{\"eos_token_id\": [2, 0]}",
         "{\"eos_token_id\": [2, 9, 99999, -1]}",
         "1 10",
         "",
         "",
         3,
         {2, 0, 9}},
        {NULL, "{\"eos_token_id\": 2}", "{\"eos_token_id\": null}", "1 10", "", "", 1, {2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t =
            made(piece_text("true"), cases[i].settings, cases[i].config, cases[i].generation);
        int n;
        const uint32_t *ends = tokenizer_end_ids(t, &n);
        expect_ids(t, "hi", 2, true, cases[i].ids);
        expect_ids(t, "hi", 2, false, "10");
        assert_string_equal(tokenizer_bos_text(t), cases[i].bos);
        assert_string_equal(tokenizer_eos_text(t), cases[i].eos);
        assert_int_equal(n, cases[i].n_ends);
        for (int k = 0; k < n; k++)
            assert_int_equal(ends[k], cases[i].ends[k]);
        tokenizer_destroy(&t);
    }
}

static void broken_files_are_refused_with_path_and_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        const char *says;
    } cases[] = {
        {"[]", HP_EPARSE, "tokenizer.json: $: is an array, not an object"},
        {"{}", HP_EPARSE, "tokenizer.json: $: has no \"model\""},
        {"{\"model\": {\"type\": \"Unigram\"}}", HP_EUNSUPPORTED,
         "tokenizer.json: $.model.type: \"Unigram\" tokenizers are not supported; BPE ones are"},
        {"{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}", HP_EPARSE,
         "tokenizer.json: $.model.vocab.a: -1 is negative"},
        {"{\"model\": {\"vocab\": {\"a\": 4000000000}, \"merges\": []}}", HP_EPARSE,
         "tokenizer.json: $.model.vocab.a: the id 4000000000 is out of all proportion"},
        {"{\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", HP_EPARSE,
         "tokenizer.json: $.model.vocab.b: two tokens have the id 0"},
        {"{\"model\": {\"vocab\": {\"a\": \"0\"}, \"merges\": []}}", HP_EPARSE,
         "tokenizer.json: $.model.vocab.a: is a string, not a number"},
        {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", HP_EPARSE,
         "tokenizer.json: $.model.merges[0]: is not two tokens"},
        {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\"]]}}", HP_EPARSE,
         "$.model.merges[0]: the merge of \"a\" and \"a\" names a token that is not in the "
         "vocabulary"},
        {"{\"model\": {\"vocab\": {}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"}}",
         HP_EUNSUPPORTED, "$.model.end_of_word_suffix: \"</w>\" is not supported"},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"normalizer\": {\"type\": "
         "\"Precompiled\"}}",
         HP_EUNSUPPORTED, "$.normalizer: the normalizer \"Precompiled\" is not supported"},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"Split\", "
         "\"pattern\": {\"Regex\": "
         "\"(\"}}}",
         HP_EUNSUPPORTED, "the regular expression \"(\" cannot be used"},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
         "\"pretokenizers\": "
         "[{\"type\": \"X\"}]}}",
         HP_EUNSUPPORTED,
         "$.pre_tokenizer.pretokenizers[0]: the pre-tokenizer \"X\" is not supported"},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"added_tokens\": [{\"content\": \"x\"}]}",
         HP_EPARSE, "$.added_tokens[0]: has no \"id\""},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"decoder\": {\"type\": \"WordPiece\"}}",
         HP_EUNSUPPORTED, "$.decoder: the decoder \"WordPiece\" is not supported"},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"post_processor\": {\"type\": "
         "\"BertProcessing\", \"cls\": [\"x\", 7], "
         "\"sep\": [\"y\", 8]}}",
         HP_EPARSE, "$.post_processor.cls[1]: adds the token 7, which is not there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        int rc = from_json(cases[i].text, NULL, NULL, NULL, &t, &e);
        if (rc != cases[i].rc || !strstr(e.text, cases[i].says))
            fail_msg("%s: %d \"%s\", expected %d \"%s\"", cases[i].text, rc, e.text, cases[i].rc,
                     cases[i].says);
        assert_null(t);
    }
}

/* ---- GGUF
 * ---------------------------------------------------------------------------------------------------
 */

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

static void gguf_keys_make_a_byte_level_tokenizer(void **state)
{
    (void)state;
    struct gguf_fixture f;
    struct tokenizer *t = NULL;
    struct err e = {0};
    make_bytes_gguf(&f, "qwen2");
    if (tokenizer_from_gguf(&f.g, "m.gguf", &t, &e) < 0)
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

static void gguf_keys_make_a_sentencepiece_tokenizer(void **state)
{
    (void)state;
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
    if (tokenizer_from_gguf(&f.g, "m.gguf", &t, &e) < 0)
        fail_msg("%s", e.text);
    expect_ids(t, "hi</s> hié", 11, true, "1 10 2 6 10 3 4");
    expect_ids(t, "ůů", 4, false, "6 0");
    expect_text(t, (const uint32_t[]){10, 10, 3, 4}, 4, "hi hié");
    tokenizer_destroy(&t);
}

/* Keys as writers other than llama.cpp's leave them. */
static void gguf_keys_of_other_writers_are_read(void **state)
{
    (void)state;
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
        if (tokenizer_from_gguf(&f.g, "m.gguf", &t, &e) < 0)
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

static void a_file_without_a_tokenizer_is_run_by_ids(void **state)
{
    (void)state;
    static const char *const kinds[] = {NULL, "none", "no_vocab"};
    for (int i = 0; i < 3; i++) {
        struct gguf_fixture f = {0};
        struct tokenizer *t = NULL;
        struct err e = {0};
        struct buffer ids = {0}, text = {0};
        f.model = text_key(kinds[i] ? kinds[i] : "");
        if (kinds[i])
            add_key(&f, "tokenizer.ggml.model", GGUF_STRING, 0, 1, NULL, &f.model);
        if (tokenizer_from_gguf(&f.g, "m.gguf", &t, &e) < 0)
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

static void broken_gguf_keys_are_refused_by_name(void **state)
{
    (void)state;
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
        int rc = tokenizer_from_gguf(&f.g, "m.gguf", &t, &e);
        if (rc >= 0 || !strstr(e.text, cases[i].says))
            fail_msg("%zu: %d \"%s\", expected \"%s\"", i, rc, e.text, cases[i].says);
    }
    struct gguf_fixture f;
    struct tokenizer *t = NULL;
    struct err e = {0};
    make_bytes_gguf(&f, "klingon");
    assert_int_equal(tokenizer_from_gguf(&f.g, "m.gguf", &t, &e), HP_EUNSUPPORTED);
    assert_non_null(
        strstr(e.text, "m.gguf: the pre-tokenizer \"klingon\" is not known; known are llama-bpe"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_merge_and_never_across_their_ends),
        cmocka_unit_test(any_bytes_go_in_and_come_out),
        cmocka_unit_test(added_tokens_are_found_in_the_text_the_longest_first),
        cmocka_unit_test(a_stream_gives_whole_characters_only),
        cmocka_unit_test(sentencepiece_puts_a_space_first_and_takes_one_away),
        cmocka_unit_test(special_tokens_in_literal_text_are_plain_text),
        cmocka_unit_test(bytes_that_have_no_token_are_refused_with_their_place),
        cmocka_unit_test(settings_say_what_is_added_and_where_it_ends),
        cmocka_unit_test(broken_files_are_refused_with_path_and_reason),
        cmocka_unit_test(gguf_keys_make_a_byte_level_tokenizer),
        cmocka_unit_test(gguf_keys_make_a_sentencepiece_tokenizer),
        cmocka_unit_test(gguf_keys_of_other_writers_are_read),
        cmocka_unit_test(a_file_without_a_tokenizer_is_run_by_ids),
        cmocka_unit_test(broken_gguf_keys_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
