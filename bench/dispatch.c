/* The scheduler of models with deadlines: nanoseconds of a probe and of a decision, and requests
 * per second through the simulator, on 100 devices.
 *
 * Three models of ten blocks on 25 fast and 75 slow devices, planned here; times are of the
 * processor, so that other work on the machine does not count. Compared with: PPipe (USENIX ATC
 * 2025, section 7.2): less than 9 us for a decision of 3.58 probes on 100 GPUs; its simulator about
 * one million requests per second. */
#include "planners/dispatch/dispatch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/bytes.h"
#include "common/env.h"
#include "planners/dispatch/simulate.h"
#include "planners/pools/pools.h"

enum { MODELS = 3, BLOCKS = 10 };

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const struct err *e)
{
    fprintf(stderr, "bench dispatch: %s\n", e->text);
    exit(1);
}

static void write_profile(struct buffer *b, uint64_t *seed)
{
    static const double slower[] = {1, 2.6};
    buffer_printf(b, "{\"format\":\"hp-profile/1\",\"layers\":[");
    for (int l = 0; l < BLOCKS; l++)
        buffer_printf(b, "%s{\"class\":\"b%d\",\"output_bytes\":%.0f}", l ? "," : "", l,
                      1e6 + 4e6 * random_unit(seed));
    buffer_printf(b, "],\"latency\":{");
    for (int k = 0; k < 2; k++) {
        buffer_printf(b, "%s\"%s\":{", k ? "," : "", k ? "slow" : "fast");
        for (int l = 0; l < BLOCKS; l++) {
            double one = (0.001 + 0.001 * random_unit(seed)) * slower[k];
            buffer_printf(b, "%s\"b%d\":{\"share\":[1,2],\"batch\":[1,2,3,4],\"seconds\":[",
                          l ? "," : "", l);
            for (int v = 1; v <= 2; v++)
                buffer_printf(b, "%s[%.6f,%.6f,%.6f,%.6f]", v > 1 ? "," : "", one * v,
                              one * v * 1.85, one * v * 2.7, one * v * 3.5);
            buffer_printf(b, "]}");
        }
        buffer_printf(b, "}");
    }
    buffer_printf(b, "}}");
}

static json_t *parse(struct buffer *b, struct json_at *at)
{
    json_t *root;
    struct err e = {0};
    const char *text = buffer_cstr(b);
    if (json_parse_at("bench", text, strlen(text), &root, at, &e) < 0)
        die(&e);
    b->size = 0;
    return root;
}

static void make_inputs(struct cluster *c, struct workload *w)
{
    struct buffer b = {0};
    struct json_at at;
    struct err e = {0};
    uint64_t seed = 2025;
    buffer_printf(
        &b,
        "{\"format\":\"hp-cluster/"
        "1\",\"nic\":{\"bandwidth_bytes_per_s\":1.25e9},\"pools\":[{\"kind\":\"fast\",\"count\":25,"
        "\"devices_per_node\":4},{\"kind\":\"slow\",\"count\":75,\"devices_per_node\":2}]}");
    json_t *root = parse(&b, &at);
    if (cluster_from_json(&at, c, &e) < 0)
        die(&e);
    json_decref(root);
    buffer_printf(
        &b, "{\"format\":\"hp-workload/"
            "1\",\"slo_margin\":0.35,\"shares\":{\"fast\":[1,2],\"slow\":[1,2]},\"models\":[");
    for (int m = 0; m < MODELS; m++)
        buffer_printf(&b, "%s{\"name\":\"m%d\",\"profile\":\"-\",\"weight\":1,\"slo_s\":0.08}",
                      m ? "," : "", m);
    buffer_printf(&b, "]}");
    root = parse(&b, &at);
    if (workload_from_json(&at, "", w, &e) < 0)
        die(&e);
    json_decref(root);
    for (int m = 0; m < MODELS; m++) {
        write_profile(&b, &seed);
        root = parse(&b, &at);
        if (profile_from_json(&at, &w->models[m].profile, &e) < 0)
            die(&e);
        json_decref(root);
    }
    buffer_free(&b);
}

static void count(void *ctx, const struct dispatch_action *a)
{
    long *sent = ctx;
    *sent += !a->drop;
}

static void streams_init(const struct dispatch_topology *t, double load, double seconds,
                         struct arrivals *a)
{
    double rates[MODELS];
    for (int m = 0; m < MODELS; m++)
        rates[m] = load * t->models[m].rate;
    arrivals_init(a, ARRIVALS_POISSON, rates, MODELS, seconds, 7);
}

