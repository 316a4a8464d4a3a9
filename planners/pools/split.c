#include "planners/pools/split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

/* The time at an exact grid point; NaN where there is none. */
static double exact_at(const struct profile_table *t, double share, double batch)
{
    for (int i = 0; i < t->n_x; i++)
        for (int j = 0; j < t->n_y; j++)
            if (t->x[i] == share && t->y[j] == batch)
                return t->seconds[i * t->n_y + j];
    return NAN;
}

/* Seconds of every layer on a kind: whole device, smallest batch. False when one was not profiled.
 */
static bool layer_seconds(const struct profile *p, int kind, double *seconds)
{
    for (int l = 0; l < p->n_layers; l++) {
        const struct profile_table *t = profile_table_of(p, kind, p->layers[l].class_index);
        seconds[l] = t->n_y > 0 ? exact_at(t, 1, t->y[0]) : NAN;
        if (isnan(seconds[l]))
            return false;
    }
    return true;
}

static int choose_kind(const struct profile *p, const char *name, double *seconds, int *kind,
                       struct err *e)
{
    double best = INFINITY;
    *kind = -1;
    if (name) {
        *kind = profile_find_kind(p, name);
        if (*kind < 0)
            return err_set(e, HP_EINVAL, "the profile has no times of a %s", name);
    }
    for (int k = 0; k < p->n_kinds && !name; k++) {
        double sum = 0;
        if (!layer_seconds(p, k, seconds))
            continue;
        for (int l = 0; l < p->n_layers; l++)
            sum += seconds[l];
        if (sum < best) {
            best = sum;
            *kind = k;
        }
    }
    if (*kind < 0 || !layer_seconds(p, *kind, seconds))
        return err_set(e, HP_EINVAL, "%s has no time of every layer on a whole device",
                       name ? name : "no kind of device");
    return 0;
}

/* The paper's way: layers join a block while that brings it nearer to its part of the time. */
static double greedy_cut_bytes(const struct profile *p, const double *seconds, double total,
                               int n_blocks)
{
    double bytes = 0, so_far = 0;
    int block = 1;
    for (int l = 0; l < p->n_layers - 1; l++) {
        so_far += seconds[l];
        double part = total / n_blocks;
        if (block < n_blocks && fabs(so_far - part) <= fabs(so_far + seconds[l + 1] - part)) {
            bytes += p->layers[l].output_bytes;
            block++;
            so_far = 0;
        }
    }
    return bytes;
}

struct split_state {
    double bytes,
        uneven; /* uneven: sum of squared differences from the mean; decides between equals */
    int from;
};

static bool state_better(const struct split_state *a, const struct split_state *b)
{
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->uneven < b->uneven);
}

/* best[b * (n + 1) + l]: layers [0, l) in b blocks. True when all layers fit. */
static bool states_fill(const struct profile *p, const double *before, int n_blocks, double window,
                        struct split_state *best)
{
    int n = p->n_layers;
    double mean = before[n] / n_blocks, low = mean * (1 - window) - 1e-12,
           high = mean * (1 + window) + 1e-12;
    for (int i = 0; i < (n_blocks + 1) * (n + 1); i++)
        best[i] = (struct split_state){INFINITY, INFINITY, -1};
    best[0] = (struct split_state){0, 0, -1};
    for (int b = 1; b <= n_blocks; b++)
        for (int l = b; l <= n; l++)
            for (int from = l - 1; from >= b - 1; from--) {
                double s = before[l] - before[from];
                if (s > high)
                    break;
                const struct split_state *prior = &best[(b - 1) * (n + 1) + from];
                if (s < low || isinf(prior->bytes))
                    continue;
                struct split_state now = {prior->bytes +
                                              (l < n ? p->layers[l - 1].output_bytes : 0),
                                          prior->uneven + (s - mean) * (s - mean), from};
                if (state_better(&now, &best[b * (n + 1) + l]))
                    best[b * (n + 1) + l] = now;
            }
    return !isinf(best[n_blocks * (n + 1) + n].bytes);
}

static void read_back(const struct profile *p, const double *before, const struct split_state *best,
                      struct split *out)
{
    int n = p->n_layers, l = n;
    out->cut_bytes = best[out->n_blocks * (n + 1) + n].bytes;
    out->least_s = INFINITY;
    out->most_s = 0;
    for (int b = out->n_blocks; b > 0; b--) {
        int from = best[b * (n + 1) + l].from;
        out->end[b - 1] = l;
        out->least_s = fmin(out->least_s, before[l] - before[from]);
        out->most_s = fmax(out->most_s, before[l] - before[from]);
        l = from;
    }
}

