#include "planners/pipeline/flow.h"

static inline double time_later(double a, double b)
{
    return a > b ? a : b;
}

double flow_stage(int n_slices, const double *compute_s, const double *wire_s, double latency_s,
                  double *arrivals)
{
    double free_s = 0, wire_free_s = 0;
    for (int k = 0; k < n_slices; k++) {
        free_s = time_later(free_s, arrivals[k]) + compute_s[k];
        if (wire_s) {
            wire_free_s = time_later(wire_free_s, free_s) + wire_s[k];
            arrivals[k] = wire_free_s + latency_s;
        } else {
            arrivals[k] = free_s;
        }
    }
    return free_s;
}

int flow_schedule(int n_stages, int n_slices, const double *compute_s, const double *wire_s,
                  const double *latency_s, struct arena *arena, struct pipeline_schedule *out,
                  struct err *e)
{
    size_t cells = (size_t)n_stages * (size_t)n_slices;
    struct pipeline_schedule s = {n_stages, n_slices, NULL, NULL, NULL, NULL, NULL};
    double *arrivals = arena_alloc(arena, (size_t)n_slices, sizeof *arrivals);
    s.start_s = arena_alloc(arena, cells, sizeof(double));
    s.end_s = arena_alloc(arena, cells, sizeof(double));
    s.hop_start_s = arena_alloc(arena, cells, sizeof(double));
    s.hop_end_s = arena_alloc(arena, cells, sizeof(double));
    s.latency_s = arena_memdup(arena, latency_s, (size_t)n_stages * sizeof(double));
    if (!arrivals || !s.start_s || !s.end_s || !s.hop_start_s || !s.hop_end_s || !s.latency_s)
        return err_set(e, HP_ENOMEM, "out of memory while timing a plan of %d stages and %d slices",
                       n_stages, n_slices);
    for (int j = 0; j < n_stages; j++) {
        double free_s = 0, wire_free_s = 0;
        for (int k = 0; k < n_slices; k++) {
            size_t cell = (size_t)j * (size_t)n_slices + (size_t)k;
            s.start_s[cell] = time_later(free_s, arrivals[k]);
            s.end_s[cell] = free_s = s.start_s[cell] + compute_s[cell];
            if (j + 1 == n_stages)
                continue;
            s.hop_start_s[cell] = time_later(wire_free_s, free_s);
            s.hop_end_s[cell] = wire_free_s = s.hop_start_s[cell] + wire_s[cell];
            arrivals[k] = wire_free_s + latency_s[j];
        }
    }
    *out = s;
    return 0;
}
