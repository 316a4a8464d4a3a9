#include "hpctl/bench_run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/doubles.h"
#include "common/json.h"
#include "hpctl/shown.h"
#include "hpctl/verb_run.h"

enum { RECORD_PATIENCE_MS = 3000 };

/* ---- the cluster ---- */

/* Whatever ends this program, the cluster ends too: a process of its own waits for that and tidies
 * up. */
static int guard_start(struct bench_job *b, struct err *e)
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

static int cluster_up(struct bench_job *b, struct err *e)
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
    return rc == 0 ? verb_run(up, NULL, e) : rc;
}

static void cluster_down(struct bench_job *b)
{
    client_close(&b->client);
    if (b->guard <= 0)
        return;
    close(b->guard_fd);
    waitpid(b->guard, NULL, 0);
}

/* ---- one method ---- */

int bench_method_request(struct bench_job *b, const char *method, struct pipeline_request *rq,
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
static int method_plan(struct bench_job *b, struct bench_row *row, const char *file, struct err *e)
{
    struct pipeline_request rq;
    struct pipeline_answer answer = {0};
    struct arena arena = {0};
    int rc = bench_method_request(b, row->method, &rq, e);
    if (rc == 0)
        rc = pipeline_plan_make(&rq, &arena, &answer, e);
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

static json_int_t records_newest(const json_t *records)
{
    json_int_t most = 0;
    for (size_t i = 0; i < json_array_size(records); i++) {
        json_int_t s = json_integer_value(json_object_get(json_array_get(records, i), "sequence"));
        most = s > most ? s : most;
    }
    return most;
}

/* The records of the latest prompts; asks until `n` of them are newer than `after`. */
static int records_get(struct bench_job *b, const char *name, int n, json_int_t after, json_t **out,
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

static int method_measure(struct bench_job *b, struct bench_row *row, const char *name,
                          struct err *e)
{
    json_int_t after = 0;
    json_t *records = NULL;
    for (int i = 0; i < b->n_repeats; i++) {
        progress_show(&b->bar,
                      shown_of("%s: run %d of %d, %.3g s each", row->method, i + 1, b->n_repeats,
                               row->predicted_s)
                          .s,
                      0, 0);
        struct client_ask ask = {.verb = "prefill",
                                 .arguments =
                                     json_pack("{s:s, s:o, s:i}", "deployment", name, "ids",
                                               prompt_ids(b->tokens), "sequences", row->together),
                                 .patience_ms = (uint64_t)(row->predicted_s * 5000) + 60000};
        int rc = client_ask(b->client, &ask, NULL, NULL, e);
        if (rc == 0)
            rc = records_get(b, name, row->together, after, &records, e);
        if (rc < 0)
            return rc;
        row->runs_s[i] = records_span(records, after);
        after = records_newest(records);
        json_decref(records);
    }
    return 0;
}

static int method_run(struct bench_job *b, struct bench_row *row, struct err *e)
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
    progress_show(&b->bar, shown_of("%s: deploying", row->method).s, 0, 0);
    if (rc == 0)
        rc = verb_run(deploy, NULL, e);
    unlink(file);
    if (rc < 0)
        return rc;
    rc = method_measure(b, row, name, e);
    client_get(b->client, "undeploy", json_pack("{s:s}", "name", name), NULL,
               rc < 0 ? &ignored : e);
    doubles_sort(row->runs_s, (size_t)b->n_repeats);
    row->measured_s = doubles_median(row->runs_s, (size_t)b->n_repeats);
    return rc;
}

int bench_run(struct bench_job *b, struct err *e)
{
    int rc = b->context ? 0 : cluster_up(b, e);
    if (rc == 0)
        rc = client_open(b->context, &b->client, e);
    for (int i = 0; rc == 0 && i < b->n_rows; i++)
        rc = method_run(b, &b->rows[i], e);
    cluster_down(b);
    return rc;
}
