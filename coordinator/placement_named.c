/* On which devices a deployment may be placed: those that its spec names, and none of those that
 * are left out of it. */
#include <stdio.h>
#include <string.h>

#include "coordinator/broken_links.h"
#include "coordinator/deployment.h"
#include "coordinator/flapping.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement_int.h"

/* ---- names ---- */

struct placement_device placing_device_of_id(struct coord *c, const char *id)
{
    char name[MEMBER_NAME];
    size_t n = strcspn(id, "/");
    snprintf(name, sizeof name, "%.*s", (int)n, id);
    struct member *m = member_find(c, name);
    int device = m && id[n] ? member_device_find(m, id + n + 1) : -1;
    return (struct placement_device){device < 0 ? NULL : m, device};
}

struct placement_device placement_device_named(struct coord *c, const char *text)
{
    struct placement_device out = {member_find(c, text), -1};
    for (size_t i = 0; !out.agent && i < c->n_members; i++)
        if (c->members[i]->node && strcmp(member_paced_as(c->members[i]), text) == 0)
            out.agent = c->members[i];
    return out.agent ? out : placing_device_of_id(c, text);
}

int placement_name_unknown(const struct coord *c, const char *text, bool is_device, struct err *e)
{
    if (!is_device)
        return member_missing(c, text, e);
    err_set(e, HP_ENOENT, "there is no device \"%s\" in this cluster", text);
    return err_hint(e, "`hpctl topo` lists the devices");
}

/* ---- what the spec names ---- */

static int agent_check(const struct coord *c, const struct deployment *d, const struct member *m,
                       int i, struct err *e)
{
    const struct deployment_spec *s = &d->spec;
    const struct deployment_range *r = &s->ranges[i];
    if (!m)
        return placement_name_unknown(c, r->agent, s->planned || strchr(r->agent, '/'), e);
    if (!member_available(m)) {
        int rc = err_set(e, HP_ELINK, "agent \"%s\" is %s, and was asked for by name", r->agent,
                         member_states[m->state].word);
        if (m->drain != MEMBER_STAYS)
            err_hint(e, "`hpctl node undrain %s` gives it stages again", m->name);
        return rc;
    }
    const char *lacks = member_lacks(m, d->model->facts.needs);
    if (lacks)
        return err_set(e, HP_EUNSUPPORTED, "agent \"%s\" cannot run \"%s\", which this model needs",
                       r->agent, lacks);
    return 0;
}

static int device_lost_error(const struct placement_device *at, struct err *e)
{
    char text[DEVICE_TEXT];
    member_device_text(at->agent, at->device, text);
    err_set(e, HP_EDEVICE, "device \"%s\" is lost: %s", text,
            member_device_lost(at->agent, at->device));
    return err_hint(e, "it takes stages again when its agent is started again");
}

static int range_check(const struct coord *c, const struct deployment *d,
                       const struct placement_device *at, int i, struct err *e)
{
    const struct deployment_spec *s = &d->spec;
    const struct deployment_range *r = &s->ranges[i];
    int rc = agent_check(c, d, at->agent, i, e);
    if (rc == 0 && member_device_lost(at->agent, at->device))
        rc = device_lost_error(at, e);
    if (rc < 0 || !s->with_layers)
        return rc;
    if (at->device < 0 && member_device_count(at->agent) > 1) {
        err_set(e, HP_EINVAL, "--layers: agent \"%s\" has %d devices", r->agent,
                member_device_count(at->agent));
        return err_hint(e, "name one of them: %s", at->agent->node->cluster.devices[0].id);
    }
    int n = d->model->facts.n_layers, before = i ? s->ranges[i - 1].end : 0;
    if (r->first > before)
        return err_set(e, HP_EINVAL,
                       "--layers leaves out layer %d%s: every layer belongs to one agent", before,
                       r->first - before > 1 ? " and more" : "");
    if (r->first < before)
        return err_set(e, HP_EINVAL, "--layers gives layer %d to two agents", r->first);
    if (r->end > n)
        return err_set(e, HP_EINVAL, "--layers names layer %d; the last layer of this model is %d",
                       r->end - 1, n - 1);
    if (i == s->n_ranges - 1 && r->end < n)
        return err_set(e, HP_EINVAL,
                       "--layers ends at layer %d; the last layer of this model is %d", r->end - 1,
                       n - 1);
    return 0;
}

/* One stage on a device of an agent. */
static int range_add(struct placement_job *p, const struct deployment_range *r,
                     const struct member *m, int device, struct err *e)
{
    char text[DEVICE_TEXT];
    int number = planner_inputs_device(p->inputs, m->name, device);
    member_device_text(m, device, text);
    for (int i = 0; i < p->n_devices; i++)
        if (p->devices[i] == number)
            return err_set(e, HP_EINVAL,
                           "\"%s\" is named twice: a device holds one stage of a deployment", text);
    if (p->n_devices == COORD_MAX_STAGES)
        return err_set(e, HP_ELIMIT, "a deployment has at most %d stages", COORD_MAX_STAGES);
    p->ranges[p->n_devices] =
        (struct placing_range){arena_strdup(&p->arena, text), r->first, r->end};
    p->devices[p->n_devices] = number;
    p->ends[p->n_devices] = r->end;
    return p->ranges[p->n_devices++].agent ? 0 : err_set(e, HP_ENOMEM, "no memory for planning");
}

