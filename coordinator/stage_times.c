#include "coordinator/stage_times.h"

#include "coordinator/clocks.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "transport/message.h"

void stage_times_set(struct stage_times *t, size_t cell, const struct message_prefill_slice *s)
{
    t->start_s[cell] = (double)s->start_ns * 1e-9;
    t->end_s[cell] = (double)s->end_ns * 1e-9;
    t->arrive_s[cell] = (double)(s->arrived_ns ? s->arrived_ns : s->start_ns) * 1e-9;
}

double stage_times_align(const struct coord *c, const struct deployment *d, struct stage_times *t,
                         size_t width, int n)
{
    double origin = t->start_s[0] + clock_offset_s(c, d->stages[0].agent);
    for (int j = 0; j < d->n_stages; j++) {
        double offset = clock_offset_s(c, d->stages[j].agent) - origin;
        for (size_t k = (size_t)j * width; k < (size_t)j * width + (size_t)n; k++) {
            t->arrive_s[k] += offset;
            t->start_s[k] += offset;
            t->end_s[k] += offset;
        }
    }
    return origin;
}

static json_t *row_json(const double *values, int n)
{
    json_t *row = json_array();
    for (int k = 0; k < n; k++)
        json_array_append_new(row, json_real(values[k]));
    return row;
}

json_t *stage_times_json(const struct stage_times *t, size_t cell, int n)
{
    return json_pack("{s:o, s:o, s:o}", "arrive_s", row_json(t->arrive_s + cell, n), "start_s",
                     row_json(t->start_s + cell, n), "end_s", row_json(t->end_s + cell, n));
}

json_t *stage_name_json(const struct deployment *d, int stage)
{
    const struct deployment_stage *s = &d->stages[stage];
    char on[DEVICE_TEXT];
    member_device_text(s->agent, s->device, on);
    return json_pack("{s:s, s:s, s:[i,i]}", "agent", s->agent->name, "on", on, "layers",
                     s->first_layer, s->end_layer);
}
