/* How a vocabulary spells that a gap is to be filled in. */
#include <string.h>

#include "model/tokenizer/tokenizer_int.h"

/* Looked for in texts as a whole; a token that is not would be cut like other text. */
static bool is_added(const struct tokenizer *t, int64_t id)
{
    const struct added_tokens *sets[] = {&t->raw, &t->normalized};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < sets[k]->n_tokens; i++)
            if (sets[k]->tokens[i].id == id)
                return true;
    return false;
}

static const char *first_added(const struct tokenizer *t, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_added(t, tokenizer_id_of(t, texts[i])))
            return texts[i];
    return NULL;
}

void tokenizer_infill_files(const struct tokenizer *t, const char **repository, const char **file)
{
    static const char *const repositories[] = {"<|repo_name|>", "<|fim_repo|>", "<repo_name>",
                                               "<reponame>"},
                             *const files[] = {"<|file_sep|>", "<file_sep>"};
    *repository = first_added(t, repositories, sizeof repositories / sizeof *repositories);
    *file = first_added(t, files, sizeof files / sizeof *files);
}

bool tokenizer_infill_texts(const struct tokenizer *t, const char *out[3])
{
    static const char *const families[][3] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, CodeGemma */
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder, Granite */
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       /* SantaCoder */
        {"<\xEF\xBD\x9C"
         "fim\xE2\x96\x81"
         "begin\xEF\xBD\x9C>",
         "<\xEF\xBD\x9C"
         "fim\xE2\x96\x81"
         "hole\xEF\xBD\x9C>",
         "<\xEF\xBD\x9C"
         "fim\xE2\x96\x81"
         "end\xEF\xBD\x9C>"},                                            /* DeepSeek */
        {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>"}, /* Code Llama */
        {"<PRE>", "<SUF>", "<MID>"}};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        bool has = true;
        for (int k = 0; k < 3; k++)
            has = has && is_added(t, tokenizer_id_of(t, families[i][k]));
        if (has) {
            memcpy(out, families[i], 3 * sizeof *out);
            return true;
        }
    }
    return false;
}
