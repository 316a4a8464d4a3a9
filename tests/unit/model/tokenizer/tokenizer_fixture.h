/* What the tests of tokenizers make them from, and expect of them. */
#ifndef HP_TESTS_UNIT_MODEL_TOKENIZER_TOKENIZER_FIXTURE_H
#define HP_TESTS_UNIT_MODEL_TOKENIZER_TOKENIZER_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "model/tokenizer/tokenizer_int.h"
#include "tests/test.h"

static inline int from_json(const char *text, const char *settings, const char *config,
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

static inline struct tokenizer *made(const char *text, const char *settings, const char *config,
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
static inline char *byte_level(const char *more, const char *merges, const char *added,
                               const char *rest)
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

static inline char *piece_text(const char *byte_fallback)
{
    static char text[4096];
    snprintf(text, sizeof text, pieces, byte_fallback);
    return text;
}

/* ---- checks ---- */

static inline void expect_ids(const struct tokenizer *t, const char *text, size_t size,
                              bool add_special, const char *expected)
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

static inline void expect_text(const struct tokenizer *t, const uint32_t *ids, size_t n,
                               const char *expected)
{
    struct buffer out = {0};
    assert_int_equal(tokenizer_decode(t, ids, n, &out, NULL), 0);
    assert_string_equal(buffer_cstr(&out), expected);
    buffer_free(&out);
}

#endif
