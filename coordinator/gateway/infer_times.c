#include "coordinator/gateway/infer_times.h"

/* Seconds after the request came. */
static double since_s(const struct infer_times *t, int64_t ns)
{
    return (double)(ns - t->arrived_ns) * 1e-9;
}

static void stage_write(const struct infer_times *t, const struct infer_stage_times *s,
                        struct buffer *out)
{
    buffer_printf(out, "{\"share\":%d", s->share);
    if (s->planned_transfer_end_ns > s->planned_transfer_start_ns)
        buffer_printf(out, ",\"planned_transfer_s\":[%.6f,%.6f]",
                      since_s(t, s->planned_transfer_start_ns),
                      since_s(t, s->planned_transfer_end_ns));
    buffer_printf(out, ",\"planned_s\":[%.6f,%.6f],\"arrived_s\":%.6f,\"ran_s\":[%.6f,%.6f]}",
                  since_s(t, s->planned_start_ns), since_s(t, s->planned_end_ns),
                  since_s(t, s->arrived_ns), since_s(t, s->began_ns), since_s(t, s->ended_ns));
}

void infer_times_write(const struct infer_times *t, struct buffer *out)
{
    buffer_printf(out,
                  "\"timings\":{\"at_s\":%.6f,\"plan\":%llu,\"batch\":%u,\"samples\":%d,"
                  "\"deadline_s\":%.6f,\"sent_s\":%.6f,\"total_s\":%.6f,\"stages\":[",
                  (double)t->arrived_ns * 1e-9, (unsigned long long)t->plan, t->batch, t->samples,
                  since_s(t, t->deadline_ns), since_s(t, t->sent_ns), since_s(t, t->answered_ns));
    for (int i = 0; i < t->n_stages; i++) {
        if (i > 0)
            buffer_append(out, ",", 1);
        stage_write(t, &t->stages[i], out);
    }
    buffer_printf(out, "]}");
}
