/* A deployment that lost agents and serves on fewer grows back: the layout that it had is
 * remembered, and taken again when its agents are here, have the room, and nothing runs. */
#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/costs.h"

void deployment_wish(struct deployment *d)
{
    if (!d->wish && d->served && d->spec.n_ranges == 0)
        d->wish = json_incref(d->served);
}

void deployment_wish_forget(struct deployment *d)
{
    json_decref(d->wish);
    json_decref(d->fallback);
    d->wish = d->fallback = NULL;
}

void deployment_wish_served(struct deployment *d)
{
    json_decref(d->fallback);
    d->fallback = NULL;
    if (d->wish &&
        json_equal(json_object_get(d->wish, "stages"), json_object_get(d->served, "stages")))
        deployment_wish_forget(d);
}

bool deployment_wish_failed(struct deployment *d)
{
    if (!d->fallback)
        return false;
    json_decref(d->served);
    d->served = d->fallback;
    d->fallback = NULL;
    return true;
}

/* ---- whether it may, and is worth it
 * ------------------------------------------------------------------------------------ */

/* The slowest stage, of the prompt that plans are made for; each layout's own figures. */
static double slowest_s(const json_t *layout)
{
    double most = 0;
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(layout, "stages"), i, row)
    {
        double s = json_number_value(json_object_get(row, "compute_s"));
        most = s > most ? s : most;
    }
    return most;
}

static bool is_better(const struct deployment *d)
{
    double now = slowest_s(d->served), then = slowest_s(d->wish);
    uint64_t tokens = (uint64_t)json_integer_value(json_object_get(d->wish, "kv_tokens")),
             context = (uint64_t)json_integer_value(json_object_get(d->wish, "context"));
    return context > d->context ||
           (context == d->context && (tokens > d->kv_tokens || then < 0.95 * now));
}

/* Its agents are here, have been for a while, and have room. */
static bool is_possible(struct core *c, const struct deployment *d)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(d->wish, "stages"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "agent"));
        const struct member *m = name ? member_find(c, name) : NULL;
        if (!m || !member_available(m) || m->draining ||
            core_now(c) - m->joined_ns < core_ms(DEPLOYMENT_GROW_MS) ||
            costs_free_bytes(c, d, m) < json_number_value(json_object_get(row, "memory_bytes")))
            return false;
    }
    return true;
}

void deployment_grow(struct core *c, struct deployment *d)
{
    uint64_t now = core_now(c);
    if (d->n_active || d->n_waiting)
        d->busy_ns = now;
    bool idle = now - d->since_ns >= core_ms(DEPLOYMENT_GROW_MS) &&
                now - d->busy_ns >= core_ms(DEPLOYMENT_GROW_MS);
    if (!d->wish || d->moving || !idle || !is_possible(c, d))
        return;
    if (!is_better(d)) {
        deployment_wish_forget(d);
        return;
    }
    struct err e = {0};
    err_set(&e, HP_ELINK, "\"%s\" goes back to the agents that it was planned for", d->name);
    log_info("coordinator", "deployment_grows", "name=%s", d->name);
    json_decref(d->fallback);
    d->fallback = d->served;
    d->served = d->wish;
    d->wish = NULL;
    deployment_break(c, d, &e);
}
