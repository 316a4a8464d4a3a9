/* `hpctl profile model`: the agents measure what a model's layers cost on their devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hpctl/client.h"
#include "hpctl/model_manifest.h"
#include "hpctl/profile_network.h"
#include "hpctl/profile_onnx.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"

enum { DEFAULT_BUDGET_S = 20, MOST_BUDGET_S = 3600 };

static int on_progress(void *ctx, const json_t *part, struct err *e)
{
    (void)e;
    struct shown what =
        shown_of("%s measures %s: %s points, off by at most %.0f %%", string_member(part, "agent"),
                 string_member(part, "what"), shown_member(part, "points").s,
                 100 * number_member(part, "error"));
    progress_show(ctx, what.s, number_member(part, "elapsed_s"), number_member(part, "budget_s"));
    return 0;
}

static int question_make(const struct invocation *in, json_t **arguments, double *budget,
                         struct err *e)
{
    static const char *const computes[] = {"auto", "f32", NULL};
    int compute, rc;
    if ((rc = invocation_above_zero(in, "budget", DEFAULT_BUDGET_S, MOST_BUDGET_S, budget, e)) <
            0 ||
        (rc = invocation_choice(in, "compute", computes, 0, &compute, e)) < 0)
        return rc;
    *arguments = json_pack("{s:f, s:s}", "budget_s", *budget, "compute", computes[compute]);
    if (invocation_option(in, "nodes"))
        json_object_set_new(*arguments, "nodes", invocation_names(in, "nodes"));
    return 0;
}

static int profile_ask(const struct invocation *in, struct progress_bar *bar, json_t **profile,
                       struct err *e)
{
    struct buffer manifest = {0};
    struct client *client = NULL;
    json_t *arguments = NULL;
    double budget;
    int rc = question_make(in, &arguments, &budget, e);
    if (rc == 0)
        rc = client_open(invocation_option(in, "context"), &client, e);
    if (rc == 0)
        rc = model_manifest_make(in->arguments[0], bar, &manifest, e);
    if (rc == 0) {
        struct client_ask a = {.verb = "profile",
                               .arguments = arguments,
                               .blob = {manifest.data, manifest.size},
                               .patience_ms = 300000 + (uint64_t)(budget * 2000),
                               .progress = on_progress,
                               .ctx = bar};
        rc = client_ask(client, &a, profile, NULL, e);
        arguments = NULL;
    }
    json_decref(arguments);
    client_close(&client);
    buffer_free(&manifest);
    return rc;
}

/* ---- what a person sees ---- */

static double table_corner(const json_t *table, bool long_slice, bool long_prefix)
{
    const json_t *rows = json_object_get(table, "seconds");
    const json_t *row =
        json_array_get(rows, long_slice && json_array_size(rows) ? json_array_size(rows) - 1 : 0);
    return json_number_value(
        json_array_get(row, long_prefix && json_array_size(row) ? json_array_size(row) - 1 : 0));
}

static double last_of(const json_t *axis)
{
    return json_number_value(
        json_array_get(axis, json_array_size(axis) ? json_array_size(axis) - 1 : 0));
}

static int print_profile(const json_t *profile, struct err *e)
{
    static const struct table_column columns[] = {
        {"DEVICE KIND", NULL, NULL},    {"CLASS", NULL, NULL},
        {">POINTS", NULL, NULL},        {">SHORTEST SLICE", NULL, NULL},
        {">LONGEST SLICE", NULL, NULL}, {">AFTER LONGEST PREFIX", NULL, NULL},
        {">OFF BY", NULL, NULL},        {0}};
    struct table *t = table_create(columns);
    const char *kind, *name;
    json_t *classes, *table, *note;
    json_object_foreach(json_object_get(profile, "latency"), kind, classes)
        json_object_foreach(classes, name, table)
    {
        const json_t *slices = json_object_get(table, "slice"),
                     *prefixes = json_object_get(table, "prefix");
        if (!slices)
            continue;
        table_cell(t, "%s", kind);
        table_cell(t, "%s", name);
        table_cell(t, "%zu x %zu", json_array_size(slices), json_array_size(prefixes));
        table_cell(t, "%.0f: %s", json_number_value(json_array_get(slices, 0)),
                   shown_seconds(table_corner(table, false, false)).s);
        table_cell(t, "%.0f: %s", last_of(slices),
                   shown_seconds(table_corner(table, true, false)).s);
        if (json_array_size(prefixes) > 1)
            table_cell(t, "%.0f: %s", last_of(prefixes),
                       shown_seconds(table_corner(table, true, true)).s);
        else
            table_cell(t, "-");
        if (json_object_get(table, "interpolation_error"))
            table_cell(t, "%.0f %%", 100 * number_member(table, "interpolation_error"));
        else
            table_cell(t, "-");
    }
    int rc = table_print(&t, "nothing was measured", e);
    json_object_foreach(json_object_get(profile, "useful_slice"), kind, note)
        printf("%s: slices of %s tokens and more take at most %.2f times the best time per token\n",
               kind, shown_member(note, "tokens").s, number_member(note, "within"));
    json_object_foreach(json_object_get(profile, "source"), kind, note)
        printf("%s: measured on %s (%s, driver %s)\n", kind, string_member(note, "device"),
               string_member(note, "libraries"), string_member(note, "driver"));
    return rc;
}

