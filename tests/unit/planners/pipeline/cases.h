/* Small random clusters and profiles for the tests of the pipeline planner, and a brute force over
 * all their plans that shares no code with the planner but the reading of tables: its own costs,
 * its own flow, its own walk. */
#ifndef HP_TESTS_PIPELINE_CASES_H
#define HP_TESTS_PIPELINE_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/cluster.h"
#include "common/env.h"
#include "common/profile.h"
#include "planners/pipeline/pipeline.h"

struct small_case {
    struct cluster cluster;
    struct profile profile;
    int tokens, unit;
    double batch;
};

static inline int case_pick(uint64_t *state, int low, int high)
{
    return low + (int)(random_next(state) % (uint64_t)(high - low + 1));
}
static inline double case_range(uint64_t *state, double low, double high)
{
    return low + (high - low) * random_unit(state);
}

static inline void case_read(const char *name, struct buffer *text, struct cluster *c,
                             struct profile *p)
{
    json_t *root;
    struct json_at at;
    struct err e = {0};
    int rc = json_parse_at(name, text->data, text->size, &root, &at, &e);
    if (rc == 0)
        rc = c ? cluster_from_json(&at, c, &e) : profile_from_json(&at, p, &e);
    if (rc < 0) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    json_decref(root);
    buffer_free(text);
}

/* Up to 4 devices of 3 kinds on up to 3 nodes; some links measured, in one direction or both; some
 * pairs not connected. */
static inline void case_cluster(uint64_t *r, double memory, struct cluster *c)
{
    struct buffer b = {0};
    int n = case_pick(r, 0, 7) ? case_pick(r, 2, 4) : 1, nodes = case_pick(r, 1, n < 3 ? n : 3),
        device = 0;
    int node_of[4], number_of[4];
    buffer_printf(&b, "{\"format\": \"hp-cluster/1\", \"nodes\": [");
    for (int k = 0; k < nodes; k++) {
        int here = k + 1 == nodes ? n - device : 1;
        buffer_printf(&b, "%s{\"name\": \"n%d\", \"devices\": [", k ? ", " : "", k);
        for (int i = 0; i < here; i++, device++) {
            node_of[device] = k;
            number_of[device] = i;
            buffer_printf(&b,
                          "%s{\"name\": \"g%d\", \"kind\": \"K%d\", \"memory_bytes\": %.17g, "
                          "\"idle_w\": %d, \"busy_w\": %d}",
                          i ? ", " : "", i, case_pick(r, 0, 2), memory * case_range(r, 0.3, 2.0),
                          case_pick(r, 0, 40), case_pick(r, 50, 300));
        }
        buffer_printf(
            &b, "], \"device_link\": {\"bandwidth_bytes_per_s\": %.17g, \"latency_s\": %.17g}",
            case_range(r, 200, 20000), case_range(r, 0, 0.02));
        if (case_pick(r, 0, 9) > 0)
            buffer_printf(&b,
                          ", \"nics\": [{\"bandwidth_bytes_per_s\": %.17g, \"latency_s\": %.17g}]",
                          case_range(r, 100, 5000), case_range(r, 0, 0.05));
        buffer_printf(&b, "}");
    }
    buffer_printf(&b, "], \"links\": [");
    for (int a = 0, some = 0; a < n; a++)
        for (int k = 0; k < n; k++)
            if (a != k && case_pick(r, 0, 3) == 0)
                buffer_printf(&b,
                              "%s{\"from\": \"n%d/g%d\", \"to\": \"n%d/g%d\", "
                              "\"bandwidth_bytes_per_s\": %.17g, \"latency_s\": %.17g}",
                              some++ ? ", " : "", node_of[a], number_of[a], node_of[k],
                              number_of[k], case_range(r, 50, 5000), case_range(r, 0, 0.05));
    buffer_printf(&b, "]}");
    case_read("cluster", &b, c, NULL);
}

/* 3 kinds, up to 3 classes, times that grow with slice and prefix above a fixed part. */
static inline void case_profile(uint64_t *r, int layers, double batch, struct profile *p)
{
    struct buffer b = {0};
    int classes = case_pick(r, 1, 3);
    buffer_printf(&b, "{\"format\": \"hp-profile/1\", \"batch\": %.17g, \"layers\": [", batch);
    for (int l = 0; l < layers; l++)
        buffer_printf(&b,
                      "%s{\"class\": \"c%d\", \"param_bytes\": %.17g, \"state_bytes_per_token\": "
                      "%d, \"output_bytes_per_token\": "
                      "%d, \"activation_bytes_per_token\": %d}",
                      l ? ", " : "", l < classes ? l : case_pick(r, 0, classes - 1),
                      case_range(r, 100, 1000), case_pick(r, 0, 6), case_pick(r, 1, 8),
                      case_pick(r, 0, 2));
    buffer_printf(&b, "], \"latency\": {");
    for (int k = 0; k < 3; k++) {
        double speed = case_range(r, 0.5, 4);
        buffer_printf(&b, "%s\"K%d\": {", k ? ", " : "", k);
        for (int c = 0; c < 3; c++) {
            static const int slice[] = {4, 12, 40}, prefix[] = {0, 16, 64};
            double fixed = case_range(r, 0.01, 0.1), per_token = case_range(r, 0.01, 0.05),
                   growth = case_range(r, 0, 0.0003);
            buffer_printf(
                &b, "%s\"c%d\": {\"slice\": [4, 12, 40], \"prefix\": [0, 16, 64], \"seconds\": [",
                c ? ", " : "", c);
            for (int i = 0; i < 3; i++)
                buffer_printf(&b, "%s[%.17g, %.17g, %.17g]", i ? ", " : "",
                              (fixed + slice[i] * (per_token + growth * prefix[0])) * speed,
                              (fixed + slice[i] * (per_token + growth * prefix[1])) * speed,
                              (fixed + slice[i] * (per_token + growth * prefix[2])) * speed);
            buffer_printf(&b, "]}");
        }
        buffer_printf(&b, "}");
    }
    buffer_printf(&b, "}}");
    case_read("profile", &b, NULL, p);
}

