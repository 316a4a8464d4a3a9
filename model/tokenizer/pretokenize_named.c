/* The pre-tokenizer patterns that GGUF files name (tokenizer.ggml.pre), as the tokenizer.json files
 * of those models spell them.
 */
#include <string.h>

#include "model/tokenizer/pretokenize.h"

#define AS_BYTES                                                                                   \
    "" /* in a list of patterns: words become byte characters here, else at the end                \
        */
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

/* The letters that DeepSeek's first models count as such, spelled out. */
static const char *const deepseek_llm[] = {
    "[\r\n]",
    "\\s?[A-Za-z\\x{00b5}\\x{00c0}-\\x{00d6}\\x{00d8}-\\x{00f6}\\x{00f8}-\\x{01ba}\\x{01bc}-"
    "\\x{01bf}\\x{01c4}-\\x{0293}\\x{0295}-\\x{02af}\\x{0370}-\\x{0373}\\x{0376}\\x{0377}"
    "\\x{037b}-\\x{037d}\\x{037f}\\x{0386}\\x{0388}-\\x{038a}\\x{038c}\\x{038e}-\\x{03a1}"
    "\\x{03a3}-\\x{03f5}\\x{03f7}-\\x{0481}\\x{048a}-\\x{052f}\\x{0531}-\\x{0556}\\x{10a0}-"
    "\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-"
    "\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}"
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-"
    "\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}"
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-"
    "\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-"
    "\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+",
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]"
    "+",
    "\\s+$",
    "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+",
    "\\p{N}",
    NULL};
static const char *const deepseek_coder[] = {
    "[\r\n]",      "\\s?\\p{L}+",
    "\\s?\\p{P}+", "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+",
    "\\p{N}",      NULL};

static const char *const qwen35[] = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
                                                  " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
                                     NULL};
/* Digits and what is left are cut when all are byte characters already. */
static const char *const falcon[] = {"[!-/:-@\\[-`{-~\\p{P}]+", GPT2, AS_BYTES, "\\p{N}+",
                                     "[0-9][0-9][0-9]",         NULL};
/* No brackets, bars and sentence marks of these scripts. */
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{0964}\\x{06d4}\\x{060c})]+"
static const char *const bloom[] = {BLOOM, NULL};
static const char *const viking[] = {BLOOM, "\\p{N}", NULL};
static const char *const exaone_moe[] = {
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
                 " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    NULL};
static const char *const chameleon[] = {"<sentinel:[0-9]+>",
                                        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                        "([\\t\\n]|    |  )",
                                        "\\p{N}",
                                        "[!-/:-@\\[-`{-~\\p{P}]",
                                        GPT2,
                                        NULL};
static const char *const superbpe[] = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))", NULL};
static const char *const bailing[] = {
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    NULL};
static const char *const seed_coder[] = {
    CONTRACTIONS "|" WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS, NULL};
#define NO_HAN "&&[^\\p{Han}]"
static const char *const kimi[] = {
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[" UPPER NO_HAN "]*[" LOWER NO_HAN "]+" CONTRACTIONS
    "?|[^\\r\\n\\p{L}\\p{N}]?[" UPPER NO_HAN "]+[" LOWER NO_HAN "]*" CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS,
    NULL};
static const char *const tiny_aya[] = {
    "\\d{1,3}(?=(?:\\d{3})*\\b)",
    CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS, NULL};
static const char *const minicpm5[] = {"\\p{N}{1,3}", MODERN("\\p{N}+"), NULL};
static const char *const lines_first[] = {"[^\\n]+|[\\n]+", MODERN("\\p{N}"), NULL};

/* Digits by threes from the right; scripts that are written without spaces each for itself. */
static const char *const afmoe[] = {
    "\\p{N}{1,3}(?=(?:\\p{N}{3})*+(?!\\p{N}))",
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}"
    "\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}"
    "\\x{2f00}-\\x{2fdf}\\x{0e40}-\\x{0e7f}\\x{0e80}-\\x{0eff}"
    "\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS,
    NULL};