static int local_profile(struct invocation *in, struct err *e)
{
    static const char *const cluster_alone[] = {"nodes", "agents", "shares"};
    for (size_t i = 0; i < sizeof cluster_alone / sizeof *cluster_alone; i++)
        if (invocation_option(in, cluster_alone[i]))
            return err_set(e, HP_EUSAGE,
                           "--%s does not go with --local, which measures cores of this machine",
                           cluster_alone[i]);
    return profile_onnx(in, e);
}

static int run_profile(struct invocation *in, struct err *e)
{
    static const char *const networks_alone[] = {"batches", "dim", "blocks", "shares", "agents"};
    struct progress_bar bar;
    json_t *profile = NULL;
    if (invocation_flag(in, "local"))
        return local_profile(in, e);
    if (invocation_option(in, "kind"))
        return err_set(e, HP_EUSAGE, "--kind goes with --local: agents know of what kind they are");
    if (invocation_option(in, "threads"))
        return err_set(e, HP_EUSAGE,
                       "--threads goes with --local; agents compute with the cores that they have");
    const char *ending = strrchr(in->arguments[0], '.');
    if (invocation_option(in, "lengths") || (ending && strcmp(ending, ".onnx") == 0))
        return profile_network(in, e);
    for (size_t i = 0; i < sizeof networks_alone / sizeof *networks_alone; i++)
        if (invocation_option(in, networks_alone[i]))
            return err_set(e, HP_EUSAGE, "--%s is for ONNX models", networks_alone[i]);
    if (invocation_flag(in, "upload"))
        return err_set(e, HP_EUSAGE, "--upload is for ONNX models");
    progress_init(&bar, in->json);
    int rc = profile_ask(in, &bar, &profile, e);
    progress_end(&bar);
    if (rc < 0)
        return rc;
    if (!in->json)
        rc = print_profile(profile, e);
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, profile, e);
    json_decref(profile);
    return rc;
}

static const struct command_option profile_options[] = {
    {"nodes", "A,B", "measure on these agents (default: one of each kind of device)", 0},
    {"budget", "S", "seconds that each may take (default 20)", 0},
    {"compute", "auto|f32", "as the model would be deployed (default auto)", 0},
    {"context", "NAME", "of the cluster (default: the current one)", 0},
    {"agents", "A,B|all", "an ONNX model: on each device of these agents", 0},
    {"batches", "1,2,4", "an ONNX model: batch sizes (1,2,4,8, or the model's own)", 0},
    {"shares", "1,2", "an ONNX model: cut devices into so many parts (1 to 4, as cores go)", 0},
    {"dim", "NAME=N,..", "an ONNX model: sizes that it leaves free", 0},
    {"blocks", "N", "an ONNX model: group layers into so many blocks (10)", 0},
    {"upload", NULL, "an ONNX model: send it even to agents of this box", 0},
    {"local", NULL, "an ONNX model, on this machine, without a cluster", 0},
    {"threads", "N", "with --local: cores that compute together (1)", 0},
    {"lengths", "16,64", "as pools run it: sizes of what stays free, each measured", 0},
    {"kind", "K", "with --local: the kind of device that these cores are (cpu-core)", 0},
    {0},
};

#define PROFILE_DETAILS                                                                            \
    "Each agent runs one layer of each class over slices, prefixes and batches, begins with a "    \
    "coarse grid and adds points where the straight line between "                                 \
    "two errs most, until the budget ends. The result is hp-profile/1 with the device, its "       \
    "libraries and driver as `source`, and is kept: deployments of this "                          \
    "model plan with it. Agents that hold stages are not measured.\n"                              \
    "An ONNX model is measured whole on each kind of device, batch by batch, on the whole device " \
    "and on its equal parts while all of them compute, until times are known to 2 % or the "       \
    "budget ends. Its layers are grouped as by `profile split`, where few bytes cross; the "       \
    "blocks' sum is held against whole runs. That is kept, too: `hpctl apply` plans with it. "     \
    "With several --agents of one kind the slowest one counts. With --lengths a language model "   \
    "is "                                                                                          \
    "measured so too, as pools run it, in each of these lengths. With --local one core of this "   \
    "machine is measured instead, or --threads of them, for `plan pools` and `simulate`."

const struct command profile_model_verbs[] = {
    {
        .path = "profile model",
        .arguments = "MODEL",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "measure what a model's layers cost on the cluster's devices",
        .details = PROFILE_DETAILS,
        .examples = "  hpctl profile model llama.gguf -o profile.json\n  hpctl profile model "
                    "llama.gguf --nodes attic,cellar --budget 60 -o profile.json\n"
                    "  hpctl profile model resnet50.onnx\n"
                    "  hpctl profile model resnet50.onnx --local --batches 1,2,4 -o resnet.json",
        .options = profile_options,
        .run = run_profile,
        .makes_file = true,
    },
    {
        .path = "profile",
        .arguments = "MODEL",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "the same as `profile model`",
        .details = PROFILE_DETAILS,
        .examples = "  hpctl profile llama.gguf -o profile.json",
        .options = profile_options,
        .run = run_profile,
        .makes_file = true,
    },
    {0},
};
