/* Simulations as a person and a program see them: tables, JSON, CSV and pictures. */
#ifndef HP_HPCTL_SIMULATE_OUTPUT_H
#define HP_HPCTL_SIMULATE_OUTPUT_H

#include <jansson.h>

#include "planners/dispatch/simulate.h"
#include "planners/timeline.h"

/* ---- one load ---- */

struct simulate_report {
    const struct dispatch_topology *t;
    const char *arrivals;
    const struct simulate_options *options;
    double load, seconds, wall_s;
    uint64_t seed;
    const struct simulate_result *result;
};

/* To standard output; as JSON (NULL: no memory); or as rows of a CSV file (HP_EIO). */
void simulate_report_print(const struct simulate_report *r);
json_t *simulate_report_json(const struct simulate_report *r);
int simulate_report_csv(const struct simulate_report *r, const char *file, struct err *e);

/* The first moments of every share. */
struct simulate_picture {
    const struct dispatch_topology *t;
    struct timeline timeline;
    int *lanes; /* [share] */
    int64_t end_ns;
};
/* A simulate_options.watch; ctx is the struct simulate_picture. */
void simulate_picture_add(void *ctx, int model, int pipeline, int stage, int share, uint32_t batch,
                          int n, int64_t start_ns, int64_t end_ns);
/* As SVG, or as a Chrome trace. HP_EIO, HP_ENOMEM. */
int simulate_picture_save(struct simulate_picture *p, const char *file, bool trace, struct err *e);
void simulate_picture_free(struct simulate_picture *p);

/* ---- many loads ---- */

struct simulate_sweep_point {
    int row; /* a model; n_models: all together */
    double load, attainment;
};

struct simulate_sweep {
    const struct dispatch_topology *t;
    int n_models, only_model;
    double target, seconds;
    uint64_t seed;
    const char *scheduler, *arrivals;
    double max_load[ARRIVALS_MAX_MODELS + 1];
    struct simulate_sweep_point *points;
    int n_points, room;
};

/* One more point. HP_ENOMEM. */
int simulate_sweep_add(struct simulate_sweep *s, int row, double load, double attainment,
                       struct err *e);
/* To standard output; as JSON (NULL: no memory); as a CSV file, or a picture (HP_EIO,
 * HP_ENOMEM). */
void simulate_sweep_print(const struct simulate_sweep *s);
json_t *simulate_sweep_json(const struct simulate_sweep *s);
int simulate_sweep_csv(const struct simulate_sweep *s, const char *file, struct err *e);
int simulate_sweep_svg(const struct simulate_sweep *s, const char *file, struct err *e);
void simulate_sweep_free(struct simulate_sweep *s);

#endif
