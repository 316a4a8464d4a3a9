/* `hpctl bench pipeline`: runs the methods of the pipeline planner for real on a paced cluster,
 * beside what was predicted and published. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "hpctl/bench_run.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"

static const char default_methods[] = "even,gpipe,terapipe,hpipe,exact";
static const char default_folder[] = "examples/hpipe-testbed";

/* ---- what a person sees ---- */

static const struct bench_row *row_of(const struct bench_job *b, const char *method)
{
    for (int i = 0; i < b->n_rows; i++)
        if (strcmp(b->rows[i].method, method) == 0)
            return &b->rows[i];
    return NULL;
}

static struct shown speedup_text(const struct bench_job *b, const char *over,
                                 const struct bench_row *row)
{
    const struct bench_row *base = row_of(b, over);
    return base ? shown_of("%.2fx", base->measured_s / row->measured_s) : shown_of("-");
}

static int print_rows(const struct bench_job *b, struct err *e)
{
    static const struct table_column columns[] = {
        {"METHOD", NULL, NULL},      {">STAGES", NULL, NULL},
        {">SLICES", NULL, NULL},     {">PAPER", NULL, NULL},
        {">PREDICTED", NULL, NULL},  {">MEASURED", NULL, NULL},
        {">ERROR", NULL, NULL},      {">OVER BASE", NULL, NULL},
        {">OVER GPIPE", NULL, NULL}, {0}};
    struct table *t = table_create(columns);
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->rows[i];
        table_cell(t, "%s", r->method);
        table_cell(t, "%d", r->stages);
        table_cell(t, r->together > 1 ? "%d prompts" : "%d",
                   r->together > 1 ? r->together : r->slices);
        table_cell(t, "%s", r->paper_s > 0 ? shown_of("%.2f s", r->paper_s).s : "-");
        table_cell(t, "%.3f s", r->predicted_s);
        table_cell(t, "%.3f s", r->measured_s);
        table_cell(t, "%+.1f %%", (r->measured_s / r->predicted_s - 1) * 100);
        table_cell(t, "%s", speedup_text(b, "even", r).s);
        table_cell(t, "%s", speedup_text(b, "gpipe", r).s);
    }
    int rc = table_print(&t, NULL, e);
    printf("\n%d tokens at batch %g, median of %d; measured from the first stage's start to the "
           "last one's end\n",
           b->tokens, b->profile.batch, b->n_repeats);
    return rc;
}

static json_t *rows_json(const struct bench_job *b)
{
    json_t *rows = json_array();
    const struct bench_row *base = row_of(b, "even"), *gpipe = row_of(b, "gpipe");
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->rows[i];
        json_t *runs = json_array(), *row;
        for (int k = 0; k < b->n_repeats; k++)
            json_array_append_new(runs, json_real(r->runs_s[k]));
        row = json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o}", "method", r->method, "stages",
                        r->stages, "slices", r->slices, "prompts", r->together, "predicted_s",
                        r->predicted_s, "measured_s", r->measured_s, "error",
                        r->measured_s / r->predicted_s - 1, "runs_s", runs);
        if (r->paper_s > 0)
            json_object_set_new(row, "paper_s", json_real(r->paper_s));
        if (base)
            json_object_set_new(row, "over_base", json_real(base->measured_s / r->measured_s));
        if (gpipe)
            json_object_set_new(row, "over_gpipe", json_real(gpipe->measured_s / r->measured_s));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:s, s:i, s:f, s:i, s:o}", "cluster", b->cluster_file, "profile",
                     b->profile_file, "tokens", b->tokens, "batch", b->profile.batch, "repeats",
                     b->n_repeats, "methods", rows);
}

/* ---- the verb ---- */

/* The option's file, else the one of this name beside the cluster file. */
static void file_beside(const struct bench_job *b, const char *option, const char *name, char *out,
                        size_t size)
{
    const char *given = invocation_option(b->in, option), *slash = strrchr(b->cluster_file, '/');
    if (given)
        snprintf(out, size, "%s", given);
    else
        snprintf(out, size, "%.*s%s", slash ? (int)(slash - b->cluster_file + 1) : 0,
                 b->cluster_file, name);
}

