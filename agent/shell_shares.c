/* Owns the shares of plans of pools that the core holds: a runner for each, and for each plan where
 * its batches go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/share_load.h"
#include "agent/shell_int.h"
#include "common/vector.h"

/* ---- what runners tell; on their threads ---- */

static void share_loaded(void *ctx, const struct share_report *r)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_LOADED},
                             .error = r->error ? malloc(sizeof *m.error) : NULL};
    if (m.error)
        *m.error = *r->error;
    m.event.u.progress = (struct agent_progress){.slot = r->slot,
                                                 .ticket = r->ticket,
                                                 .status = r->status,
                                                 .warming = r->status == HP_PENDING};
    shell_event_put(ctx, &m);
}

static void batch_failed(void *ctx, const struct frame_header *h, uint32_t share, int code,
                         const char *text)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_SHARE_FAILED}, .memory = strdup(text)};
    m.event.u.share_failed.deployment = h->deployment;
    m.event.u.share_failed.generation = h->generation;
    m.event.u.share_failed.share = share;
    m.event.u.share_failed.batch = h->batch;
    m.event.u.share_failed.code = code;
    m.event.u.share_failed.text = m.memory;
    shell_event_put(ctx, &m);
}

static void batch_lost(void *ctx, const struct frame_header *h, uint32_t share, int status)
{
    batch_failed(ctx, h, share, status,
                 status == HP_EBUSY ? "too many frames wait for the link on the batch's way"
                                    : "the link on the batch's way broke");
}

/* Measurements pass whoever holds profiles of sequence models: these know their question. */
static void share_measures(void *ctx, uint64_t id, const struct share_measuring *how)
{
    char what[64];
    snprintf(what, sizeof what, "batches of %lld on 1/%d", (long long)how->batch, how->parts);
    if (how->parts == 1)
        snprintf(what, sizeof what, "batches of %lld", (long long)how->batch);
    struct queued_event m = {.event = {.kind = AGENT_EVENT_PROFILING}, .memory = strdup(what)};
    m.event.u.profiling.id = id;
    m.event.u.profiling.progress = (struct message_profile_progress){.points = (uint64_t)how->runs,
                                                                     .elapsed_s = how->elapsed_s,
                                                                     .budget_s = how->budget_s,
                                                                     .error = how->spread};
    shell_event_put(ctx, &m);
}

static void share_measured(void *ctx, uint64_t id, const char *profile, const struct err *e)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_PROFILED},
                             .memory = strdup(profile),
                             .error = e ? malloc(sizeof *m.error) : NULL};
    if (m.error)
        *m.error = *e;
    m.event.u.profiled.id = id;
    m.event.u.profiled.status = e ? e->code : m.memory ? 0 : HP_ENOMEM;
    shell_event_put(ctx, &m);
}

/* ---- plans ---- */

static struct shell_plan *plan_of(struct agent *a, uint64_t deployment, uint64_t generation)
{
    for (size_t i = 0; i < a->n_plans; i++)
        if (a->plans[i].deployment == deployment && a->plans[i].generation == generation)
            return &a->plans[i];
    return NULL;
}

static int line_make(struct agent *a, struct err *e)
{
    return a->line ? 0 : delay_line_create(a->data, &a->line, e);
}

void shell_share_connect(struct agent *a, const struct agent_action *act)
{
    uint64_t deployment = act->u.share_connect.deployment,
             generation = act->u.share_connect.generation;
    struct share_peers *peers = NULL;
    struct err e = {0};
    struct shell_plan *p = plan_of(a, deployment, generation);
    int rc = line_make(a, &e);
    struct share_peers_config c = {
        .data = a->data, .line = a->line, .paced = a->paced, .lost = batch_lost, .ctx = a};
    rc = rc < 0 ? rc : share_peers_create(&c, &act->u.share_connect.peers, &peers, &e);
    if (rc == 0 && !p && (p = vector_add(a->plans, a->n_plans, a->room_plans)) == NULL)
        rc = err_no_memory(&e, "a plan's links");
    if (rc < 0) {
        share_peers_release(peers);
        log_error("agent", "share_not_connected", "text=\"%s\"", e.text);
        return;
    }
    share_peers_release(p->peers);
    *p = (struct shell_plan){deployment, generation, peers};
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].runner && a->stages[i].deployment == deployment &&
            a->stages[i].generation == generation)
            share_runner_connect(a->stages[i].runner, peers);
}

