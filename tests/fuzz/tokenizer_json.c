/* tokenizer.json or tekken.json up to the first NUL; what follows is text that it encodes and
 * decodes, after some of its own. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
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
        (void)tokenizer_decode(t, id, n, &out, &e);
        if (utf8_valid_prefix((const char *)(out.data ? out.data : (const uint8_t *)""),
                              out.size) != out.size)
            abort();
    }
    buffer_free(&ids);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char own[] = "a \xC3\xA9\n\xE2\x96\x81"
                              "b <s>\xff 12";
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t json_size = end ? (size_t)(end - data) : size;
    struct err e;
    json_t *root;
    struct json_at at;
    struct tokenizer *t = NULL;
    if (json_parse_at("t.json", data, json_size, &root, &at, &e) < 0)
        return 0;
    const struct folder_settings none = {0};
    if (tokenizer_from_json(&at, &at, &at, NULL, &t, &e) == 0 ||
        tokenizer_from_tekken(&at, &none, &t, &e) == 0) {
        run(t, own, sizeof own - 1);
        if (end)
            run(t, (const char *)end + 1, size - json_size - 1);
        tokenizer_destroy(&t);
    }
    json_decref(root);
    return 0;
}
