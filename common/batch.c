#include "common/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void batch_free(struct batch *b)
{
    free(b->runs);
    free(b->ids);
    memset(b, 0, sizeof *b);
}

bool batch_reserve(struct batch *b, uint32_t n_runs, uint32_t n_ids)
{
    if (n_runs > b->run_capacity) {
        struct batch_run *p = realloc(b->runs, n_runs * sizeof *p);
        if (!p)
            return false;
        b->runs = p;
        b->run_capacity = n_runs;
    }
    if (n_ids > b->id_capacity) {
        uint32_t *p = realloc(b->ids, n_ids * sizeof *p);
        if (!p)
            return false;
        b->ids = p;
        b->id_capacity = n_ids;
    }
    return true;
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
