/* Small clusters, profiles and workloads for the tests of pools and dispatch, made from numbers by
 * the readers of the files. */
#ifndef HP_TESTS_POOLS_EXAMPLE_H
#define HP_TESTS_POOLS_EXAMPLE_H

#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/cluster.h"
#include "common/env.h"
#include "common/workload.h"

enum { EXAMPLE_MAX_KINDS = 4, EXAMPLE_LAYERS = 4 };

struct example_options {
    int n_kinds, counts[EXAMPLE_MAX_KINDS], per_node;
    int n_models, max_stages, pipelines_per_assignment;
    double slo_s; /* of every model */
    double margin;
    double nic_bytes_per_s;
    int max_batch;
    int shares; /* 1 to this */
    bool share_devices;
    uint64_t seed; /* of the times and sizes */
};

struct example {
    struct cluster c;
    struct workload w;
};

static void example_profile(const struct example_options *o, uint64_t *seed, struct buffer *b)
{
    buffer_printf(b, "{\"format\":\"hp-profile/1\",\"model\":\"m\",\"layers\":[");
    for (int l = 0; l < EXAMPLE_LAYERS; l++)
        buffer_printf(b, "%s{\"name\":\"l%d\",\"class\":\"l%d\",\"output_bytes\":%.0f}",
                      l ? "," : "", l, l, 1e5 + 2e6 * random_unit(seed));
    buffer_printf(b, "],\"latency\":{");
    for (int k = 0; k < o->n_kinds; k++) {
        buffer_printf(b, "%s\"K%d\":{", k ? "," : "", k);
        for (int l = 0; l < EXAMPLE_LAYERS; l++) {
            double one = (0.001 + 0.003 * random_unit(seed)) * (1 + k);
            buffer_printf(b, "%s\"l%d\":{\"share\":[", l ? "," : "", l);
            for (int s = 1; s <= o->shares; s++)
                buffer_printf(b, "%s%d", s > 1 ? "," : "", s);
            buffer_printf(b, "],\"batch\":[");
            for (int n = 1; n <= o->max_batch; n++)
                buffer_printf(b, "%s%d", n > 1 ? "," : "", n);
            buffer_printf(b, "],\"seconds\":[");
            for (int s = 1; s <= o->shares; s++) {
                buffer_printf(b, "%s[", s > 1 ? "," : "");
                for (int n = 1; n <= o->max_batch; n++)
                    buffer_printf(b, "%s%.9f", n > 1 ? "," : "",
                                  one * (0.4 + 0.6 * n) * (s == 1 ? 1 : s * 0.93));
                buffer_printf(b, "]");
            }
            buffer_printf(b, "]}");
        }
        buffer_printf(b, "}");
    }
    buffer_printf(b, "}}");
}

static json_t *example_parse(struct buffer *b, struct json_at *at)
{
    json_t *root = NULL;
    struct err e = {0};
    const char *text = buffer_cstr(b);
    if (json_parse_at("example.json", text, strlen(text), &root, at, &e) < 0)
        fail_msg("%s", e.text);
    return root;
}

static void example_make(const struct example_options *o, struct example *x)
{
    struct buffer b = {0};
    struct json_at at;
    struct err e = {0};
    uint64_t seed = o->seed;
    *x = (struct example){0};
    buffer_printf(&b,
                  "{\"format\":\"hp-cluster/"
                  "1\",\"nic\":{\"bandwidth_bytes_per_s\":%.0f,\"latency_s\":0},\"pools\":[",
                  o->nic_bytes_per_s);
    for (int k = 0; k < o->n_kinds; k++)
        buffer_printf(&b, "%s{\"kind\":\"K%d\",\"count\":%d,\"devices_per_node\":%d}", k ? "," : "",
                      k, o->counts[k], o->per_node);
    buffer_printf(&b, "]}");
    json_t *root = example_parse(&b, &at);
    if (cluster_from_json(&at, &x->c, &e) < 0)
        fail_msg("%s", e.text);
    json_decref(root);
    b.size = 0;
    buffer_printf(&b,
                  "{\"format\":\"hp-workload/"
                  "1\",\"slo_margin\":%g,\"max_stages\":%d,\"pipelines_per_assignment\":%d,"
                  "\"share_devices_across_pipelines\":%s,\"shares\":{",
                  o->margin, o->max_stages, o->pipelines_per_assignment,
                  o->share_devices ? "true" : "false");
    for (int k = 0; k < o->n_kinds; k++) {
        buffer_printf(&b, "%s\"K%d\":[", k ? "," : "", k);
        for (int s = 1; s <= o->shares; s++)
            buffer_printf(&b, "%s%d", s > 1 ? "," : "", s);
        buffer_printf(&b, "]");
    }
    buffer_printf(&b, "},\"models\":[");
    for (int m = 0; m < o->n_models; m++)
        buffer_printf(&b,
                      "%s{\"name\":\"m%d\",\"profile\":\"m%d.json\",\"weight\":%g,\"slo_s\":%g}",
                      m ? "," : "", m, m, 0.5 + random_unit(&seed), o->slo_s);
    buffer_printf(&b, "]}");
    root = example_parse(&b, &at);
    if (workload_from_json(&at, "", &x->w, &e) < 0)
        fail_msg("%s", e.text);
    json_decref(root);
    for (int m = 0; m < o->n_models; m++) {
        b.size = 0;
        example_profile(o, &seed, &b);
        root = example_parse(&b, &at);
        if (profile_from_json(&at, &x->w.models[m].profile, &e) < 0)
            fail_msg("%s", e.text);
        json_decref(root);
    }
    buffer_free(&b);
}

static void example_free(struct example *x)
{
    workload_free(&x->w);
    cluster_free(&x->c);
}

#endif
