/* What a coordinator applies, and finds in its store: any document. What is read has all that
 * planning and serving look at. */
#include <stdlib.h>

#include "coordinator/pools/pool_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void model_check(const struct pool_model *m)
{
    if (!m->manifest.size || m->unit < 1 || m->n_blocks < 1 || !m->facts.name)
        abort();
    for (int i = 0; i < m->facts.n_inputs; i++)
        for (int d = 0; d < m->facts.inputs[i].n_dims; d++)
            if (m->facts.inputs[i].dims[d] < 1 && m->facts.inputs[i].dims[d] != -1)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pool_spec *s = NULL;
    struct err e = {0};
    json_t *root = json_loadb((const char *)data, size, 0, NULL);
    if (!root)
        return 0;
    if (pool_spec_read(root, &s, &e) < 0) {
        if (!e.text[0] || s)
            abort();
        return 0;
    }
    for (int i = 0; i < s->workload.n_models; i++)
        model_check(&s->models[i]);
    pool_spec_release(&s);
    return 0;
}
