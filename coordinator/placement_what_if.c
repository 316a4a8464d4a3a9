#include "coordinator/placement_what_if.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/placement_int.h"
#include "coordinator/works.h"

struct what_if {
    struct coord_work work; /* first */
    struct placement_job *job;
    struct request_what_if asked; /* its names point into `texts` */
    char texts[];
};

/* ---- what is said ---- */

static json_t *forecast_json(const struct placement_forecast *f)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "ttft_s", f->ttft_s, "tpot_s", f->tpot_s,
                     "tokens_per_s", f->tokens_per_s, "requests_per_s", f->requests_per_s);
}

static json_t *row_json(const double *values, int n)
{
    json_t *row = json_array();
    for (int k = 0; k < n; k++)
        json_array_append_new(row, json_real(values[k]));
    return row;
}

/* When each slice arrives at a stage and runs there, as plan_vs_actual.h says it of prompts. */
static json_t *times_json(const struct pipeline_schedule *s, int stage)
{
    int n = s->n_slices;
    json_t *arrive = json_array();
    for (int k = 0; k < n; k++)
        json_array_append_new(
            arrive,
            json_real(stage ? s->hop_end_s[(stage - 1) * n + k] + s->latency_s[stage - 1] : 0));
    return json_pack("{s:o, s:o, s:o}", "arrive_s", arrive, "start_s",
                     row_json(s->start_s + stage * n, n), "end_s",
                     row_json(s->end_s + stage * n, n));
}

static json_t *timeline_json(const struct pipeline_answer *a)
{
    json_t *stages = json_array();
    for (int j = 0; j < a->schedule.n_stages; j++)
        json_array_append_new(stages, times_json(&a->schedule, j));
    return stages;
}

static json_t *answer_json(const struct what_if *w)
{
    const struct placement_job *p = w->job;
    return json_pack("{s:s, s:s, s:i, s:f, s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:O}", "deployment",
                     w->asked.deployment, "without", w->asked.without, "prompt_tokens", p->tokens,
                     "answer_tokens", p->answer_tokens, "context", (json_int_t)p->context,
                     "sequences", (json_int_t)p->sequences, "wire", frame_dtype_word(p->wire),
                     "wire_why", p->wire_why[0] ? p->wire_why : "as was asked", "before",
                     p->n_own ? forecast_json(&p->before) : json_null(), "after",
                     forecast_json(&p->after), "timeline", timeline_json(&p->answer), "plan",
                     p->answer.document);
}

/* ---- the work, there and back ---- */

static void what_if_free(struct what_if *w)
{
    if (w->job)
        placing_free(w->job);
    free(w);
}

static void what_if_run(struct coord_work *work)
{
    placing_search(((struct what_if *)work)->job);
}

static void what_if_done(struct coord_work *work, bool dropped)
{
    struct what_if *w = (struct what_if *)work;
    struct placement_job *p = w->job;
    struct err why = p->error;
    char *text = NULL;
    if (!dropped)
        p->core->n_planning--;
    if (dropped)
        err_set(&why, HP_ECANCELED, "the coordinator is stopping");
    if (!dropped && p->status == 0) {
        json_t *answer = answer_json(w);
        text = answer ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
        json_decref(answer);
        if (!text)
            err_set(&why, HP_ENOMEM, "no memory for a plan");
    }
    w->asked.done(w->asked.ctx, text, text ? strlen(text) : 0, text ? NULL : &why);
    free(text);
    what_if_free(w);
}

/* ---- asking ---- */

static struct what_if *what_if_create(const struct request_what_if *asked)
{
    size_t n = strlen(asked->deployment) + 1, m = strlen(asked->without) + 1;
    struct what_if *w = calloc(1, sizeof *w + n + m);
    if (!w)
        return NULL;
    w->asked = *asked;
    w->asked.deployment = memcpy(w->texts, asked->deployment, n);
    w->asked.without = memcpy(w->texts + n, asked->without, m);
    w->work.run = what_if_run;
    w->work.done = what_if_done;
    return w;
}

int placement_what_if(struct coord *c, const struct request_what_if *asked, struct err *e)
{
    struct deployment *d = deployment_find(c, asked->deployment);
    if (!d || !deployment_has_face(d))
        return deployment_missing(c, asked->deployment, e);
    if (c->n_planning >= COORD_MAX_PLANNING)
        return err_set(e, HP_EBUSY, "%d plans are being made: try again in a moment",
                       COORD_MAX_PLANNING);
    struct what_if *w = what_if_create(asked);
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    int rc = placing_create(c, d, true, &w->job, e);
    rc = rc < 0 ? rc : placing_devices_leave_out(w->job, asked->without, e);
    rc = rc < 0 ? rc : works_add(c, &w->work, NULL, e);
    if (rc < 0) {
        what_if_free(w);
        return rc;
    }
    c->n_planning++;
    return 0;
}
