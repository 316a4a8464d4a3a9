/* A chat template up to the first NUL; what follows is the JSON of its variables, a short chat
 * where it is none. */
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template/template.h"

static json_t *variables_of(const uint8_t *data, size_t size)
{
    json_t *given =
        size ? json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json_is_object(given))
        return given;
    json_decref(given);
    return json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:b, s:s, s:{s:i, s:[i, f, n]}}", "messages",
                     "role", "user", "content", " Hi \xC3\xA9 ", "role", "assistant", "content",
                     "a\nb", "add_generation_prompt", 1, "bos_token", "<s>", "d", "x", 1, "y", 3,
                     1.5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct template_limits limits = {
        .max_steps = 100000, .max_output_bytes = 100000, .now_s = 1700000000};
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t source_size = end ? (size_t)(end - data) : size;
    struct chat_template *t = NULL;
    struct err e = {0};
    if (template_compile((const char *)data, source_size, &t, &e) < 0) {
        if (strncmp(e.text, "line ", 5) != 0 && e.code != HP_ENOMEM)
            abort();
        return 0;
    }
    json_t *variables = end ? variables_of(end + 1, size - source_size - 1) : variables_of(NULL, 0);
    struct buffer out = {0};
    if (template_render(t, variables, &limits, &out, &e) == 0 && out.data &&
        utf8_valid_prefix((const char *)out.data, out.size) != out.size)
        abort();
    buffer_free(&out);
    json_decref(variables);
    template_destroy(&t);
    return 0;
}