int pools_split(const struct profile *p, int n_blocks, double window, const char *kind,
                struct split *out, struct err *e)
{
    int n = p->n_layers;
    if (p->shape != PROFILE_FIXED)
        return err_set(e, HP_EINVAL,
                       "is a profile by slice and prefix: there is nothing to split; its layers "
                       "are the pipeline planner's");
    if (n_blocks < 1 || n_blocks > SPLIT_MAX_BLOCKS)
        return err_set(e, HP_EINVAL, "%d blocks: expected 1 to %d", n_blocks, SPLIT_MAX_BLOCKS);
    if (!(window >= 0))
        return err_set(e, HP_EINVAL, "a window of %g: expected 0 or more", window);
    if (n > SPLIT_MAX_LAYERS)
        return err_set(e, HP_ELIMIT, "has %d layers; at most %d can be split", n, SPLIT_MAX_LAYERS);
    *out = (struct split){.n_blocks = n_blocks < n ? n_blocks : n, .window = window};
    double *seconds = malloc((size_t)n * sizeof *seconds),
           *before = calloc((size_t)n + 1, sizeof *before);
    struct split_state *best = malloc((size_t)(out->n_blocks + 1) * (size_t)(n + 1) * sizeof *best);
    int rc = seconds && before && best ? choose_kind(p, kind, seconds, &out->kind, e)
                                       : err_no_memory(e, "splitting the profile");
    for (int l = 0; rc == 0 && l < n; l++)
        before[l + 1] = before[l] + seconds[l];
    if (rc == 0) {
        out->greedy_cut_bytes = greedy_cut_bytes(p, seconds, before[n], out->n_blocks);
        /* Layers that are longer than the window allows make it wider. With a window of n_blocks
         * everything fits. */
        while (!states_fill(p, before, out->n_blocks, out->window, best))
            out->window = out->window * 1.25 + 0.05;
        read_back(p, before, best, out);
    }
    free(seconds);
    free(before);
    free(best);
    return rc;
}

/* ---- the profile of the blocks ---- */

static json_t *block_table(const struct profile *p, int kind, int first, int end)
{
    const struct profile_table *axes = profile_table_of(p, kind, p->layers[first].class_index);
    json_t *shares = json_array(), *batches = json_array(), *rows = json_array();
    for (int j = 0; j < axes->n_y; j++)
        json_array_append_new(batches, json_real(axes->y[j]));
    for (int i = 0; i < axes->n_x; i++) {
        json_t *row = json_array();
        json_array_append_new(shares, json_real(axes->x[i]));
        for (int j = 0; j < axes->n_y; j++) {
            double sum = 0;
            for (int l = first; l < end; l++)
                sum += exact_at(profile_table_of(p, kind, p->layers[l].class_index), axes->x[i],
                                axes->y[j]);
            json_array_append_new(row, isnan(sum) ? json_null() : json_real(sum));
        }
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o, s:o, s:o}", "share", shares, "batch", batches, "seconds", rows);
}

static json_t *block_layer(const struct profile *p, int block, int first, int end)
{
    char name[32];
    double param_bytes = 0, within = 0;
    for (int l = first; l < end; l++) {
        param_bytes += p->layers[l].param_bytes;
        within = fmax(within, p->layers[l].activation_bytes);
    }
    snprintf(name, sizeof name, "block%d", block);
    json_t *o = json_pack("{s:s, s:s, s:f, s:[i,i]}", "name", name, "class", name, "output_bytes",
                          p->layers[end - 1].output_bytes, "layers", first, end);
    if (param_bytes > 0)
        json_object_set_new(o, "param_bytes", json_real(param_bytes));
    if (within > 0)
        json_object_set_new(o, "activation_bytes", json_real(within));
    return o;
}

json_t *pools_split_profile(const struct profile *p, const struct split *s)
{
    json_t *layers = json_array(), *latency = json_object();
    for (int b = 0; b < s->n_blocks; b++)
        json_array_append_new(layers, block_layer(p, b, b ? s->end[b - 1] : 0, s->end[b]));
    for (int k = 0; k < p->n_kinds; k++) {
        json_t *by_class = json_object();
        for (int b = 0; b < s->n_blocks; b++) {
            char name[32];
            snprintf(name, sizeof name, "block%d", b);
            json_object_set_new(by_class, name,
                                block_table(p, k, b ? s->end[b - 1] : 0, s->end[b]));
        }
        json_object_set_new(latency, p->kinds[k], by_class);
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:{s:s, s:f, s:f, s:f}}", "format", "hp-profile/1",
                     "model", p->model, "layers", layers, "latency", latency, "split",
                     "balanced_by", p->kinds[s->kind], "window", s->window, "cut_bytes",
                     s->cut_bytes, "greedy_cut_bytes", s->greedy_cut_bytes);
}

static json_t *bounds_json(const struct split *s)
{
    json_t *bounds = json_pack("[i]", 0);
    for (int i = 0; i < s->n_blocks; i++)
        json_array_append_new(bounds, json_integer(s->end[i]));
    return bounds;
}

int pools_split_document(json_t *layers, int n_blocks, struct split *split, json_t **out,
                         struct err *e)
{
    static const char *const kept[] = {"measured", "source"};
    struct profile p = {0};
    struct split s = split ? *split : (struct split){0};
    struct json_at at = {.value = layers, .file = "the profile"};
    int rc = profile_from_json(&at, &p, e);
    if (rc < 0)
        return rc;
    if (s.n_blocks == 0)
        rc = pools_split(&p, n_blocks, SPLIT_WINDOW, NULL, &s, e);
    if (rc == 0 && s.end[s.n_blocks - 1] != p.n_layers)
        rc = err_set(e, HP_EUNSUPPORTED, "%d layers in one size, %d in another",
                     s.end[s.n_blocks - 1], p.n_layers);
    if (rc == 0 && split)
        *split = s;
    *out = rc == 0 ? pools_split_profile(&p, &s) : NULL;
    profile_free(&p);
    if (rc < 0 || !*out)
        return rc < 0 ? rc : err_no_memory(e, "a profile");
    json_object_set_new(*out, "bounds", bounds_json(&s));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (json_object_get(layers, kept[i]))
            json_object_set(*out, kept[i], json_object_get(layers, kept[i]));
    return 0;
}
