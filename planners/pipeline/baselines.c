#include "planners/pipeline/baselines.h"

#include <math.h>

#include "planners/pipeline/hpipe.h"

/* Equal numbers of layers; the first stages take one more where they do not divide. */
static void ends_even(int n_layers, int n_stages, int *ends)
{
    for (int j = 0, end = 0; j < n_stages; j++)
        ends[j] = end += n_layers / n_stages + (j < n_layers % n_stages);
}

/* All devices in their order with one slice; more devices than layers leave the last ones out. */
static int start_layout(struct pipeline_cost *c, struct layout *out, struct err *e)
{
    int n = c->n_devices < c->n_layers ? c->n_devices : c->n_layers;
    int rc = layout_alloc(c->arena, n, c->n_units, out, e);
    if (rc < 0)
        return rc;
    for (int j = 0; j < n; j++)
        out->devices[j] = j;
    ends_even(c->n_layers, n, out->ends);
    out->n_slices = 1;
    out->cuts[1] = c->n_units;
    return 0;
}

static int prepare_kinds(struct pipeline_cost *c, struct err *e)
{
    int rc = 0;
    for (int d = 0; rc == 0 && d < c->n_devices; d++)
        rc = cost_kind_prepare(c, c->devices[d].kind, e);
    return rc;
}

int baseline_even(struct pipeline_cost *c, struct layout *out, struct err *e)
{
    int rc = start_layout(c, out, e);
    return rc < 0 ? rc : layout_check(c, out, e);
}

static int micro_batches_of(const struct pipeline_cost *c, int asked)
{
    int rounded = (int)lround(c->batch);
    return asked > 0 ? asked : rounded > 1 ? rounded : 1;
}

int baseline_gpipe(struct pipeline_cost *c, enum pipeline_partition partition, int micro_batches,
                   struct layout *out, struct err *e)
{
    int rc = start_layout(c, out, e);
    if (rc == 0 && partition == PIPELINE_PARTITION_BALANCED)
        rc = hpipe_partition(c, out->devices, out->n_stages, out->ends, e);
    out->micro_batches = micro_batches_of(c, micro_batches);
    return rc < 0 ? rc : layout_check(c, out, e);
}

/* Algorithm 2 of HPipe and TeraPipe's programme are the same one (Li et al. 2021, section 3.3);
 * they differ in the times they see. */
static int cut_slices(struct pipeline_cost *c, struct layout *l, bool hops, struct err *e)
{
    int rc = prepare_kinds(c, e);
    if (rc < 0)
        return rc;
    double *seconds = hpipe_slice_seconds(c, l->devices, l->ends, l->n_stages, hops, e);
    return seconds ? hpipe_slices(c->n_units, c->row, seconds, l->n_stages, c->arena, l->cuts,
                                  &l->n_slices, e)
                   : HP_ENOMEM;
}

int baseline_terapipe(struct pipeline_cost *c, struct layout *out, struct err *e)
{
    int rc = start_layout(c, out, e);
    if (rc < 0 || (rc = layout_check(c, out, e)) < 0)
        return rc;
    return cut_slices(c, out, false, e);
}

int baseline_hpipe(struct pipeline_cost *c, struct layout *out, struct err *e)
{
    int rc = start_layout(c, out, e);
    if (rc < 0 || (rc = hpipe_partition(c, out->devices, c->n_devices, out->ends, e)) < 0 ||
        (rc = layout_check(c, out, e)) < 0)
        return rc;
    return cut_slices(c, out, true, e);
}

/* Groups of connected devices of one node and kind, in the order of their first device. Returns how
 * many. */
static int find_groups(const struct pipeline_cost *c, int **groups, int *sizes)
{
    int n = 0;
    for (int d = 0; d < c->n_devices; d++) {
        int g = 0;
        for (; g < n; g++) {
            int leader = groups[g][0];
            if (c->cluster->devices[c->devices[leader].cluster_index].node ==
                    c->cluster->devices[c->devices[d].cluster_index].node &&
                c->devices[leader].kind == c->devices[d].kind &&
                c->hops[leader * c->n_devices + d].bandwidth_bytes_per_s > 0)
                break;
        }
        if (g == n)
            sizes[n++] = 0;
        groups[g][sizes[g]++] = d;
    }
    return n;
}

int baseline_tensor(struct pipeline_cost *c, int micro_batches, struct layout *out, struct err *e)
{
    int rc = start_layout(c, out, e), n = c->n_devices;
    if (rc < 0)
        return rc;
    out->groups = arena_alloc(c->arena, (size_t)n, sizeof *out->groups);
    out->group_sizes = arena_alloc(c->arena, (size_t)n, sizeof *out->group_sizes);
    int *members = arena_alloc(c->arena, (size_t)n * (size_t)n, sizeof *members);
    if (!out->groups || !out->group_sizes || !members)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int g = 0; g < n; g++)
        out->groups[g] = members + (size_t)g * (size_t)n;
    int stages = find_groups(c, out->groups, out->group_sizes), used = 0;
    out->n_stages = stages < c->n_layers ? stages : c->n_layers;
    for (int j = 0; j < out->n_stages; j++)
        used += out->group_sizes[j];
    /* Layers in proportion to devices, at least one a stage. */
    for (int j = 0, before = 0; j < out->n_stages; j++) {
        before += out->group_sizes[j];
        int end = (int)((long)c->n_layers * before / used), least = layout_first(out, j) + 1,
            most = c->n_layers - (out->n_stages - 1 - j);
        out->ends[j] = end < least ? least : end > most ? most : end;
        out->devices[j] = out->groups[j][0];
    }
    out->micro_batches = micro_batches_of(c, micro_batches);
    return layout_check(c, out, e);
}