/* Facts of the models that carry these names, as llama.cpp's list of them has them. */
static const struct {
    const char *name;
    const char *const *regexes;
    struct pretokenize_traits traits;
} known[] = {
    {"llama-bpe", llama3, {.ignore_merges = true, .first_token = true}},
    {"llama3", llama3, {.ignore_merges = true, .first_token = true}},
    {"llama-v3", llama3, {.ignore_merges = true, .first_token = true}},
    {"falcon3", llama3, {.ignore_merges = true, .first_token = true}},
    {"falcon-h1", llama3, {.ignore_merges = true, .first_token = true}},
    {"pixtral", llama3, {.ignore_merges = true, .first_token = true}},
    {"midm-2.0", llama3, {.ignore_merges = true, .first_token = true}},
    {"lfm2", llama3, {.ignore_merges = true, .first_token = true}},
    {"jina-v5-nano", llama3, {.ignore_merges = true, .first_token = true}},
    {"dbrx", llama3, {0}},
    {"smaug-bpe", llama3, {0}},
    {"chatglm-bpe", llama3, {0}},
    {"glm4", llama3, {0}},
    {"qwen2", qwen2, {.nfc = true}},
    {"deepseek-r1-qwen", qwen2, {.nfc = true}},
    {"megrez", qwen2, {.nfc = true}},
    {"kormo", qwen2, {0}},
    {"f2llmv2", qwen2, {0}},
    {"stablelm2", qwen2, {0}},
    {"hunyuan", qwen2, {0}},
    {"solar-open", qwen2, {0}},
    {"grok-2", qwen2, {0}},
    {"qwen35", qwen35, {.nfc = true}},
    {"gpt-2", gpt2, {0}},
    {"phi-2", gpt2, {0}},
    {"olmo", gpt2, {.nfc = true}},
    {"mpt", gpt2, {.nfc = true}},
    {"jais", gpt2, {0}},
    {"exaone4", gpt2, {0}},
    {"trillion", gpt2, {0}},
    {"granite-docling", gpt2, {0}},
    {"gigachat", gpt2, {0}},
    {"a.x-4.0", gpt2, {0}},
    {"mellum", gpt2, {0}},
    {"modern-bert", gpt2, {.marks = true}},
    {"jina-es", gpt2, {0}},
    {"jina-de", gpt2, {0}},
    {"jina-v2-es", gpt2, {0}},
    {"jina-v2-de", gpt2, {0}},
    {"jina-v1-en", gpt2, {.marks = true}},
    {"jina-v2-code", gpt2, {.marks = true}},
    {"roberta-bpe", gpt2, {.marks = true}},
    {"starcoder", single_digits, {0}},
    {"refact", single_digits, {0}},
    {"smollm", single_digits, {0}},
    {"command-r", single_digits, {.nfc = true}},
    {"codeshell", single_digits, {0}},
    {"exaone", single_digits, {0}},
    {"minerva-7b", single_digits, {0}},
    {"mellum2", single_digits, {0}},
    {"gpt-4o", gpt4o, {0}},
    {"llama4", gpt4o, {0}},
    {"kanana2", gpt4o, {0}},
    {"talkie", gpt4o, {0}},
    {"minimax-m2", gpt4o, {0}},
    {"granite-embed-multi-97m", gpt4o, {.ignore_merges = true}},
    {"tekken", tekken, {.ignore_merges = true, .first_token = true}},
    {"deepseek-llm", deepseek_llm, {.first_token = true}},
    {"deepseek-coder", deepseek_coder, {.first_token = true}},
    {"deepseek-v3", deepseek3, {0}},
    {"hunyuan-dense", deepseek3, {0}},
    {"joyai-llm", deepseek3, {0}},
    {"falcon", falcon, {0}},
    {"bloom", bloom, {0}},
    {"gpt3-finnish", bloom, {0}},
    {"poro-chat", bloom, {0}},
    {"viking", viking, {0}},
    {"exaone-moe", exaone_moe, {0}},
    {"chameleon", chameleon, {.first_token = true}},
    {"superbpe", superbpe, {0}},
    {"bailingmoe", bailing, {0}},
    {"bailingmoe2", bailing, {0}},
    {"llada-moe", bailing, {0}},
    {"seed-coder", seed_coder, {0}},
    {"kimi-k2", kimi, {0}},
    {"tiny_aya", tiny_aya, {0}},
    {"cohere2moe", tiny_aya, {0}},
    {"minicpm5", minicpm5, {.ignore_merges = true}},
    {"laguna", lines_first, {0}},
    {"afmoe", afmoe, {0}},
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

const char *pretokenizer_known(int i)
{
    return i < N_KNOWN ? known[i].name : NULL;
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
    const struct pretokenize_step bytes = {.kind = PRETOKENIZE_BYTES};
    bool as_bytes = false;
    for (const char *const *regex = known[which].regexes; *regex && rc == 0; regex++) {
        bool turn = strcmp(*regex, AS_BYTES) == 0;
        rc = turn ? pretokenizer_add(p, &bytes, e)
                  : pretokenizer_add_split(p, *regex, SPLIT_ISOLATED, false, e);
        as_bytes = as_bytes || turn;
    }
    return rc < 0 || as_bytes ? rc : pretokenizer_add(p, &bytes, e);
}
