#include "common/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

static const char *const speculate_words[] = {
    [SPECULATE_OFF] = "off", [SPECULATE_AUTO] = "auto", [SPECULATE_LOOKUP] = "lookup"};

const char *speculate_word(enum speculate where)
{
    return speculate_words[where];
}

bool speculate_of_word(const char *word, enum speculate *out)
{
    for (unsigned i = 0; i < sizeof speculate_words / sizeof *speculate_words; i++)
        if (strcmp(word, speculate_words[i]) == 0) {
            *out = (enum speculate)i;
            return true;
        }
    return false;
}

void batch_free(struct batch *b)
{
    free(b->runs);
    free(b->ids);
    free(b->targets);
    memset(b, 0, sizeof *b);
}

bool batch_reserve(struct batch *b, uint32_t n_runs, uint32_t n_ids)
{
    return vector_reserve(b->runs, b->run_capacity, n_runs) &&
           vector_reserve(b->ids, b->id_capacity, n_ids);
}

void batch_append(struct batch *b, const struct batch_run *run)
{
    assert(b->n_runs < b->run_capacity);
    b->runs[b->n_runs++] = *run;
    b->n_tokens += run->n_tokens;
    b->n_logits += run->n_logits;
}

void batch_clear(struct batch *b)
{
    b->n_runs = b->n_tokens = b->n_logits = b->input_runs = b->input_tokens = 0;
    b->input = NULL;
    b->slice = b->again = false;
}