/* Those that were named go on without it: it is lost, or does not reach the others. */
static bool range_left_out(const struct placement_job *p, const struct deployment *d,
                           const struct member *m)
{
    return m && d->served && deployment_spec_shrinks(&d->spec) &&
           (m->state == MEMBER_LOST || broken_links_leave_out(p->core, d, m) ||
            flapping_leaves_out(p->core, d, m));
}

static int ranges_read(struct placement_job *p, const struct deployment *d, struct err *e)
{
    const struct deployment_spec *s = &d->spec;
    if (s->n_ranges == 0)
        return 0;
    p->devices = arena_alloc(&p->arena, COORD_MAX_STAGES, sizeof *p->devices);
    p->ends = arena_alloc(&p->arena, COORD_MAX_STAGES, sizeof *p->ends);
    p->ranges = arena_alloc(&p->arena, COORD_MAX_STAGES, sizeof *p->ranges);
    if (!p->devices || !p->ends || !p->ranges)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (int i = 0; i < s->n_ranges; i++) {
        struct placement_device at = placement_device_named(p->core, s->ranges[i].agent);
        if (range_left_out(p, d, at.agent))
            continue;
        int rc = range_check(p->core, d, &at, i, e), first = at.device < 0 ? 0 : at.device,
            end = rc < 0          ? 0
                  : at.device < 0 ? member_device_count(at.agent)
                                  : first + 1;
        for (int k = first; rc == 0 && k < end; k++)
            rc = range_add(p, &s->ranges[i], at.agent, k, e);
        if (rc < 0)
            return rc;
    }
    if (!s->with_layers)
        p->ends = NULL;
    if (p->n_devices == 0)
        return err_set(e, HP_ELINK, "all agents that were asked for by name are lost");
    return 0;
}

/* ---- what is left out ---- */

/* Of its own, since the inputs are shared. */
static int devices_own(struct placement_job *p, struct err *e)
{
    struct cluster *c = &p->cluster;
    c->devices = arena_memdup(&p->arena, c->devices, (size_t)c->n_devices * sizeof *c->devices);
    return c->n_devices && !c->devices ? err_set(e, HP_ENOMEM, "no memory for planning") : 0;
}

/* Agents that do not reach others, or come and go. Where it is planned beside its stages, these
 * stay as they are.
 */
static void unreached_leave_out(struct placement_job *p, struct deployment *d)
{
    struct cluster *c = &p->cluster;
    for (int i = 0; i < c->n_devices; i++) {
        const struct member *m = member_find(p->core, c->nodes[c->devices[i].node].name);
        bool own = d->beside && m && deployment_stage_of(d, m);
        if (m && !own &&
            (broken_links_leave_out(p->core, d, m) || flapping_leaves_out(p->core, d, m)))
            c->devices[i].memory_bytes = -1;
    }
}

static int device_leave_out(struct placement_job *p, const char *name, struct err *e)
{
    struct placement_device at = placement_device_named(p->core, name);
    if (!at.agent)
        return placement_name_unknown(p->core, name, strchr(name, '/') != NULL, e);
    int first = planner_inputs_device(p->inputs, at.agent->name, at.device < 0 ? 0 : at.device),
        many = at.device < 0 ? member_device_count(at.agent) : 1;
    for (int i = first; first >= 0 && i < first + many; i++)
        p->cluster.devices[i].memory_bytes = -1;
    return 0;
}

/* The first of names with commas between; what stands behind it. */
static const char *name_first(const char *names, char out[DEPLOYMENT_RANGE_AGENT])
{
    size_t n = strcspn(names, ",");
    snprintf(out, DEPLOYMENT_RANGE_AGENT, "%.*s", (int)n, names);
    return names + n + (names[n] == ',');
}

int placing_devices_leave_out(struct placement_job *p, const char *names, struct err *e)
{
    char name[DEPLOYMENT_RANGE_AGENT];
    int rc = 0;
    while (rc == 0 && *names) {
        names = name_first(names, name);
        rc = device_leave_out(p, name, e);
    }
    return rc;
}

/* Devices that read prompts answer none; one that is not there any more reads nothing. */
static void readers_leave_out(struct placement_job *p, const char *readers)
{
    char name[DEPLOYMENT_RANGE_AGENT];
    struct err unknown = {0};
    while (*readers) {
        readers = name_first(readers, name);
        device_leave_out(p, name, &unknown);
    }
}

int placing_devices_read(struct placement_job *p, struct deployment *d, struct err *e)
{
    int rc = p->imagined ? 0 : ranges_read(p, d, e);
    rc = rc < 0 ? rc : devices_own(p, e);
    if (rc == 0 && d->spec.decode_auto)
        readers_leave_out(p, d->spec.prefill);
    if (rc == 0 && !p->devices)
        unreached_leave_out(p, d);
    return rc;
}
