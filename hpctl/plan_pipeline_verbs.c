/* `hpctl plan pipeline`: where the layers of a model go, and how a prompt is cut. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/experts.h"
#include "hpctl/plan_experts.h"
#include "hpctl/plan_report.h"
#include "hpctl/plan_wire.h"
#include "hpctl/shown.h"
#include "hpctl/timeline_files.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"
#include "planners/pipeline/apart.h"
#include "planners/pipeline/picture.h"
#include "planners/pipeline/pipeline.h"

static const struct command_option pipeline_options[] = {
    {"cluster", "C.json", "the devices and links (hp-cluster/1)", 0},
    {"profile", "P.json", "what the model costs on each kind of device (hp-profile/1)", 0},
    {"tokens", "N", "tokens of each prompt", 0},
    {"batch", "B", "prompts that go together (default: the profile's)", 0},
    {"unit", "U",
     "slices are multiples of U tokens (default 16, or the useful slice of the profile, in whole "
     "steps of it)",
     0},
    {"method", "M", "exact (default), hpipe, even, gpipe, terapipe or tp", 0},
    {"objective", "O", "latency (default), throughput or energy", 0},
    {"partition", "even|balanced", "gpipe: how layers are shared out (default even)", 0},
    {"micro-batches", "N", "gpipe, tp: parts of the batch (default: one a prompt)", 0},
    {"devices", "A,B,...", "one stage on each of these devices (node/device), in this order", 0},
    {"context", "N", "keep room for the KV cache of N tokens (default: --tokens)", 0},
    {"sequences", "N", "... of each of N sequences (default: the batch)", 0},
    {"cached", "N", "tokens before the prompt whose KV cache is there already (default 0)", 0},
    {"decode-tokens", "N",
     "tokens that each request makes after its prompt, for --objective throughput (default 0)", 0},
    {"prefill", "auto",
     "say whether prompts should be read by some devices for the others, which answer, and why", 0},
    {"ttft", "TIME", "with --prefill: time to the first token that is to be kept", 0},
    {"tpot", "TIME", "with --prefill: time per token that is to be kept", 0},
    {"wire", "f32|f16|bf16|q8",
     "as what rows cross between stages (default f32); the plan says it, and deploy --plan does so",
     0},
    {"expert-groups", "N",
     "layers are those of the mixture with each block's experts in N groups (default: in one, or "
     "in "
     "as many as let a plan fit); the plan says it, and deploy --plan does so",
     0},
    {"effort", "X", "exact: X times the usual search (default 1)", 0},
    {"seed", "N", "of the search's random steps (default 0)", 0},
    {"svg", "FILE", "draw the schedule", 0},
    {"html", "FILE", "a report for a browser: plan, picture, what else was weighed", 0},
    {"trace", "FILE", "the schedule as a Chrome trace (chrome://tracing, Perfetto)", 0},
    {0},
};

/* ---- reading the command line ---- */

static int int_option(const struct invocation *in, const char *name, int fallback, int *out,
                      struct err *e)
{
    uint64_t v;
    int rc = invocation_u64(in, name, (uint64_t)fallback, &v, e);
    if (rc == 0 && v > 1 << 30)
        return err_set(e, HP_EUSAGE, "--%s: %llu is too large", name, (unsigned long long)v);
    *out = (int)v;
    return rc;
}

/* "a/gpu0,b/gpu1": indices of the cluster's devices. A node's name alone stands for its first
 * device. */
static int read_devices(const char *text, const struct cluster *c, struct arena *arena,
                        struct pipeline_request *rq, struct err *e)
{
    char *list = arena_strdup(arena, text), *save = NULL;
    int *devices = arena_alloc(arena, strlen(text) + 1, sizeof *devices);
    if (!list || !devices)
        return err_no_memory(e, "reading --devices");
    for (char *id = strtok_r(list, ",", &save); id; id = strtok_r(NULL, ",", &save)) {
        int d = cluster_find_device(c, id), node = cluster_find_node(c, id);
        if (d < 0 && node >= 0 && c->nodes[node].n_devices > 0)
            d = c->nodes[node].first_device;
        if (d < 0)
            return err_set(e, HP_ENOENT, "--devices: the cluster has no device \"%s\"", id);
        devices[rq->n_devices++] = d;
    }
    if (rq->n_devices == 0)
        return err_set(e, HP_EUSAGE, "--devices names no device");
    rq->devices = devices;
    return 0;
}

