#include "coordinator/slices.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/works.h"
#include "planners/pipeline/slicing.h"

/* Up to how many tokens each step prepares; the last one up to the context. Cut positions are
 * coarser for larger lengths. */
enum {
    STEPS = 3,
    STEP_0_TOKENS = 2048,
    STEP_1_TOKENS = 16384,
    RETRY_MS = 5000,
    LEAST_TOKENS = 32,
    EQUAL_PARTS = 3
};

struct slices_step {
    struct slicing *table;         /* NULL: not prepared */
    struct planner_inputs *inputs; /* which the table reads */
    uint64_t build;
    int tokens;
};

struct slices {
    struct slices_step steps[STEPS];
    uint64_t build;  /* what is wanted: rises with every change of costs */
    uint64_t stages; /* of which it is */
    uint64_t generation,
        complete; /* when it was looked at last; the build of which all is prepared */
    uint64_t retry_ns;
    struct slices_job *job; /* on its way */
};

struct slices_job {
    struct coord_work work;
    struct coord *core;
    uint64_t deployment, build, seconds_ns;
    int step, context;
    struct planner_inputs *inputs;
    struct arena arena;
    struct pipeline_request request;
    struct plan_pipeline plan;
    struct slicing *table;
    struct err error;
};

/* ---- life ---- */

static void step_free(struct slices_step *s)
{
    slicing_destroy(&s->table);
    planner_inputs_release(&s->inputs);
    *s = (struct slices_step){0};
}

static void job_free(struct slices_job *j)
{
    slicing_destroy(&j->table);
    planner_inputs_release(&j->inputs);
    arena_free(&j->arena);
    free(j);
}

static void job_abandon(struct slices *s)
{
    if (s->job)
        atomic_store(&s->job->work.canceled, true);
    s->job = NULL;
}

void slices_free(struct deployment *d)
{
    struct slices *s = d->slices;
    d->slices = NULL;
    if (!s)
        return;
    job_abandon(s);
    for (int i = 0; i < STEPS; i++)
        step_free(&s->steps[i]);
    free(s);
}

void slices_forget(struct deployment *d)
{
    if (!d->slices)
        return;
    job_abandon(d->slices);
    d->slices->build++;
}

static uint64_t stages_hash(const struct deployment *d)
{
    uint64_t hash = UINT64_C(1469598103934665603) ^ d->context;
    for (int i = 0; i < d->n_stages; i++) {
        for (const char *p = d->stages[i].agent->name; *p; p++)
            hash = (hash ^ (uint8_t)*p) * UINT64_C(1099511628211);
        hash = (hash ^ (uint64_t)d->stages[i].end_layer) * UINT64_C(1099511628211);
    }
    return hash;
}

/* ---- the work ---- */

static void job_run(struct coord_work *w)
{
    struct slices_job *j = (struct slices_job *)w;
    if (atomic_load(&w->canceled))
        return;
    uint64_t from = env_now_ns(j->request.env);
    if (slicing_create(&j->request, &j->plan, j->context, &j->table, &j->error) < 0)
        j->table = NULL;
    j->seconds_ns = env_now_ns(j->request.env) - from;
}

static void job_take(struct deployment *d, struct slices_job *j)
{
    struct slices *s = d->slices;
    s->job = NULL;
    if (!j->table) {
        log_warn("coordinator", "slices_not_prepared", "deployment=%s tokens=%d why=\"%s\"",
                 d->name, j->context, j->error.text);
        s->retry_ns = coord_now(j->core) + coord_ms(RETRY_MS);
        return;
    }
    log_info("coordinator", "slices_prepared",
             "deployment=%s tokens=%d unit=%d bytes=%zu seconds=%.3f", d->name, j->context,
             slicing_unit(j->table), slicing_memory_bytes(j->table), (double)j->seconds_ns * 1e-9);
    step_free(&s->steps[j->step]);
    s->steps[j->step] = (struct slices_step){j->table, j->inputs, j->build, j->context};
    j->table = NULL;
    j->inputs = NULL;
}

static void job_done(struct coord_work *w, bool dropped)
{
    struct slices_job *j = (struct slices_job *)w;
    struct deployment *d = dropped ? NULL : deployment_of_id(j->core, j->deployment);
    if (!dropped)
        j->core->n_planning--;
    if (d && d->slices && d->slices->job == j)
        job_take(d, j);
    job_free(j);
}

/* Its stages as a plan over the devices of the inputs; false while an agent is not here. */
static bool job_plan(struct slices_job *j, const struct deployment *d)
{
    j->plan.n_stages = d->n_stages;
    j->plan.stages = arena_alloc(&j->arena, (size_t)d->n_stages, sizeof *j->plan.stages);
    for (int i = 0; j->plan.stages && i < d->n_stages; i++) {
        int device =
            planner_inputs_device(j->inputs, d->stages[i].agent->name, d->stages[i].device);
        if (device < 0)
            return false;
        j->plan.stages[i] = (struct plan_stage){.device = j->inputs->cluster.devices[device].id,
                                                .first_layer = d->stages[i].first_layer,
                                                .end_layer = d->stages[i].end_layer};
    }
    /* Prompts as long as the plan's begin with the plan's own slices. */
    int n = d->plan ? d->plan->n_slices : 0;
    j->plan.slices = n ? arena_memdup(&j->arena, d->plan->slices, (size_t)n * sizeof(int)) : NULL;
    j->plan.n_slices = j->plan.slices ? n : 0;
    return j->plan.stages != NULL;
}