static inline void case_make(uint64_t *r, struct small_case *out)
{
    int layers = case_pick(r, 0, 9) ? case_pick(r, 2, 9) : 1, units = case_pick(r, 1, 7);
    *out = (struct small_case){.unit = case_pick(r, 1, 8),
                               .batch = case_pick(r, 0, 3) ? 0 : case_pick(r, 1, 6)};
    out->tokens = units * out->unit - case_pick(r, 0, out->unit - 1);
    case_profile(r, layers, case_pick(r, 1, 4), &out->profile);
    /* Room for between a third and all of the layers on a typical device. */
    case_cluster(r, layers * 800.0 * case_range(r, 0.4, 1.5), &out->cluster);
}

static inline void case_free(struct small_case *k)
{
    cluster_free(&k->cluster);
    profile_free(&k->profile);
}

/* ---- brute force ---- */

struct brute {
    const struct small_case *k;
    enum pipeline_objective objective;
    double batch, best;
    int slices[8], n_slices;
    int device[4], end[4], used, stages_of_best;
};

static inline double brute_layer_seconds(const struct brute *b, int device, int layer, double slice,
                                         double prefix)
{
    const struct profile *p = &b->k->profile;
    double scaled = slice * b->batch / p->batch;
    return profile_table_at(
        profile_table_of(p, profile_find_kind(p, b->k->cluster.devices[device].kind),
                         p->layers[layer].class_index),
        scaled, prefix + (slice - scaled) / 2);
}

static inline double brute_value(const struct brute *b, int stages)
{
    double arrival[8] = {0}, end = 0, period = 0, compute_of[4];
    for (int j = 0; j < stages; j++) {
        double free_s = 0, wire_free = 0, compute_total = 0, wire_total = 0;
        struct cluster_wire w = {0};
        if (j + 1 < stages)
            w = cluster_hop(&b->k->cluster, b->device[j], b->device[j + 1]);
        for (int k = 0, prefix = 0; k < b->n_slices; prefix += b->slices[k++]) {
            double t = 0;
            for (int l = j ? b->end[j - 1] : 0; l < b->end[j]; l++)
                t += brute_layer_seconds(b, b->device[j], l, b->slices[k], prefix);
            free_s = fmax(free_s, arrival[k]) + t;
            compute_total += t;
            if (j + 1 == stages)
                continue;
            double wire = b->k->profile.layers[b->end[j] - 1].output_bytes_per_token *
                          b->slices[k] * b->batch / w.bandwidth_bytes_per_s;
            wire_free = fmax(wire_free, free_s) + wire;
            wire_total += wire;
            arrival[k] = wire_free + w.latency_s;
        }
        end = free_s;
        compute_of[j] = compute_total;
        period = fmax(period, fmax(compute_total, wire_total));
    }
    double energy = 0;
    for (int j = 0; j < stages; j++) {
        const struct cluster_device *d = &b->k->cluster.devices[b->device[j]];
        energy += d->busy_w * compute_of[j] + d->idle_w * (end - compute_of[j]);
    }
    return b->objective == PIPELINE_LATENCY  ? end
           : b->objective == PIPELINE_ENERGY ? energy
                                             : period;
}

static inline bool brute_fits(const struct brute *b, int device, int first, int end)
{
    double bytes = 0;
    for (int l = first; l < end; l++) {
        const struct profile_layer *p = &b->k->profile.layers[l];
        bytes += p->param_bytes + (p->state_bytes_per_token + p->activation_bytes_per_token) *
                                      b->k->tokens * b->batch;
    }
    return bytes <= b->k->cluster.devices[device].memory_bytes;
}

static inline void brute_stages(struct brute *b, int stages, int first)
{
    for (int d = 0; d < b->k->cluster.n_devices; d++) {
        if (b->used >> d & 1)
            continue;
        if (stages > 0 &&
            cluster_hop(&b->k->cluster, b->device[stages - 1], d).bandwidth_bytes_per_s <= 0)
            continue;
        b->used |= 1 << d;
        b->device[stages] = d;
        for (int end = first + 1; end <= b->k->profile.n_layers && brute_fits(b, d, first, end);
             end++) {
            b->end[stages] = end;
            if (end < b->k->profile.n_layers) {
                brute_stages(b, stages + 1, end);
                continue;
            }
            double value = brute_value(b, stages + 1);
            if (value < b->best) {
                b->best = value;
                b->stages_of_best = stages + 1;
            }
        }
        b->used &= ~(1 << d);
    }
}

/* The least value over all plans; INFINITY: there is none. */
static inline double brute_force(const struct small_case *k, enum pipeline_objective objective,
                                 int *stages)
{
    struct brute b = {.k = k,
                      .objective = objective,
                      .batch = k->batch > 0 ? k->batch : k->profile.batch,
                      .best = INFINITY};
    int units = (k->tokens + k->unit - 1) / k->unit;
    for (unsigned bits = 0; bits < 1u << (units - 1); bits++) {
        int start = 0;
        b.n_slices = 0;
        for (int i = 1; i <= units; i++)
            if (i == units || bits >> (i - 1) & 1) {
                int at = i == units ? k->tokens : i * k->unit;
                b.slices[b.n_slices++] = at - start;
                start = at;
            }
        brute_stages(&b, 0, 0);
    }
    *stages = b.stages_of_best;
    return b.best;
}

#endif