static int read_numbers(const struct invocation *in, struct pipeline_request *rq, struct err *e)
{
    const char *tokens;
    int rc;
    if ((rc = invocation_required(in, "tokens", &tokens, e)) < 0 ||
        (rc = int_option(in, "tokens", 0, &rq->tokens, e)) < 0 ||
        (rc = invocation_number(in, "batch", 0, &rq->batch, e)) < 0 ||
        (rc = int_option(in, "unit", 0, &rq->unit, e)) < 0 ||
        (rc = int_option(in, "micro-batches", 0, &rq->micro_batches, e)) < 0 ||
        (rc = invocation_number(in, "context", 0, &rq->context_tokens, e)) < 0 ||
        (rc = invocation_number(in, "sequences", 0, &rq->sequences, e)) < 0 ||
        (rc = int_option(in, "cached", 0, &rq->cached_tokens, e)) < 0 ||
        (rc = int_option(in, "decode-tokens", 0, &rq->decode_tokens, e)) < 0 ||
        (rc = invocation_number(in, "effort", 1, &rq->effort, e)) < 0 ||
        (rc = invocation_u64(in, "seed", 0, &rq->seed, e)) < 0)
        return rc;
    if (rq->tokens < 1)
        return err_set(e, HP_EUSAGE, "--tokens: a prompt has at least 1 token");
    if (invocation_option(in, "unit") && rq->unit < 1)
        return err_set(e, HP_EUSAGE, "--unit: slices are multiples of at least 1 token");
    if (invocation_option(in, "batch") && rq->batch <= 0)
        return err_set(e, HP_EUSAGE, "--batch: %g is not above 0", rq->batch);
    return 0;
}

static int read_words(const struct invocation *in, struct pipeline_request *rq, struct err *e)
{
    int method, objective, partition, rc;
    if ((rc = invocation_choice(in, "method", pipeline_method_names, PIPELINE_EXACT, &method, e)) <
            0 ||
        (rc = invocation_choice(in, "objective", pipeline_objective_names, PIPELINE_LATENCY,
                                &objective, e)) < 0 ||
        (rc = invocation_choice(in, "partition", pipeline_partition_names, PIPELINE_PARTITION_EVEN,
                                &partition, e)) < 0)
        return rc;
    rq->method = (enum pipeline_method)method;
    rq->objective = (enum pipeline_objective)objective;
    rq->partition = (enum pipeline_partition)partition;
    return 0;
}

/* ---- prompts read by devices of their own ---- */

/* What `deploy --prefill auto` would weigh; said in the plan's document. */
static int apart_add(const struct invocation *in, const struct pipeline_request *rq,
                     struct arena *arena, struct pipeline_answer *a, struct err *e)
{
    static const char *const words[] = {"auto", NULL};
    struct apart_request ask = {
        .base = rq, .together = &a->plan, .answer_tokens = rq->decode_tokens};
    struct apart_answer found;
    int which, rc;
    if ((rc = invocation_choice(in, "prefill", words, -1, &which, e)) < 0 ||
        (rc = invocation_duration(in, "ttft", 0, &ask.ttft_s, e)) < 0 ||
        (rc = invocation_duration(in, "tpot", 0, &ask.tpot_s, e)) < 0)
        return rc;
    if (which < 0 && (ask.ttft_s > 0 || ask.tpot_s > 0))
        return err_set(e, HP_EUSAGE, "--ttft and --tpot go with --prefill auto");
    if (which < 0)
        return 0;
    if (rq->method == PIPELINE_TP || rq->method == PIPELINE_GPIPE)
        return err_set(e, HP_EUSAGE, "--prefill auto weighs plans in slices: not with --method %s",
                       pipeline_method_names[rq->method]);
    if ((rc = apart_find(&ask, arena, &found, e)) < 0)
        return rc;
    json_decref(found.decode.document);
    json_t *said = apart_document(&found);
    return said && json_object_set_new(a->document, "apart", said) == 0
               ? 0
               : err_no_memory(e, "a plan");
}

/* ---- what a person sees ---- */

static void print_slices(const struct plan_pipeline *p)
{
    if (p->micro_batches > 0) {
        printf("%.0f micro-batches of whole prompts\n", p->micro_batches);
        return;
    }
    printf("%d slice%s:", p->n_slices, p->n_slices == 1 ? "" : "s");
    for (int k = 0; k < p->n_slices;) {
        int run = 1;
        while (k + run < p->n_slices && p->slices[k + run] == p->slices[k])
            run++;
        if (run > 1)
            printf(" %d×%d", run, p->slices[k]);
        else
            printf(" %d", p->slices[k]);
        k += run;
    }
    printf("\n");
}

/* The shortest and longest compute of a stage's slices, in milliseconds. */
static void slice_range(const struct pipeline_schedule *s, int j, char *out, size_t size)
{
    double least = INFINITY, most = 0;
    for (int k = 0; k < s->n_slices; k++) {
        double t = s->end_s[j * s->n_slices + k] - s->start_s[j * s->n_slices + k];
        least = fmin(least, t);
        most = fmax(most, t);
    }
    if (s->n_slices == 1)
        snprintf(out, size, "%.1f ms", most * 1e3);
    else
        snprintf(out, size, "%.1f-%.1f ms", least * 1e3, most * 1e3);
}