static int read_options(struct bench_job *b, struct err *e)
{
    uint64_t tokens, repeats;
    int rc;
    char folder[64];
    snprintf(folder, sizeof folder, "%s/testbed.cluster.json", default_folder);
    snprintf(b->cluster_file, sizeof b->cluster_file, "%s",
             invocation_option_or(b->in, "cluster", folder));
    file_beside(b, "profile", "llama-7b.profile.json", b->profile_file, sizeof b->profile_file);
    file_beside(b, "model", "toy.gguf", b->model, sizeof b->model);
    file_beside(b, "published", "published.json", b->published_file, sizeof b->published_file);
    b->context = invocation_option(b->in, "context");
    if ((rc = invocation_u64(b->in, "tokens", 2048, &tokens, e)) < 0 ||
        (rc = invocation_u64(b->in, "repeat", 3, &repeats, e)) < 0)
        return rc;
    if (tokens < 1 || tokens > 1 << 20 || repeats < 1 || repeats > BENCH_MAX_REPEATS)
        return err_set(e, HP_EUSAGE, "--tokens is 1 to %d, --repeat 1 to %d", 1 << 20,
                       BENCH_MAX_REPEATS);
    b->tokens = (int)tokens;
    b->n_repeats = (int)repeats;
    if (access(b->model, R_OK) == 0)
        return 0;
    err_set(e, HP_ENOENT,
            "%s: no such model; it stands in for the profile's, so it has as many layers",
            b->model);
    return err_hint(e, "examples/hpipe-testbed/make_toy.py makes one; --model says where it is");
}

static int read_methods(struct bench_job *b, struct err *e)
{
    char list[256], *save = NULL;
    const char *slash = strrchr(b->profile_file, '/'), *stem = slash ? slash + 1 : b->profile_file;
    char key[64];
    struct pipeline_request ignored;
    snprintf(list, sizeof list, "%s", invocation_option_or(b->in, "methods", default_methods));
    snprintf(key, sizeof key, "%.*s", (int)strcspn(stem, "."), stem);
    for (char *m = strtok_r(list, ",", &save); m; m = strtok_r(NULL, ",", &save)) {
        if (b->n_rows == BENCH_MAX_METHODS)
            return err_set(e, HP_EUSAGE, "--methods: %d are the limit", BENCH_MAX_METHODS);
        int rc = bench_method_request(b, m, &ignored, e);
        if (rc < 0)
            return rc;
        struct bench_row *row = &b->rows[b->n_rows++];
        snprintf(row->method, sizeof row->method, "%s", m);
        row->paper_s = json_number_value(json_object_get(json_object_get(b->published, key), m));
    }
    return b->n_rows ? 0 : err_set(e, HP_EUSAGE, "--methods names none");
}

static int run_bench_pipeline(struct invocation *in, struct err *e)
{
    static struct bench_job b;
    struct json_at ignored;
    b = (struct bench_job){.in = in};
    progress_init(&b.bar, in->json);
    int rc = read_options(&b, e);
    if (rc == 0)
        rc = cluster_load(b.cluster_file, &b.cluster, e);
    if (rc == 0)
        rc = profile_load(b.profile_file, &b.profile, e);
    if (rc == 0 && (access(b.published_file, R_OK) == 0 || invocation_option(in, "published")))
        rc = json_load_at(b.published_file, &b.published, &ignored, e);
    if (rc == 0)
        rc = read_methods(&b, e);
    if (rc == 0)
        rc = bench_run(&b, e);
    progress_end(&b.bar);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, rows_json(&b), e);
    if (rc == 0 && !in->json)
        rc = print_rows(&b, e);
    json_decref(b.published);
    profile_free(&b.profile);
    cluster_free(&b.cluster);
    return rc;
}

static const struct command_option bench_options[] = {
    {"cluster", "C.json",
     "whom the agents stand for (default: examples/hpipe-testbed/testbed.cluster.json)", 0},
    {"profile", "P.json",
     "what the model costs there (default: llama-7b.profile.json beside the cluster file)", 0},
    {"model", "FILE",
     "a small model with as many layers as the profile (default: toy.gguf beside the cluster file)",
     0},
    {"published", "F.json",
     "published seconds by profile and method (default: published.json there, if any)", 0},
    {"tokens", "N", "of the prompt (default 2048)", 0},
    {"methods", "A,B,...",
     "of even, gpipe, gpipe-balanced, terapipe, hpipe, exact (default: all but the third)", 0},
    {"repeat", "N", "runs of each; the median counts (default 3)", 0},
    {"context", "NAME", "a paced cluster that runs already (default: starts one, and ends it)", 0},
    {0},
};

const struct command bench_verbs[] = {
    {"bench pipeline", "", 0, 0,
     "run the planner's methods for real on a paced cluster, beside what was predicted",
     "Each agent stands for one device of the cluster file: it computes no faster than the profile "
     "says, sends no faster than its links, and has its memory.",
     "  hpctl bench pipeline\n  hpctl bench pipeline --cluster C.json --profile P.json --model "
     "toy.gguf --tokens 1024 --methods hpipe,exact -o json",
     bench_options, run_bench_pipeline, true},
    {0},
};
