/* `hpctl bench pipeline`: runs the methods of the pipeline planner for real on a paced cluster,
 * beside what was predicted and published. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/json.h"
#include "hpctl/client.h"
#include "hpctl/context.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "planners/pipeline/pipeline.h"

enum { MAX_METHODS = 8, MAX_REPEATS = 50, RECORD_PATIENCE_MS = 3000, MAX_ARGUMENTS = 16 };

static const char default_methods[] = "even,gpipe,terapipe,hpipe,exact";
static const char default_folder[] = "examples/hpipe-testbed";

struct bench_row {
    char method[32];
    double paper_s, predicted_s, measured_s; /* paper: 0 where there is none; measured: median */
    double runs_s[MAX_REPEATS];
    int stages, slices, together; /* micro-batches: so many prompts at once */
};

struct bench {
    const struct invocation *in;
    struct progress bar;
    char cluster_file[1024], profile_file[1024], model[1024], published_file[1024];
    int tokens, n_repeats;
    struct cluster cluster;
    struct profile profile;
    char dir[64]; /* of a cluster of our own */
    pid_t guard;  /* who ends it; 0 for one that runs already */
    int guard_fd;
    const char *context;
    struct client *client;
    json_t *published;
    struct bench_row rows[MAX_METHODS];
    int n_rows;
};

/* ---- other verbs of this program
 * --------------------------------------------------------------------------------------------------------
 */

/* Reads a pipe to its end. */
static void drain(int fd, struct buffer *out)
{
    char piece[4096];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            buffer_append(out, piece, (size_t)n);
}

static int verb_failed(const char *verb, int status, json_t *answer, struct err *e)
{
    const json_t *error = json_object_get(answer, "error");
    const char *code = json_string_value(json_object_get(error, "code")),
               *text = json_string_value(json_object_get(error, "message"));
    const char *hint = json_string_value(json_object_get(error, "hint"));
    err_set(e, code ? status_of_word(code) : HP_EIO, "%s: %s", verb,
            text                  ? text
            : WIFSIGNALED(status) ? "was killed"
                                  : "failed");
    return err_hint(e, "%s", hint ? hint : "");
}

/* Runs `hpctl ARGUMENTS -o json`; *result (may be NULL) is the caller's. */
static int verb_run(const char *const *arguments, json_t **result, struct err *e)
{
    const char *argv[MAX_ARGUMENTS + 4] = {"hpctl"};
    int n = 1, fds[2], status = 0;
    while (arguments[n - 1] && n <= MAX_ARGUMENTS) {
        argv[n] = arguments[n - 1];
        n++;
    }
    argv[n++] = "-o";
    argv[n] = "json";
    fflush(NULL);
    if (pipe(fds) != 0)
        return err_set(e, HP_EIO, "cannot run %s: %s", arguments[0], strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        if (!freopen("/dev/null", "w", stderr))
            _exit(126);
        execv("/proc/self/exe", (char *const *)(void *)argv);
        _exit(127);
    }
    struct buffer out = {0};
    close(fds[1]);
    drain(fds[0], &out);
    close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = 127 << 8;
    json_t *answer = out.size ? json_loadb((const char *)out.data, out.size, 0, NULL) : NULL;
    buffer_free(&out);
    int rc = status ? verb_failed(arguments[0], status, answer, e) : 0;
    if (rc == 0 && result)
        *result = json_incref(answer);
    json_decref(answer);
    return rc;
}

/* ---- the cluster
 * -----------------------------------------------------------------------------------------------------------------------------
 */

/* Whatever ends this program, the cluster ends too: a process of its own waits for that and tidies
 * up. */
static int guard_start(struct bench *b, struct err *e)
{
    int fds[2];
    char end;
    if (pipe2(fds, O_CLOEXEC) != 0 || (b->guard = fork()) < 0)
        return err_set(e, HP_EIO, "cannot watch over a cluster: %s", strerror(errno));
    if (b->guard > 0) {
        close(fds[0]);
        b->guard_fd = fds[1];
        return 0;
    }
    struct err ignored;
    static const char *const down[] = {"local", "down", "--name", "bench", NULL};
    setsid();
    close(fds[1]);
    while (read(fds[0], &end, 1) < 0 && errno == EINTR)
        ;
    verb_run(down, NULL, &ignored);
    execlp("rm", "rm", "-rf", b->dir, (char *)NULL);
    _exit(127);
}

