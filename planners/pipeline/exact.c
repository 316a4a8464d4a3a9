#include "planners/pipeline/exact.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "planners/pipeline/enumerate.h"
#include "planners/pipeline/search.h"

int exact_search(struct pipeline_cost *c, const struct exact_options *options,
                 struct exact_result *out, struct err *e)
{
    struct exact x;
    struct trial best = {.value = INFINITY};
    int rc = exact_init(&x, c, options, e);
    if (rc < 0)
        return rc;
    out->proven = enumerate_all(&x, &best);
    if (!out->proven && (rc = search_best(&x, &best, e)) < 0)
        return rc;
    if (!isfinite(best.value))
        return err_set(e, HP_EINFEASIBLE,
                       "no pipeline fits: %s memory for weights and KV cache (%.3g GB in all), or "
                       "devices without a link between them",
                       options->order_fixed ? "these devices in this order have too little"
                                            : "the devices have too little",
                       cost_memory_bytes(c, 0, c->n_layers) / 1e9);
    if ((rc = layout_alloc(c->arena, best.n_stages, best.n_slices, &out->layout, e)) < 0)
        return rc;
    memcpy(out->layout.devices, best.device, (size_t)best.n_stages * sizeof(int));
    memcpy(out->layout.ends, best.end, (size_t)best.n_stages * sizeof(int));
    memcpy(out->layout.cuts, best.cut, ((size_t)best.n_slices + 1) * sizeof(int));
    out->value = best.value;
    return 0;
}
