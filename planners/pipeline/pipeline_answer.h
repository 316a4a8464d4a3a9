/* From a layout to what the caller gets: plan, schedule, predictions, warnings and the hp-plan/1
 * document. */
#ifndef HP_PLANNERS_PIPELINE_PIPELINE_ANSWER_H
#define HP_PLANNERS_PIPELINE_PIPELINE_ANSWER_H

#include "planners/pipeline/layout.h"

/* Figures of one layout. */
struct pipeline_answer_figures {
    double makespan_s, energy_j, period_s; /* period: the busiest stage's or hop's total */
    double decode_step_s, decode_period_s;
    double request_period_s; /* of the busiest stage or hop: a prompt and its decode tokens */
};

/* Times a layout in every respect; the schedule may be NULL. HP_ENOMEM. */
int pipeline_answer_measure(const struct pipeline_cost *c, const struct layout *l,
                            struct pipeline_answer_figures *out, struct pipeline_schedule *schedule,
                            struct err *e);
/* What an objective makes of figures: seconds or joules, less is better. */
double pipeline_answer_value(enum pipeline_objective objective,
                             const struct pipeline_answer_figures *f);

/* Fills plan, schedule and figures, in the arena. HP_ENOMEM. */
int pipeline_answer_fill(const struct pipeline_cost *c, const struct layout *l,
                         struct pipeline_answer *out, struct err *e);
/* Adds a warning. Lost when there is no memory for it. */
void pipeline_answer_warn(struct arena *arena, struct pipeline_answer *a, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Warns of slices or prefixes beyond the last point of a table that the plan uses. */
void pipeline_answer_warn_extrapolated(const struct pipeline_cost *c, const struct layout *l,
                                       struct pipeline_answer *a);
/* The document without `why`; NULL when memory runs out. */
json_t *pipeline_answer_document(const struct pipeline_cost *c, const struct pipeline_request *rq,
                                 const struct pipeline_answer *a, double solver_seconds);

#endif