static int cluster_up(struct bench *b, struct err *e)
{
    snprintf(b->dir, sizeof b->dir, "/tmp/hp-bench-XXXXXX");
    if (!mkdtemp(b->dir))
        return err_set(e, HP_EIO, "cannot make a folder below /tmp: %s", strerror(errno));
    char config[128], state[128];
    snprintf(config, sizeof config, "%s/config", b->dir);
    snprintf(state, sizeof state, "%s/state", b->dir);
    setenv("HP_CONFIG_DIR", config, 1); /* the user's contexts stay as they are */
    progress_show(&b->bar, "starting a paced cluster", 0, 0);
    const char *const up[] = {
        "local",         "up",    "--name", "bench", "--pace", b->cluster_file, "--profile",
        b->profile_file, "--dir", state,    NULL};
    b->context = "bench";
    int rc = guard_start(b, e);
    return rc < 0 ? rc : verb_run(up, NULL, e);
}

static void cluster_down(struct bench *b)
{
    client_close(&b->client);
    if (b->guard <= 0)
        return;
    close(b->guard_fd);
    waitpid(b->guard, NULL, 0);
}

/* ---- one method
 * ---------------------------------------------------------------------------------------------------------------------------------
 */

static int method_request(struct bench *b, const char *method, struct pipeline_request *rq,
                          struct err *e)
{
    *rq = (struct pipeline_request){
        .cluster = &b->cluster, .profile = &b->profile, .tokens = b->tokens, .brief = true};
    if (strcmp(method, "gpipe-balanced") == 0) {
        rq->method = PIPELINE_GPIPE;
        rq->partition = PIPELINE_PARTITION_BALANCED;
        return 0;
    }
    for (int m = 0; pipeline_method_names[m]; m++)
        if (strcmp(pipeline_method_names[m], method) == 0 && m != PIPELINE_TP) {
            rq->method = (enum pipeline_method)m;
            return 0;
        }
    return err_set(e, HP_EUSAGE,
                   "--methods: \"%s\" cannot be run; even, gpipe, gpipe-balanced, terapipe, hpipe "
                   "and exact can",
                   method);
}

/* Plans, and leaves the plan in a file. */
static int method_plan(struct bench *b, struct bench_row *row, const char *file, struct err *e)
{
    struct pipeline_request rq;
    struct pipeline_answer answer = {0};
    struct arena arena = {0};
    int rc = method_request(b, row->method, &rq, e);
    rc = rc < 0 ? rc : pipeline_plan_make(&rq, &arena, &answer, e);
    if (rc == 0) {
        row->predicted_s = answer.makespan_s;
        row->stages = answer.plan.n_stages;
        row->slices = answer.plan.n_slices;
        row->together = answer.plan.micro_batches > 1 ? (int)answer.plan.micro_batches : 1;
        rc = json_save(answer.document, file, e);
    }
    json_decref(answer.document);
    arena_free(&arena);
    return rc < 0 ? (err_at(e, "%s", row->method), rc) : 0;
}

static json_int_t newest(const json_t *records)
{
    json_int_t most = 0;
    for (size_t i = 0; i < json_array_size(records); i++) {
        json_int_t s = json_integer_value(json_object_get(json_array_get(records, i), "sequence"));
        most = s > most ? s : most;
    }
    return most;
}

/* The records of the latest prompts; asks until `n` of them are newer than `after`. */
static int records_get(struct bench *b, const char *name, int n, json_int_t after, json_t **out,
                       struct err *e)
{
    for (int waited = 0; waited <= RECORD_PATIENCE_MS; waited += 20) {
        json_t *d = NULL;
        int rc =
                client_get(b->client, "deployment.describe",
                           json_pack("{s:s, s:i}", "name", name, "prefills", n > 1 ? n : 1), &d, e),
            fresh = 0;
        if (rc < 0)
            return rc;
        json_t *records = json_incref(json_object_get(json_object_get(d, "prefill"), "records"));
        json_decref(d);
        for (size_t i = 0; i < json_array_size(records); i++)
            fresh +=
                json_integer_value(json_object_get(json_array_get(records, i), "sequence")) > after;
        *out = records;
        if (fresh >= n)
            return 0;
        json_decref(records);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    *out = NULL;
    return err_set(e, HP_ETIMEOUT, "%s: the agents did not tell what a prompt took", name);
}

/* From the first start to the last end of the prompts that ran together. */
static double records_span(const json_t *records, json_int_t after)
{
    double from = INFINITY, to = 0;
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *r = json_array_get(records, i);
        if (json_integer_value(json_object_get(r, "sequence")) <= after)
            continue;
        from = fmin(from, number_member(r, "at_s"));
        to = fmax(to, number_member(r, "at_s") + number_member(r, "measured_s"));
    }
    return to - from;
}

