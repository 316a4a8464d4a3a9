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

static const char *const
    repositories[] = {"<|repo_name|>", "<|fim_repo|>", "<repo_name>", "<reponame>"},
    *const files[] = {"<|file_sep|>", "<file_sep>"}, *const pads[] = {"<|fim_pad|>", "<fim_pad>"};
enum {
    REPOSITORIES = sizeof repositories / sizeof *repositories,
    FILES = sizeof files / sizeof *files,
    PADS = sizeof pads / sizeof *pads
};

void tokenizer_infill_files(const struct tokenizer *t, const char **repository, const char **file)
{
    *repository = first_added(t, repositories, REPOSITORIES);
    *file = first_added(t, files, FILES);
}

static int ids_add(const struct tokenizer *t, const char *const *texts, int n, uint32_t *out,
                   int n_out)
{
    for (int i = 0; i < n; i++) {
        int64_t id = tokenizer_id_of(t, texts[i]);
        if (is_added(t, id))
            out[n_out++] = (uint32_t)id;
    }
    return n_out;
}

int tokenizer_infill_ends(const struct tokenizer *t, uint32_t out[TOKENIZER_MAX_INFILL_ENDS])
{
    _Static_assert(REPOSITORIES + FILES + PADS <= TOKENIZER_MAX_INFILL_ENDS, "all fit");
    int n = ids_add(t, repositories, REPOSITORIES, out, 0);
    n = ids_add(t, files, FILES, out, n);
    return ids_add(t, pads, PADS, out, n);
}

bool tokenizer_infill_marks(const struct tokenizer *t, struct infill_mark out[3])
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
        for (int k = 0; k < 3; k++) {
            int64_t id = tokenizer_id_of(t, families[i][k]);
            has = has && is_added(t, id);
            out[k] = (struct infill_mark){families[i][k], (uint32_t)id};
        }
        if (has)
            return true;
    }
    return false;
}
