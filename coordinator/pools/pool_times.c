#include "coordinator/pools/pool_times.h"

int64_t pool_times_due(const struct pool_plan *p, int line, int64_t from_ns, int64_t deadline_ns)
{
    int64_t most_ns = (deadline_ns - from_ns) / 2, off_ns = p->overheads[line].ns;
    return deadline_ns - (off_ns < most_ns ? off_ns : most_ns);
}

double pool_times_soonest_ms(const struct pool_plan *p, int line, int64_t now_ns)
{
    const struct dispatch_model *m = &p->topology.models[line];
    struct dispatch_path path;
    int64_t best = INT64_MAX / 8;
    for (int i = 0; i < m->n_pipelines; i++) {
        dispatch_probe(p->dispatch, m->first_pipeline + i, 1, now_ns, &path);
        best = path.finish_ns < best ? path.finish_ns : best;
    }
    return (double)(best - now_ns + p->overheads[line].ns) * 1e-6;
}

void pool_times_doubt(struct pool_plan *p, int line)
{
    if (p->under_way[line] == 0)
        p->overheads[line].ns /= 2;
}
