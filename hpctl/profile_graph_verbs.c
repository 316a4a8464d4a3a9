/* `hpctl profile graph`: a model file and this machine's measured times become a graph to plan cold
 * starts from. */
#include <stdio.h>
#include <unistd.h>

#include "agent/backend/backend.h"
#include "agent/graph_profiler.h"
#include "common/host_limits.h"
#include "common/units.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"

static const struct command_option profile_graph_options[] = {
    {"device", "cpu", "the kind of device of this machine that is measured (default cpu)", 0},
    {"threads", "N", "of the cpu device (default: as many as it may use)", 0},
    {"tokens", "N", "of the prompt that starts (default 128)", 0},
    {"memory", "BYTES",
     "what the device may hold: " UNITS_BYTES_HELP " (default: nine tenths of this machine's)", 0},
    {"compute", "f32|auto", "float32 arithmetic, or the device's fastest (default auto)", 0},
    {"seconds", "S", "for all measurements together (default 3)", 0},
    {0},
};

static int read_options(const struct invocation *in, struct device_config *device,
                        struct graph_profiler_config *c, struct err *e)
{
    static const char *const computes[] = {"auto", "f32", NULL};
    uint64_t threads, tokens;
    double seconds;
    int compute, rc;
    c->path = in->arguments[0];
    device->backend = c->device_name = invocation_option_or(in, "device", "cpu");
    if ((rc = invocation_u64(in, "threads", 0, &threads, e)) < 0 ||
        (rc = invocation_u64(in, "tokens", 128, &tokens, e)) < 0 ||
        (rc = invocation_bytes(in, "memory", host_memory_default(), &c->memory_bytes, e)) < 0 ||
        (rc = invocation_choice(in, "compute", computes, 0, &compute, e)) < 0 ||
        (rc = invocation_number(in, "seconds", 3, &seconds, e)) < 0)
        return rc;
    if (threads > 1024)
        return err_set(e, HP_EUSAGE, "--threads: %llu is more than 1024",
                       (unsigned long long)threads);
    if (tokens < 1 || tokens > 1 << 20)
        return err_set(e, HP_EUSAGE, "--tokens: %llu is not between 1 and %d",
                       (unsigned long long)tokens, 1 << 20);
    if (seconds <= 0 || seconds > 3600)
        return err_set(e, HP_EUSAGE, "--seconds: %g is not between 0 and 3600", seconds);
    device->n_threads = (int)threads;
    c->tokens = (uint32_t)tokens;
    c->f32 = compute == 1;
    c->budget_ms = (uint64_t)(seconds * 1e3) + 1;
    return 0;
}

static void show_progress(void *ctx, double done, double total)
{
    progress_show(ctx, "measuring layers", done, total);
}

/* What the graph says in all, for a person. */
static void print_graph(const json_t *graph)
{
    double bytes = 0, load_s = 0, run_s = 0;
    int params = 0, ops = 0;
    const json_t *node;
    size_t i;
    json_array_foreach(json_object_get(graph, "nodes"), i, node)
    {
        if (json_object_get(node, "exec_s")) {
            ops++;
            run_s += json_number_value(json_array_get(json_object_get(node, "exec_s"), 0));
        } else {
            params++;
            bytes += number_member(node, "bytes");
            load_s += number_member(node, "load_s");
        }
    }
    printf("%s on %s: %d operators, %d parameters\n",
           json_string_value(json_object_get(graph, "model")),
           json_string_value(json_object_get(json_object_get(graph, "source"), "device")), ops,
           params);
    printf("  loading %s takes %s, running %s\n", shown_bytes(bytes).s, shown_seconds(load_s).s,
           shown_seconds(run_s).s);
}

static int profile_graph_run(struct invocation *in, struct err *e)
{
    struct device_config device = {0};
    struct graph_profiler_config c = {0};
    struct progress_bar bar;
    json_t *graph = NULL;
    int rc = read_options(in, &device, &c, e);
    if (rc < 0 || (rc = device_open(&device, &c.device, e)) < 0)
        return rc;
    progress_init(&bar, in->json);
    progress_once(&bar, "measuring layers");
    c.progress = show_progress;
    c.progress_ctx = &bar;
    rc = graph_profiler_measure(&c, &graph, e);
    progress_end(&bar);
    device_close(&c.device);
    if (rc < 0)
        return rc;
    if (!in->json)
        print_graph(graph);
    if (in->json || in->output)
        return invocation_print_json(in, graph, e);
    json_decref(graph);
    return 0;
}

const struct command profile_graph_verbs[] = {
    {
        .path = "profile graph",
        .arguments = "MODEL",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "measure a model's operators on this machine, as a graph for plan coldstart",
        .details = "Each kind of operator is timed with its parameters resident, each parameter's "
                   "load is timed, and both "
                   "together stand for running from\n"
                   "host memory where a device cannot read in place; the embedding reads its few "
                   "rows straight from the file. "
                   "Edit `host` to describe\n"
                   "more devices, buses and links.",
        .examples =
            "  hpctl profile graph model.gguf -o graph.json\n"
            "  hpctl profile graph model.gguf --device cpu --threads 4 --tokens 32 -o json\n"
            "  hpctl profile graph model.gguf -o graph.json && hpctl plan coldstart --graph "
            "graph.json",
        .options = profile_graph_options,
        .run = profile_graph_run,
        .makes_file = true,
    },
    {0},
};
