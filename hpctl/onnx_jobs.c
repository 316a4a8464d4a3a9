#include "hpctl/onnx_jobs.h"

#include <stdlib.h>
#include <time.h>

#include "agent/engine/network/network_engine.h"
#include "common/env.h"

enum { WAITING_BYTES = 512 << 20 }; /* of bodies that wait for their turn */

/* A request from its body to its answer. */
struct onnx_job {
    struct onnx_jobs *jobs;
    struct http_exchange *x; /* NULL: the client is gone */
    struct onnx_job *next;
    struct buffer body, answer;
    size_t body_bytes, json_bytes, answer_json_bytes;
    uint64_t came_ns, taken_ns; /* the loop's; taken: from the queue */
    struct run_guess guess;     /* of its run, as of then */
    uint64_t begun_ns, read_ns, computed_ns, written_ns;
    uint64_t samples;
    int status;
    struct err error;
};

/* ---- deadlines ---- */

/* HP_ETIMEOUT: having spent so much, it is not done within the limit. A guess that alone is above
 * the limit must be sure: else it would never be measured again. */
static int deadline_check(struct onnx_job *j, uint64_t spent_ns, uint64_t limit_ns,
                          const char *limit_name)
{
    bool is_late = spent_ns + j->guess.ns > limit_ns;
    if (limit_ns == 0 || !is_late || (j->guess.ns > limit_ns && !j->guess.is_sure))
        return 0;
    return err_set(&j->error, HP_ETIMEOUT,
                   "too late: %.1f ms of waiting and about %.1f ms of running are more than the "
                   "%.1f ms of %s",
                   (double)spent_ns / 1e6, (double)j->guess.ns / 1e6, (double)limit_ns / 1e6,
                   limit_name);
}

static int timeout_check(struct onnx_job *j, const struct infer_request *r)
{
    uint64_t most_us = UINT64_MAX / 4000, us = r->timeout_us < most_us ? r->timeout_us : most_us;
    return deadline_check(j, j->begun_ns - j->came_ns, us * 1000, "the request's timeout");
}

/* ---- the worker ---- */

static void outputs_free(struct onnx_jobs *s)
{
    for (int i = 0; s->outputs && i < s->model->n_outputs; i++)
        ndarray_free(&s->outputs[i]);
}

static void answer_make(struct onnx_job *j, const struct infer_request *r)
{
    j->answer_json_bytes = infer_answer_write(j->jobs->model, r, j->jobs->outputs, &j->answer);
    j->written_ns = env_now_ns(&env_real);
}

static void job_run(struct onnx_job *j)
{
    struct onnx_jobs *s = j->jobs;
    struct infer_request r = {0};
    const struct ndarray **inputs = calloc((size_t)s->model->n_inputs + 1, sizeof *inputs);
    j->begun_ns = env_now_ns(&env_real);
    j->status = inputs ? infer_request_read(s->model, &j->body, j->json_bytes, &r, &j->error)
                       : err_no_memory(&j->error, "a request");
    j->read_ns = env_now_ns(&env_real);
    j->status = j->status < 0 ? j->status : timeout_check(j, &r);
    for (int i = 0; j->status == 0 && i < r.n_inputs; i++)
        inputs[i] = &r.inputs[i];
    if (j->status == 0 && r.n_inputs > 0 && s->model->inputs[0].n_dims > 0 &&
        s->model->inputs[0].dims[0] < 0)
        j->samples = (uint64_t)r.inputs[0].dims[0];
    if (j->status == 0)
        j->status = network_engine_run(s->engine, 1, inputs, s->outputs, &j->error);
    j->computed_ns = env_now_ns(&env_real);
    if (j->status == 0)
        answer_make(j, &r);
    infer_request_free(&r);
    outputs_free(s);
    free(inputs);
}

static void on_work(uv_work_t *work)
{
    job_run(((struct onnx_jobs *)work->data)->running);
}

/* ---- the loop ---- */

static void job_free(struct onnx_job *j)
{
    buffer_free(&j->body);
    buffer_free(&j->answer);
    free(j);
}

static void count_add(struct kserve_count *c, uint64_t from_ns, uint64_t to_ns)
{
    c->count++;
    c->ns += to_ns - from_ns;
}

static void job_count(struct kserve_statistics *s, const struct onnx_job *j)
{
    if (j->status < 0) {
        count_add(&s->fail, j->came_ns, j->computed_ns);
        return;
    }
    count_add(&s->success, j->came_ns, j->written_ns);
    count_add(&s->queue, j->came_ns, j->begun_ns);
    count_add(&s->input, j->begun_ns, j->read_ns);
    count_add(&s->compute, j->read_ns, j->computed_ns);
    count_add(&s->output, j->computed_ns, j->written_ns);
    s->inferences += j->samples;
    s->last_ms = (uint64_t)time(NULL) * 1000;
}