static bool job_start(struct coord *c, struct deployment *d, int step, int context)
{
    struct slices_job *j = calloc(1, sizeof *j);
    struct err e = {0};
    if (!j)
        return false;
    j->work.run = job_run;
    j->work.done = job_done;
    j->core = c;
    j->deployment = d->id;
    j->build = d->slices->build;
    j->step = step;
    j->context = context;
    if (planner_inputs_get(c, d, &j->inputs, &e) < 0 || !job_plan(j, d) ||
        works_add(c, &j->work, NULL, &e) < 0) {
        job_free(j);
        return false;
    }
    j->request = (struct pipeline_request){.cluster = &j->inputs->cluster,
                                           .profile = &j->inputs->profile,
                                           .tokens = context,
                                           .seed = d->id,
                                           .max_slice = (int)d->max_batch_tokens,
                                           .effort = 0.1,
                                           .env = c->env};
    c->n_planning++;
    d->slices->job = j;
    return true;
}

/* ---- what is wanted ---- */

/* Tokens that a step prepares; 0: there is no such step. */
static int step_tokens(const struct deployment *d, int step)
{
    static const int most[STEPS] = {STEP_0_TOKENS, STEP_1_TOKENS, INT32_MAX};
    uint64_t before = step ? (uint64_t)most[step - 1] : 0;
    if (d->context <= before)
        return 0;
    return (int)(d->context < (uint64_t)most[step] ? d->context : (uint64_t)most[step]);
}

static bool is_wanted(const struct deployment *d)
{
    return d->n_stages > 1 && d->spec.slice == 0 &&
           (deployment_prepares(d) || deployment_serves(d)) && d->model->open;
}

void slices_advance(struct coord *c, struct deployment *d)
{
    const struct slices *ready = d->slices;
    if (ready && ready->generation == d->generation && ready->complete == ready->build &&
        ready->build)
        return;
    if (!is_wanted(d) || (d->slices && d->slices->job) || c->n_planning >= COORD_MAX_PLANNING)
        return;
    uint64_t stages = stages_hash(d);
    if (d->slices && d->slices->stages != stages)
        slices_free(d);
    if (!d->slices && (d->slices = calloc(1, sizeof *d->slices)) == NULL)
        return;
    struct slices *s = d->slices;
    s->stages = stages;
    s->generation = d->generation;
    s->build += s->build == 0;
    if (coord_now(c) < s->retry_ns)
        return;
    for (int i = 0; i < STEPS; i++) {
        int tokens = step_tokens(d, i);
        if (tokens == 0 || s->steps[i].build == s->build)
            continue;
        if (!job_start(c, d, i, tokens))
            s->retry_ns = coord_now(c) + coord_ms(RETRY_MS);
        return;
    }
    s->complete = s->build;
}

bool slices_ready(const struct deployment *d, uint32_t n)
{
    for (int i = 0; d->slices && i < STEPS; i++)
        if (d->slices->steps[i].build == d->slices->build && d->slices->steps[i].tokens >= (int)n)
            return true;
    return false;
}

/* ---- cutting ---- */

/* The finest table that reaches position n; else the one that reaches furthest; NULL: none is
 * prepared. */
static const struct slices_step *step_for(const struct deployment *d, uint32_t n)
{
    const struct slices_step *best = NULL;
    for (int i = 0; d->slices && i < STEPS; i++) {
        const struct slices_step *s = &d->slices->steps[i];
        if (s->table && s->tokens >= (int)n)
            return s;
        if (s->table)
            best = s;
    }
    return best;
}

/* Appends a slice, in pieces that a stage can run at once. */
static int slice_append(const struct deployment *d, uint32_t tokens, uint32_t *out, int count)
{
    uint32_t most = d->max_batch_tokens ? (uint32_t)d->max_batch_tokens : tokens;
    for (uint32_t piece; tokens; tokens -= piece) {
        piece = tokens < most ? tokens : most;
        out[count++] = piece;
    }
    return count;
}

static int cut_equally(const struct deployment *d, uint32_t tokens, uint32_t size, uint32_t *out,
                       int count)
{
    for (uint32_t part; tokens; tokens -= part) {
        part = size && size < tokens ? size : tokens;
        count = slice_append(d, part, out, count);
    }
    return count;
}

/* Some for each stage, so that no stage waits long for the one before. */
static uint32_t equal_size(const struct deployment *d, uint32_t n)
{
    uint32_t parts = EQUAL_PARTS * (uint32_t)d->n_stages, size = (n + parts - 1) / parts;
    return size > LEAST_TOKENS ? size : LEAST_TOKENS;
}

int slices_cut(const struct deployment *d, uint32_t n, uint32_t cached, uint32_t *out)
{
    if (n == d->spec.plan_tokens && !cached && d->spec.slice == 0 && d->spec.n_slices) {
        memcpy(out, d->spec.slices, d->spec.n_slices * sizeof *out);
        return (int)d->spec.n_slices;
    }
    if (d->spec.slice)
        return cut_equally(d, n, (uint32_t)d->spec.slice, out, 0);
    if (n <= LEAST_TOKENS || d->n_stages < 2)
        return slice_append(d, n, out, 0);
    const struct slices_step *s = step_for(d, cached + n);
    if (!s || cached >= (uint32_t)s->tokens)
        return cut_equally(d, n, equal_size(d, n), out, 0);
    struct slicing_cursor cursor;
    uint32_t room = (uint32_t)s->tokens - cached, covered = n < room ? n : room, last = 0;
    int count = 0;
    if (slicing_begin(s->table, (int)covered, (int)cached, &cursor) < 0)
        return cut_equally(d, n, equal_size(d, n), out, 0);
    for (int tokens; (tokens = slicing_next(&cursor)) > 0;) {
        count = slice_append(d, (uint32_t)tokens, out, count);
        last = (uint32_t)tokens;
    }
    uint32_t rest = n - covered, size = equal_size(d, rest);
    return cut_equally(d, rest, last > size ? last : size, out, count);
}
