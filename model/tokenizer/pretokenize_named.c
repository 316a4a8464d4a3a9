/* The pre-tokenizer patterns that GGUF files name (tokenizer.ggml.pre), as the tokenizer.json files
 * of those models spell them.
 */
#include <string.h>

#include "model/tokenizer/pretokenize.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define BLANKS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MODERN(digits) CONTRACTIONS "|" WORD "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS

/* Words that begin with capitals, then small letters, cut where small turns to capital. */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED(tail)                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" tail "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER         \
    "]+[" LOWER "]*" tail

static const char *const gpt2[] = {GPT2, NULL};
static const char *const llama3[] = {MODERN("\\p{N}{1,3}"), NULL};
static const char *const qwen2[] = {MODERN("\\p{N}"), NULL};
static const char *const single_digits[] = {"\\p{N}", GPT2, NULL};
static const char *const punctuation_first[] = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+",
                                                "[0-9][0-9][0-9]", NULL};
static const char *const gpt4o[] = {
    CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS, NULL};
static const char *const tekken[] = {CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS,
                                     NULL};
static const char *const deepseek3[] = {
    "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS,
    NULL};

static const struct {
    const char *name;
    const char *const *regexes;
    struct pretokenize_traits traits;
} known[] = {
    {"llama-bpe", llama3, {.ignore_merges = true, .first_token = true}},
    {"llama3", llama3, {.ignore_merges = true, .first_token = true}},
    {"llama-v3", llama3, {.ignore_merges = true, .first_token = true}},
    {"falcon3", llama3, {.ignore_merges = true, .first_token = true}},
    {"dbrx", llama3, {0}},
    {"smaug-bpe", llama3, {0}},
    {"qwen2", qwen2, {.nfc = true}},
    {"deepseek-r1-qwen", qwen2, {.nfc = true}},
    {"gpt-2", gpt2, {0}},
    {"phi-2", gpt2, {0}},
    {"olmo", gpt2, {.nfc = true}},
    {"mpt", gpt2, {.nfc = true}},
    {"starcoder", single_digits, {0}},
    {"refact", single_digits, {0}},
    {"smollm", single_digits, {0}},
    {"command-r", single_digits, {.nfc = true}},
    {"gpt-4o", gpt4o, {0}},
    {"tekken", tekken, {.ignore_merges = true, .first_token = true}},
    {"deepseek-v3", deepseek3, {0}},
    {"default", punctuation_first, {0}},
};

enum { N_KNOWN = sizeof known / sizeof *known };

static int pretokenizer_find(const char *name, size_t size)
{
    for (int i = 0; i < N_KNOWN; i++)
        if (strlen(known[i].name) == size && memcmp(known[i].name, name, size) == 0)
            return i;
    return -1;
}

struct pretokenize_traits pretokenize_traits_of(const char *name, size_t name_size)
{
    int i = pretokenizer_find(name, name_size);
    return i < 0 ? (struct pretokenize_traits){0} : known[i].traits;
}

int pretokenizer_add_gpt2(struct pretokenizer *p, struct err *e)
{
    return pretokenizer_add_split(p, GPT2, SPLIT_ISOLATED, false, e);
}

int pretokenizer_add_named(struct pretokenizer *p, const char *name, size_t name_size,
                           struct err *e)
{
    int which = pretokenizer_find(name, name_size), rc = 0;
    if (which < 0) {
        struct buffer names = {0};
        for (int i = 0; i < N_KNOWN; i++)
            buffer_printf(&names, "%s%s", i ? ", " : "", known[i].name);
        rc = err_set(e, HP_EUNSUPPORTED, "the pre-tokenizer \"%.*s\" is not known; known are %s",
                     (int)(name_size < 64 ? name_size : 64), name, buffer_cstr(&names));
        buffer_free(&names);
        return rc;
    }
    for (const char *const *regex = known[which].regexes; *regex && rc == 0; regex++)
        rc = pretokenizer_add_split(p, *regex, SPLIT_ISOLATED, false, e);
    return rc < 0 ? rc
                  : pretokenizer_add(p, &(struct pretokenize_step){.kind = PRETOKENIZE_BYTES}, e);
}