/* Decisions while the pools are loaded, and then probes of the state that they left. */
static void measure_decisions(const struct dispatch_topology *t, double load)
{
    struct dispatch *d;
    struct arrivals *stream = malloc(sizeof *stream);
    struct err e = {0};
    enum { REQUESTS = 200000 };
    struct arrival *list = malloc(REQUESTS * sizeof *list);
    int64_t wake[MODELS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    int n = 0;
    long sent = 0;
    if (!stream || !list || dispatch_create(t, 0, &d, &e) < 0)
        die(&e);
    streams_init(t, load, 1e6, stream);
    while (n < REQUESTS && arrivals_next(stream, &list[n], &e) > 0)
        n++;
    double started = processor_s();
    for (int i = 0; i < n; i++) {
        for (int m = 0; m < MODELS; m++)
            while (wake[m] <= list[i].at_ns)
                wake[m] = dispatch_run(d, m, wake[m], count, &sent);
        dispatch_arrive(d, list[i].model, 0, list[i].at_ns);
        wake[list[i].model] = dispatch_run(d, list[i].model, list[i].at_ns, count, &sent);
    }
    double decided_s = processor_s() - started;
    struct dispatch_path path;
    int64_t now = list[n - 1].at_ns, checksum = 0;
    enum { PROBES = 2000000 };
    started = processor_s();
    for (int i = 0; i < PROBES; i++) {
        int pipeline = i % t->n_pipelines;
        dispatch_probe(d, pipeline, t->pipelines[pipeline].batch, now + i % 1000, &path);
        checksum += path.finish_ns;
    }
    double probed_s = processor_s() - started;
    printf(
        "load %3.0f %%: probe %.0f ns, decision %.0f ns (%.2f probes and %.2f requests each)%s\n",
        load * 100, probed_s / PROBES * 1e9, decided_s / (double)sent * 1e9,
        (double)dispatch_probes(d) / (double)sent, (double)n / (double)sent,
        checksum == 42 ? " " : "");
    dispatch_destroy(&d);
    free(stream);
    free(list);
}

static void measure_simulator(const struct dispatch_topology *t, enum simulate_scheduler scheduler,
                              double noise, double load)
{
    struct arrivals *stream = malloc(sizeof *stream);
    struct simulate_result r = {0};
    struct err e = {0};
    uint64_t requests = 0;
    if (!stream)
        exit(1);
    streams_init(t, load, 300, stream);
    double started = processor_s();
    if (simulate_run(t,
                     &(struct simulate_options){
                         .scheduler = scheduler, .latency_noise = noise, .network_jitter = noise},
                     arrivals_next, stream, &r, &e) < 0)
        die(&e);
    double took_s = processor_s() - started, least = 1;
    for (int m = 0; m < MODELS; m++) {
        requests += r.models[m].arrived;
        least = fmin(least, simulate_attainment(&r.models[m]));
    }
    printf("simulator, %s%s, load %3.0f %%: %.2f million requests/s, attainment %.4f\n",
           simulate_scheduler_words[scheduler], noise > 0 ? " with noise" : "", load * 100,
           (double)requests / took_s / 1e6, least);
    simulate_result_free(&r);
    free(stream);
}

int main(void)
{
    struct cluster c = {0};
    struct workload w = {0};
    struct dispatch_topology t = {0};
    struct pools_answer a = {0};
    struct err e = {0};
    make_inputs(&c, &w);
    struct pools_request rq = {
        .cluster = &c, .workload = &w, .share_devices = 0, .slo_margin = -1, .env = &env_real};
    if (pools_plan(&rq, &a, &e) < 0 || dispatch_topology_make(&a.plan, &c, &w, 0, &t, &e) < 0)
        die(&e);
    printf(
        "planned in %.1f ms, within %.2f %% of the bound: %d pipelines, %d shares of 100 devices\n",
        a.seconds * 1e3, 100 * (1 - a.plan.normalized_throughput_per_s / a.bound), t.n_pipelines,
        t.n_shares);
    measure_decisions(&t, 0.5);
    measure_decisions(&t, 0.95);
    measure_decisions(&t, 1.2);
    measure_simulator(&t, SIMULATE_RESERVING, 0, 0.95);
    measure_simulator(&t, SIMULATE_RESERVING, 0, 1.2);
    measure_simulator(&t, SIMULATE_RESERVING, 0.05, 0.9);
    measure_simulator(&t, SIMULATE_REACTIVE, 0, 0.95);
    dispatch_topology_free(&t);
    pools_answer_free(&a);
    workload_free(&w);
    cluster_free(&c);
    return 0;
}
