/* Tokenizers with small vocabularies of their own, from tokenizer.json and from GGUF keys. */
#include <stdio.h>
#include <string.h>

#include "model/tokenizer/tokenizer_int.h"
#include "tests/test.h"
#include "tests/unit/model/tokenizer/tokenizer_fixture.h"

/* ---- makers ---- */

TEST(words_merge_and_never_across_their_ends)
{
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

/* Texts of all lengths around those that words are remembered in, of more words than there are
 * places for, make the tokens that each word has by itself. */
TEST(words_are_the_same_however_long_the_text_is)
{
    enum { TEXT_BYTES = 9000 };
    struct tokenizer *t = made(byte_level("\"ab\": 256, \"ba\": 257, \"Ġa\": 258, \"Ġb\": 259",
                                          "\"a b\", \"b a\", \"Ġ a\", \"Ġ b\"", "", ""),
                               NULL, NULL, NULL);
    static char text[TEXT_BYTES + 16];
    static uint32_t want[TEXT_BYTES + 16];
    static const size_t lengths[] = {100, 511, 512, 513, 4000, 4096, TEXT_BYTES};
    size_t size = 0, n = 0, next = 0;
    struct err e = {0};
    for (unsigned word = 1; size < TEXT_BYTES; word = (word * 5 + 3) % 257) {
        struct buffer own = {0}, all = {0};
        char spelt[16] = " ";
        size_t length = 1;
        for (unsigned bits = word; bits; bits /= 2)
            spelt[length++] = bits % 2 ? 'a' : 'b';
        assert_int_equal(tokenizer_encode(t, spelt, length, false, &own, &e), 0);
        memcpy(text + size, spelt, length);
        memcpy(want + n, own.data, own.size);
        size += length;
        n += own.size / sizeof *want;
        for (; next < sizeof lengths / sizeof *lengths && size >= lengths[next]; next++) {
            all.size = 0;
            assert_int_equal(tokenizer_encode(t, text, size, false, &all, &e), 0);
            assert_int_equal(all.size / sizeof *want, n);
            assert_memory_equal(all.data, want, all.size);
        }
        buffer_free(&own);
        buffer_free(&all);
    }
    assert_int_equal(next, sizeof lengths / sizeof *lengths);
    tokenizer_destroy(&t);
}

TEST(any_bytes_go_in_and_come_out)
{
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

TEST(added_tokens_are_found_in_the_text_the_longest_first)
{
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

TEST(a_stream_gives_whole_characters_only)
{
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

TEST(sentencepiece_puts_a_space_first_and_takes_one_away)
{
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
TEST(special_tokens_in_literal_text_are_plain_text)
{
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

TEST(bytes_that_have_no_token_are_refused_with_their_place)
{
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

TEST(settings_say_what_is_added_and_where_it_ends)
{
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

TEST(broken_files_are_refused_with_path_and_reason)
{
    static const struct {
        const char *text;
        int rc;
        const char *says;
    } cases[] = {
        {"[]", HP_EPARSE, "tokenizer.json: $: is an array, not an object"},
        {"{}", HP_EPARSE, "tokenizer.json: $: has no \"model\""},
        {"{\"model\": {\"type\": \"WordLevel\"}}", HP_EUNSUPPORTED,
         "tokenizer.json: $.model.type: \"WordLevel\" tokenizers are not supported; known are BPE, "
         "Unigram, WordPiece"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": {}}}", HP_EPARSE,
         "tokenizer.json: $.model.vocab: is an object, not an array"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}", HP_EPARSE,
         "tokenizer.json: $.model.vocab[0]: is not a token and its score"},
        {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": \"b\"}}",
         HP_EPARSE, "tokenizer.json: $.model.unk_token is not in the vocabulary"},
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"normalizer\": {\"type\": "
         "\"Precompiled\", \"precompiled_charsmap\": \"AQAAAA==\"}}",
         HP_EPARSE, "tokenizer.json: precompiled_charsmap: 4 bytes are no table of characters"},
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
         "\"ByteLevel\"}}",
         HP_EUNSUPPORTED,
         "$.normalizer: the normalizer \"ByteLevel\" is not supported; known are BertNormalizer, "},
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
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"decoder\": {\"type\": \"CTC\"}}",
         HP_EUNSUPPORTED, "$.decoder: the decoder \"CTC\" is not supported; known are "},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_merge_and_never_across_their_ends),
        cmocka_unit_test(words_are_the_same_however_long_the_text_is),
        cmocka_unit_test(any_bytes_go_in_and_come_out),
        cmocka_unit_test(added_tokens_are_found_in_the_text_the_longest_first),
        cmocka_unit_test(a_stream_gives_whole_characters_only),
        cmocka_unit_test(sentencepiece_puts_a_space_first_and_takes_one_away),
        cmocka_unit_test(special_tokens_in_literal_text_are_plain_text),
        cmocka_unit_test(bytes_that_have_no_token_are_refused_with_their_place),
        cmocka_unit_test(settings_say_what_is_added_and_where_it_ends),
        cmocka_unit_test(broken_files_are_refused_with_path_and_reason),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