static json_t *prompt_ids(int tokens)
{
    json_t *ids = json_array();
    for (int i = 0; i < tokens; i++)
        json_array_append_new(ids, json_integer(3 + i % 200));
    return ids;
}

static int method_measure(struct bench *b, struct bench_row *row, const char *name, struct err *e)
{
    json_int_t after = 0;
    json_t *records = NULL;
    for (int i = 0; i < b->n_repeats; i++) {
        progress_show(&b->bar,
                      text_format("%s: run %d of %d, %.3g s each", row->method, i + 1, b->n_repeats,
                                  row->predicted_s),
                      0, 0);
        struct client_ask ask = {.verb = "prefill",
                                 .arguments =
                                     json_pack("{s:s, s:o, s:i}", "deployment", name, "ids",
                                               prompt_ids(b->tokens), "sequences", row->together),
                                 .patience_ms = (uint64_t)(row->predicted_s * 5000) + 60000};
        int rc = client_ask(b->client, &ask, NULL, NULL, e);
        rc = rc < 0 ? rc : records_get(b, name, row->together, after, &records, e);
        if (rc < 0)
            return rc;
        row->runs_s[i] = records_span(records, after);
        after = newest(records);
        json_decref(records);
    }
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int method_run(struct bench *b, struct bench_row *row, struct err *e)
{
    char file[] = "/tmp/hp-plan-XXXXXX", name[64];
    struct err ignored;
    int fd = mkstemp(file);
    if (fd < 0)
        return err_set(e, HP_EIO, "cannot write below /tmp: %s", strerror(errno));
    close(fd);
    snprintf(name, sizeof name, "bench-%s", row->method);
    int rc = method_plan(b, row, file, e);
    const char *const deploy[] = {
        "deploy", b->model, "--name", name, "--plan", file, "--cluster-context", b->context, NULL};
    progress_show(&b->bar, text_format("%s: deploying", row->method), 0, 0);
    rc = rc < 0 ? rc : verb_run(deploy, NULL, e);
    unlink(file);
    if (rc < 0)
        return rc;
    rc = method_measure(b, row, name, e);
    client_get(b->client, "undeploy", json_pack("{s:s}", "name", name), NULL,
               rc < 0 ? &ignored : e);
    qsort(row->runs_s, (size_t)b->n_repeats, sizeof *row->runs_s, by_size);
    row->measured_s = (row->runs_s[(b->n_repeats - 1) / 2] + row->runs_s[b->n_repeats / 2]) / 2;
    return rc;
}

/* ---- what a person sees
 * ----------------------------------------------------------------------------------------------------------------------------
 */

static const struct bench_row *row_of(const struct bench *b, const char *method)
{
    for (int i = 0; i < b->n_rows; i++)
        if (strcmp(b->rows[i].method, method) == 0)
            return &b->rows[i];
    return NULL;
}

static const char *speedup_text(const struct bench *b, const char *over,
                                const struct bench_row *row)
{
    const struct bench_row *base = row_of(b, over);
    return base ? text_format("%.2fx", base->measured_s / row->measured_s) : "-";
}

static void print_rows(const struct bench *b)
{
    static const char *const columns[] = {"METHOD",      ">STAGES",   ">SLICES", ">PAPER",
                                          ">PREDICTED",  ">MEASURED", ">ERROR",  ">OVER BASE",
                                          ">OVER GPIPE", NULL};
    struct table *t = table_create(columns);
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->rows[i];
        const char *row[] = {r->method,
                             text_format("%d", r->stages),
                             text_format(r->together > 1 ? "%d prompts" : "%d",
                                         r->together > 1 ? r->together : r->slices),
                             r->paper_s > 0 ? text_format("%.2f s", r->paper_s) : "-",
                             text_format("%.3f s", r->predicted_s),
                             text_format("%.3f s", r->measured_s),
                             text_format("%+.1f %%", (r->measured_s / r->predicted_s - 1) * 100),
                             speedup_text(b, "even", r),
                             speedup_text(b, "gpipe", r)};
        table_row(t, row);
    }
    table_print(&t, NULL);
    printf("\n%d tokens at batch %g, median of %d; measured from the first stage's start to the "
           "last one's end\n",
           b->tokens, b->profile.batch, b->n_repeats);
}