/* All of a column in gigabytes, so that they compare; small models say what they have. */
static struct shown bytes_cell(double bytes)
{
    return bytes < 1e8 && bytes > 0 ? shown_bytes(bytes) : shown_of("%.2f GB", bytes / 1e9);
}

static void print_stages(const struct pipeline_answer *a)
{
    int width = 6;
    for (int j = 0; j < a->plan.n_stages; j++)
        width = (int)strlen(a->plan.stages[j].device) > width
                    ? (int)strlen(a->plan.stages[j].device)
                    : width;
    printf("%5s  %-*s %10s %10s %10s %16s %9s\n", "stage", width + 4, "device", "layers", "weights",
           "KV", "compute/slice", "busy");
    for (int j = 0; j < a->plan.n_stages; j++) {
        const struct plan_stage *s = &a->plan.stages[j];
        char layers[32], range[48], device[256];
        slice_range(&a->schedule, j, range, sizeof range);
        snprintf(layers, sizeof layers, "%d-%d", s->first_layer, s->end_layer - 1);
        snprintf(device, sizeof device, s->n_devices > 1 ? "%.200s ×%d" : "%.200s", s->device,
                 s->n_devices);
        printf("%5d  %-*s %10s %10s %10s %16s %7.1f %%\n", j, width + 4, device, layers,
               bytes_cell(a->stages[j].weight_bytes).s, bytes_cell(a->stages[j].kv_bytes).s, range,
               a->stages[j].share * 100);
    }
}

static int print_timeline(const struct pipeline_answer *a, struct err *e)
{
    struct timeline t = {0};
    struct buffer text = {0};
    bool ansi = isatty(1);
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 100;
    pipeline_picture_add(&t, &a->plan, &a->schedule, "planned", false);
    int rc = timeline_write_text(&t, width < 40 ? 40 : width > 240 ? 240 : width, ansi, &text);
    if (rc == 0)
        printf("\n%s", buffer_cstr(&text));
    buffer_free(&text);
    timeline_free(&t);
    return rc < 0 ? err_set(e, rc, "out of memory while drawing") : 0;
}

static void print_why(const json_t *document)
{
    const json_t *row;
    size_t i;
    if (json_array_size(json_object_get(document, "why")) == 0)
        return;
    printf("\nwhy:\n");
    json_array_foreach(json_object_get(document, "why"), i, row)
        printf("  %-34s %s\n", json_string_value(json_object_get(row, "candidate")),
               json_string_value(json_object_get(row, "reason")));
}

static int print_answer(const struct pipeline_request *rq, const struct pipeline_answer *a,
                        struct err *e)
{
    double value = rq->objective == PIPELINE_LATENCY  ? a->makespan_s
                   : rq->objective == PIPELINE_ENERGY ? a->energy_j
                                                      : 1 / a->prompts_per_s;
    printf("%s: time to first token %.4g s, %.4g prompts/s, %.4g J; then %.4g tokens/s (%.3g ms a "
           "step)\n",
           pipeline_method_names[rq->method], a->makespan_s, a->prompts_per_s, a->energy_j,
           a->decode_tokens_per_s, a->decode_step_s * 1e3);
    if (isfinite(a->bound))
        printf("no plan is below %.4g (%s), gap %.1f %%\n", a->bound,
               pipeline_objective_names[rq->objective],
               a->bound > 0 ? (value - a->bound) / a->bound * 100 : 0);
    print_slices(&a->plan);
    if (a->plan.expert_groups > 1)
        printf("each block's experts are %u layers of their own\n", a->plan.expert_groups);
    const json_t *apart = json_object_get(a->document, "apart");
    if (apart)
        printf("prefill auto: %s\n", json_string_value(json_object_get(apart, "why")));
    printf("\n");
    print_stages(a);
    int rc = print_timeline(a, e);
    print_why(a->document);
    return rc;
}

/* ---- files ----
 */

static int save_pictures(const struct invocation *in, const struct pipeline_request *rq,
                         const struct pipeline_answer *a, struct err *e)
{
    const char *svg = invocation_option(in, "svg"), *trace = invocation_option(in, "trace"),
               *html = invocation_option(in, "html");
    struct timeline t = {0};
    char title[200];
    snprintf(title, sizeof title, "%s, %d tokens, %s: %.4g s", rq->profile->model, rq->tokens,
             pipeline_method_names[rq->method], a->makespan_s);
    t.title = title;
    t.legend = "one colour a slice; between two stages the hop of each slice";
    pipeline_picture_add(&t, &a->plan, &a->schedule, "planned", true);
    int rc = timeline_save(&t, svg, trace, e);
    if (rc == 0 && html)
        rc = plan_report_save_timeline(html, a->document, &t, e);
    timeline_free(&t);
    return rc;
}

