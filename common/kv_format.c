#include "common/kv_format.h"

#include <stddef.h>
#include <string.h>

static const char *const words[] = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8_0] = "q8_0"};

const char *kv_format_word(enum kv_format f)
{
    return words[f];
}

bool kv_format_of_word(const char *word, bool f32, enum kv_format *out)
{
    *out = f32 ? KV_F32 : KV_F16;
    if (!word || !word[0] || strcmp(word, "auto") == 0)
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum kv_format)i;
            return true;
        }
    return false;
}