static json_t *rows_json(const struct bench *b)
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

/* ---- the verb
 * -------------------------------------------------------------------------------------------------------------------------------------------
 */

/* The option's file, else the one of this name beside the cluster file. */
static void file_beside(const struct bench *b, const char *option, const char *name, char *out,
                        size_t size)
{
    const char *given = invocation_option(b->in, option), *slash = strrchr(b->cluster_file, '/');
    if (given)
        snprintf(out, size, "%s", given);
    else
        snprintf(out, size, "%.*s%s", slash ? (int)(slash - b->cluster_file + 1) : 0,
                 b->cluster_file, name);
}

static int read_options(struct bench *b, struct err *e)
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
    if (tokens < 1 || tokens > 1 << 20 || repeats < 1 || repeats > MAX_REPEATS)
        return err_set(e, HP_EUSAGE, "--tokens is 1 to %d, --repeat 1 to %d", 1 << 20, MAX_REPEATS);
    b->tokens = (int)tokens;
    b->n_repeats = (int)repeats;
    if (access(b->model, R_OK) == 0)
        return 0;
    err_set(e, HP_ENOENT,
            "%s: no such model; it stands in for the profile's, so it has as many layers",
            b->model);
    return err_hint(e, "examples/hpipe-testbed/make_toy.py makes one; --model says where it is");
}

static int read_methods(struct bench *b, struct err *e)
{
    char list[256], *save = NULL;
    const char *slash = strrchr(b->profile_file, '/'), *stem = slash ? slash + 1 : b->profile_file;
    char key[64];
    struct pipeline_request ignored;
    snprintf(list, sizeof list, "%s", invocation_option_or(b->in, "methods", default_methods));
    snprintf(key, sizeof key, "%.*s", (int)strcspn(stem, "."), stem);
    for (char *m = strtok_r(list, ",", &save); m; m = strtok_r(NULL, ",", &save)) {
        if (b->n_rows == MAX_METHODS)
            return err_set(e, HP_EUSAGE, "--methods: %d are the limit", MAX_METHODS);
        int rc = method_request(b, m, &ignored, e);
        if (rc < 0)
            return rc;
        struct bench_row *row = &b->rows[b->n_rows++];
        snprintf(row->method, sizeof row->method, "%s", m);
        row->paper_s = json_number_value(json_object_get(json_object_get(b->published, key), m));
    }
    return b->n_rows ? 0 : err_set(e, HP_EUSAGE, "--methods names none");
}

static int run_methods(struct bench *b, struct err *e)
{
    int rc = b->context ? 0 : cluster_up(b, e);
    rc = rc < 0 ? rc : client_open(b->context, &b->client, e);
    for (int i = 0; rc == 0 && i < b->n_rows; i++)
        rc = method_run(b, &b->rows[i], e);
    cluster_down(b);
    return rc;
}

static int run_bench_pipeline(struct invocation *in, struct err *e)
{
    static struct bench b;
    struct json_at ignored;
    b = (struct bench){.in = in};
    progress_init(&b.bar, in->json);
    int rc = read_options(&b, e);
    rc = rc < 0 ? rc : cluster_load(b.cluster_file, &b.cluster, e);
    rc = rc < 0 ? rc : profile_load(b.profile_file, &b.profile, e);
    if (rc == 0 && (access(b.published_file, R_OK) == 0 || invocation_option(in, "published")))
        rc = json_load_at(b.published_file, &b.published, &ignored, e);
    rc = rc < 0 ? rc : read_methods(&b, e);
    rc = rc < 0 ? rc : run_methods(&b, e);
    progress_end(&b.bar);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, rows_json(&b), e);
    if (rc == 0 && !in->json)
        print_rows(&b);
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
    {"model", "M",
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
