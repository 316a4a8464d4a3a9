#include "planners/coldstart/picture.h"

#include <stdio.h>

enum { COLOUR_RESIDENT = 0, COLOUR_HOST = 1, COLOUR_READ = 1, COLOUR_DEVICES = 2 };

static void name_lane(char *out, size_t size, const char *what, const struct opgraph *g, int device)
{
    if (g->devices[device].name[0])
        snprintf(out, size, "%s%s", what, g->devices[device].name);
    else
        snprintf(out, size, "%sdevice %d", what, device);
}

static void draw_buses(const struct timing *t, const struct coldstart_plan *plan, const int *lanes,
                       struct timeline *out)
{
    const struct coldstart_problem *p = t->problem;
    double last[OPGRAPH_MAX_BUSES] = {0};
    for (int c = 0; c < plan->n_copies; c++) {
        const struct coldstart_copy *copy = &plan->copies[c];
        int device = copy->read ? plan->device[copy->node] : copy->device, bus = p->bus_of[device];
        timeline_add(out, lanes[bus], last[bus], t->copy_end_s[c],
                     copy->read ? COLOUR_READ : COLOUR_DEVICES + device, "%s%s",
                     copy->read ? "read for " : "", p->graph->nodes[copy->node].name);
        last[bus] = t->copy_end_s[c];
    }
}

static void draw_transfers(const struct timing *t, struct timeline *out)
{
    const struct coldstart_problem *p = t->problem;
    int lane_of[OPGRAPH_MAX_DEVICES * OPGRAPH_MAX_DEVICES];
    for (int i = 0; i < p->n_devices * p->n_devices; i++)
        lane_of[i] = -1;
    for (int i = 0; i < t->n_transfers; i++) {
        const struct timing_transfer *x = &t->transfers[i];
        int *lane = &lane_of[x->from * p->n_devices + x->to];
        if (*lane < 0) {
            char from[40], to[40], name[96];
            name_lane(from, sizeof from, "", p->graph, x->from);
            name_lane(to, sizeof to, "", p->graph, x->to);
            snprintf(name, sizeof name, "%s>%s", from, to);
            *lane = timeline_add_lane(out, "links", name);
        }
        timeline_add(out, *lane, x->start_s, x->end_s, COLOUR_DEVICES + x->from, "%s",
                     p->graph->nodes[x->node].name);
    }
}

int coldstart_picture(struct timing *t, const struct coldstart_plan *plan, struct timeline *out)
{
    const struct coldstart_problem *p = t->problem;
    int buses[OPGRAPH_MAX_BUSES], devices[OPGRAPH_MAX_DEVICES];
    char name[96];
    t->record = true;
    timing_run(t, plan);
    t->record = false;
    for (int b = 0; b < p->n_buses; b++) {
        snprintf(name, sizeof name, "bus %d", b);
        buses[b] = timeline_add_lane(out, "buses", name);
    }
    for (int d = 0; d < p->n_devices; d++) {
        name_lane(name, sizeof name, "", p->graph, d);
        devices[d] = timeline_add_lane(out, "devices", name);
    }
    draw_buses(t, plan, buses, out);
    for (int i = 0; i < p->n_ops; i++) {
        int v = plan->order[i];
        timeline_add(out, devices[plan->device[v]], t->start_s[v], t->end_s[v],
                     plan->host[v] ? COLOUR_HOST : COLOUR_RESIDENT, "%s", p->graph->nodes[v].name);
    }
    draw_transfers(t, out);
    return out->failed ? HP_ENOMEM : 0;
}
