/* SentencePiece's tokenizer.model, which encodes and decodes some text. */
#include <stdlib.h>

#include "common/utf8.h"
#include "model/tokenizer/tokenizer_int.h"

static void run(const struct tokenizer *t, const char *text, size_t size)
{
    struct buffer ids = {0}, out = {0};
    struct err e;
    if (tokenizer_encode(t, text, size, true, &ids, &e) == 0 && ids.data) {
        const uint32_t *id = (const uint32_t *)(const void *)ids.data;
        size_t n = ids.size / sizeof *id;
        for (size_t i = 0; i < n; i++)
            if (id[i] >= (uint32_t)tokenizer_vocabulary(t))
                abort();
        if (tokenizer_decode(t, id, n, &out, &e) == 0 &&
            utf8_valid_prefix(buffer_cstr(&out), out.size) != out.size)
            abort();
    }
    buffer_free(&ids);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char own[] = "a the  box \xC3\xA9\n\xE2\x96\x81"
                              "b <s>\xff 12 <tool>aaaa";
    const struct folder_settings none = {0};
    struct tokenizer *t = NULL;
    struct err e;
    if (tokenizer_from_pieces("m", data, size, &none, &t, &e) < 0)
        return 0;
    run(t, own, sizeof own - 1);
    tokenizer_destroy(&t);
    return 0;
}