static int give_answer(const struct invocation *in, const struct pipeline_request *rq,
                       struct pipeline_answer *a, struct err *e)
{
    const char *wire = invocation_option(in, "wire");
    int rc;
    if (wire && json_object_set_new(a->document, "wire", json_string(wire)) < 0)
        return err_no_memory(e, "a plan");
    if ((rc = plan_add_input(a->document, invocation_option(in, "cluster"), e)) < 0 ||
        (rc = plan_add_input(a->document, invocation_option(in, "profile"), e)) < 0 ||
        (rc = save_pictures(in, rq, a, e)) < 0)
        return rc;
    for (int i = 0; i < a->n_warnings; i++)
        fprintf(stderr, "warning: %s\n", a->warnings[i]);
    if (in->json || in->output) {
        rc = invocation_print_json(in, json_incref(a->document), e);
        if (rc < 0 || in->json)
            return rc;
    }
    return print_answer(rq, a, e);
}

/* Over whole blocks or their parts, as the option says, or as fits. */
static int plan_make(const struct invocation *in, const struct pipeline_request *rq,
                     struct profile *profile, struct arena *arena, struct pipeline_answer *answer,
                     struct err *e)
{
    uint64_t asked;
    unsigned groups;
    int rc = invocation_range(in, "expert-groups", 0, 1, EXPERT_GROUPS_MAX, &asked, e);
    rc = rc < 0 ? rc : plan_experts_divide(profile, (unsigned)asked, e);
    if (rc == 0 && asked)
        rc = pipeline_plan_make(rq, arena, answer, e);
    else if (rc == 0)
        rc = plan_experts_make(rq, profile, arena, answer, &groups, e);
    groups = asked ? (unsigned)asked : groups;
    if (rc == 0 && groups > 1 &&
        json_object_set_new(answer->document, "expert_groups", json_integer(groups)) < 0)
        rc = err_no_memory(e, "a plan");
    if (rc == 0 && groups > 1)
        answer->plan.expert_groups = groups;
    return rc;
}

/* The plan, and who should read prompts for whom. */
static int plans_make(const struct invocation *in, struct pipeline_request *rq,
                      struct profile *profile, struct arena *arena, struct pipeline_answer *answer,
                      struct err *e)
{
    struct waiting *w = waiting_begin("planning", 0, in->json);
    int rc = plan_make(in, rq, profile, arena, answer, e);
    rc = rc < 0 ? rc : apart_add(in, rq, arena, answer, e);
    waiting_end(&w);
    return rc;
}

static int plan_pipeline_run(struct invocation *in, struct err *e)
{
    struct cluster cluster = {0};
    struct profile profile = {0};
    struct arena arena = {0};
    struct pipeline_answer answer = {0};
    struct pipeline_request rq = {.cluster = &cluster, .profile = &profile, .env = &env_real};
    const char *cluster_file, *profile_file, *devices = invocation_option(in, "devices");
    int rc;
    if ((rc = invocation_required(in, "cluster", &cluster_file, e)) == 0 &&
        (rc = invocation_required(in, "profile", &profile_file, e)) == 0 &&
        (rc = read_numbers(in, &rq, e)) == 0 && (rc = read_words(in, &rq, e)) == 0 &&
        (rc = cluster_load(cluster_file, &cluster, e)) == 0 &&
        (rc = profile_load(profile_file, &profile, e)) == 0 &&
        (rc = plan_wire_apply(invocation_option(in, "wire"), &profile, e)) == 0 &&
        (!devices || (rc = read_devices(devices, &cluster, &arena, &rq, e)) == 0) &&
        (rc = plans_make(in, &rq, &profile, &arena, &answer, e)) == 0)
        rc = give_answer(in, &rq, &answer, e);
    json_decref(answer.document);
    arena_free(&arena);
    profile_free(&profile);
    cluster_free(&cluster);
    return rc;
}

const struct command plan_pipeline_verbs[] = {
    {
        .path = "plan pipeline",
        .summary = "plan which devices run which layers, and how a prompt is cut into slices",
        .details = "Without -o a table and a time line; with -o FILE the plan too, with -o json "
                   "nothing else.\n"
                   "The plan's time is that of the exact flow: slices queue for stages and for "
                   "hops, which overlap.",
        .examples = "  hpctl plan pipeline --cluster testbed.cluster.json --profile "
                    "llama-7b.profile.json --tokens 2048\n"
                    "  hpctl plan pipeline --cluster C.json --profile P.json --tokens 8192 "
                    "--objective throughput -o plan.json\n"
                    "  hpctl plan pipeline --cluster C.json --profile P.json --tokens 2048 "
                    "--method hpipe --svg plan.svg",
        .options = pipeline_options,
        .run = plan_pipeline_run,
        .makes_file = true,
    },
    {0},
};
