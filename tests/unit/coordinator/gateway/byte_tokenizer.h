/* A tokenizer whose tokens are the 256 bytes, with their values as ids: every text can be fed a
 * byte at a time. */
#ifndef HP_TESTS_GATEWAY_BYTE_TOKENIZER_H
#define HP_TESTS_GATEWAY_BYTE_TOKENIZER_H

#include "coordinator/gateway/completion.h"
#include "model/tokenizer/tokenizer_int.h"
#include "tests/test.h"

static inline struct tokenizer *byte_tokenizer_create(void)
{
    struct err e = {0};
    struct tokenizer *t = tokenizer_create();
    assert_non_null(t);
    int rc = vocabulary_init(&t->vocabulary, &t->arena, 256, &e);
    for (uint32_t i = 0; i < 256 && rc == 0; i++) {
        char byte = (char)i;
        rc = vocabulary_set(&t->vocabulary, &t->arena, i, &byte, 1, &e);
    }
    if (rc < 0)
        fail_msg("no tokenizer of bytes: %s", e.text);
    return t;
}

static inline void byte_tokens_push(struct completion_text *c, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        completion_push(c, (uint8_t)text[i]);
}

#endif