/* Of a request that was not run: with the error that it has. */
static void job_refuse(struct onnx_jobs *s, struct onnx_job *j)
{
    count_add(&s->statistics.fail, j->came_ns, env_now_ns(&env_real));
    kserve_fail(j->x, &j->error, 1);
    job_free(j);
}

static void worker_start(struct onnx_jobs *s);

static void on_worked(uv_work_t *work, int status)
{
    struct onnx_jobs *s = work->data;
    struct onnx_job *j = s->running;
    s->running = NULL;
    if (status == 0)
        job_count(&s->statistics, j);
    if (status == 0 && j->status == 0)
        run_times_note(&s->times, j->body_bytes, j->written_ns - j->begun_ns, j->written_ns);
    else if (status < 0)
        j->status = err_set(&j->error, HP_ECANCELED, "the server is stopping");
    if (j->x && j->status < 0)
        kserve_fail(j->x, &j->error, 1);
    else if (j->x)
        kserve_answer(j->x, &j->answer, j->answer_json_bytes);
    job_free(j);
    worker_start(s);
}

static void worker_start(struct onnx_jobs *s)
{
    while (!s->running && s->first && !s->is_stopping) {
        struct onnx_job *j = s->first;
        s->first = j->next;
        s->waiting--;
        s->waiting_bytes -= j->body_bytes;
        s->waiting_ns -= j->guess.ns;
        j->taken_ns = env_now_ns(&env_real);
        j->guess = run_times_guess(&s->times, j->body_bytes, j->taken_ns);
        if (!j->x) { /* nobody waits for it any more */
            job_free(j);
            continue;
        }
        if (deadline_check(j, j->taken_ns - j->came_ns, s->slo_ns, "--slo") < 0) {
            job_refuse(s, j);
            continue;
        }
        s->running = j;
        atomic_store(&s->gives_up, false);
        s->work.data = s;
        if (uv_queue_work(s->loop, &s->work, on_work, on_worked) < 0) {
            s->running = NULL;
            kserve_error(j->x, 503, "no thread took the request");
            job_free(j);
        }
    }
}

static void on_gone(void *ctx)
{
    struct onnx_job *j = ctx;
    j->x = NULL;
    if (j->jobs->running == j) {
        atomic_store(&j->jobs->gives_up, true);
    } else {
        j->jobs->waiting_ns -= j->guess.ns;
        j->guess.ns = 0;
    }
}

/* How long a request that comes now waits for those before it. */
static uint64_t waiting_guess(const struct onnx_jobs *s, uint64_t now_ns)
{
    const struct onnx_job *r = s->running;
    uint64_t end_ns = r ? r->taken_ns + r->guess.ns : 0;
    return s->waiting_ns + (end_ns > now_ns ? end_ns - now_ns : 0);
}

void onnx_jobs_take(struct onnx_jobs *s, struct http_exchange *x, size_t json_bytes)
{
    struct onnx_job *j = calloc(1, sizeof *j);
    if (!j || s->is_stopping || s->waiting >= s->most_waiting ||
        (s->waiting > 0 && s->waiting_bytes > WAITING_BYTES)) {
        http_header(x, "Retry-After", "1");
        kserve_error(x, 503, j ? "too many requests wait: try again later" : "no memory");
        free(j);
        return;
    }
    *j = (struct onnx_job){.jobs = s,
                           .x = x,
                           .body = http_take_body(x),
                           .json_bytes = json_bytes,
                           .samples = 1,
                           .came_ns = env_now_ns(&env_real)};
    j->body_bytes = j->body.size;
    j->guess = run_times_guess(&s->times, j->body_bytes, j->came_ns);
    if (deadline_check(j, waiting_guess(s, j->came_ns), s->slo_ns, "--slo") < 0) {
        job_refuse(s, j);
        return;
    }
    http_on_gone(x, on_gone, j);
    if (s->first)
        s->last->next = j;
    else
        s->first = j;
    s->last = j;
    s->waiting++;
    s->waiting_bytes += j->body_bytes;
    s->waiting_ns += j->guess.ns;
    worker_start(s);
}

void onnx_jobs_stop(struct onnx_jobs *s)
{
    s->is_stopping = true;
    while (s->first) {
        struct onnx_job *j = s->first;
        s->first = j->next;
        if (j->x)
            kserve_error(j->x, 503, "the server is stopping");
        job_free(j);
    }
}