/* A plan of which nothing is here any more needs no links. */
static void plan_tidy(struct agent *a, uint64_t deployment, uint64_t generation)
{
    struct shell_plan *p = plan_of(a, deployment, generation);
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].runner && a->stages[i].deployment == deployment &&
            a->stages[i].generation == generation)
            return;
    if (!p)
        return;
    share_peers_release(p->peers);
    *p = a->plans[--a->n_plans];
}

/* ---- runners ---- */

/* The cores of a part of a device: as many for each as there are; where there are fewer cores than
 * parts, some are shared. */
static const int *part_cores(const struct agent *a, const struct discover_device *own,
                             const struct message_share *s, int *n)
{
    uint64_t all = (uint64_t)own->n_cores, first = all * s->part / s->parts,
             end = all * (s->part + 1) / s->parts;
    *n = all == 0 ? 0 : end > first ? (int)(end - first) : 1;
    return a->config.share.cores + own->first_core + first;
}

static void load_fail(struct agent *a, const struct agent_action *act, const struct err *e)
{
    share_loaded(a, &(struct share_report){.slot = act->u.work.slot,
                                           .ticket = act->u.work.ticket,
                                           .status = e->code,
                                           .error = e});
}

void shell_share_load(struct agent *a, struct shell_stage *s, const struct agent_action *act,
                      uint64_t queue_bytes)
{
    const struct message_stage_prepare *p = &act->u.work.prepare->message.u.stage_prepare;
    struct discover_device own = discover_device_at(&a->config.share, (int)p->device);
    struct share_runner_config c = {.slot = act->u.work.slot,
                                    .ticket = act->u.work.ticket,
                                    .prepare = act->u.work.prepare,
                                    .path = s->path,
                                    .memory_bytes = own.memory_bytes,
                                    .memory = a->memories[p->device],
                                    .queue_bytes = queue_bytes,
                                    .data = a->data,
                                    .paced = a->paced,
                                    .loaded = share_loaded,
                                    .failed = batch_failed,
                                    .measures = share_measures,
                                    .measured = share_measured,
                                    .kind = a->kinds[p->device],
                                    .ctx = a};
    struct err e = {0};
    int rc = 0;
    if (own.backend && strcmp(own.backend->name, "cpu") != 0)
        c.device = executor_device(a->executors[p->device]);
    const struct message_share *share = p->share.items;
    c.cores = part_cores(a, &own, share, &c.n_cores); /* of one part: all of them */
    c.n_threads = share_part_threads(own.n_threads, (int)share->part, (int)share->parts);
    rc = rc < 0 ? rc : share_runner_create(&c, &s->runner, &e);
    if (rc < 0) {
        load_fail(a, act, &e);
        return;
    }
    s->deployment = p->deployment;
    s->generation = p->generation;
    const struct shell_plan *plan = plan_of(a, p->deployment, p->generation);
    if (plan)
        share_runner_connect(s->runner, plan->peers);
}

void shell_share_drop(struct agent *a, struct shell_stage *s)
{
    struct share_runner *r = s->runner;
    s->runner = NULL;
    if (!r)
        return;
    share_runner_connect(r, NULL);
    share_runner_stop(r);
    if (!vector_push(a->ending, a->n_ending, a->room_ending, r))
        share_runner_destroy(&r);
    plan_tidy(a, s->deployment, s->generation);
}

void shell_shares_reap(struct agent *a)
{
    for (size_t i = 0; i < a->n_ending;)
        if (share_runner_has_ended(a->ending[i])) {
            share_runner_destroy(&a->ending[i]);
            a->ending[i] = a->ending[--a->n_ending];
        } else {
            i++;
        }
}

void shell_shares_close(struct agent *a)
{
    for (size_t i = 0; i < a->n_stages; i++)
        share_runner_destroy(&a->stages[i].runner);
    while (a->n_ending)
        share_runner_destroy(&a->ending[--a->n_ending]);
    while (a->n_plans)
        share_peers_release(a->plans[--a->n_plans].peers);
    free(a->ending);
    free(a->plans);
}

/* ---- batches ---- */

void shell_share_frame(struct agent *a, const struct frame_header *h, struct data_buffer *payload)
{
    for (size_t i = 0; i < a->n_stages; i++) {
        struct share_runner *r = a->stages[i].runner;
        if (!r || !share_runner_is(r, h) || share_runner_session(r) != h->session)
            continue;
        uint64_t now = env_now_ns(&env_real);
        share_runner_batch(r, h, payload, a->paced ? paced_stamp(h->sent_ns, now) : now);
        return;
    }
    a->batches_stale++;
    data_buffer_release(a->data, payload);
}
