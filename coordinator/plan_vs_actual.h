/* What prompts took, beside what was expected: every stage tells of every prefill
 * (MESSAGE_PREFILL), and when all have, the record is complete. It is what `hpctl describe` draws,
 * what /metrics sums up, and what corrects a profile that has drifted.
 *
 * Agents of one box share a clock; between boxes it is as good as the fastest message was quick. */
#ifndef HP_COORDINATOR_PLAN_VS_ACTUAL_H
#define HP_COORDINATOR_PLAN_VS_ACTUAL_H

#include <jansson.h>

#include "transport/message.h"

struct coord;
struct deployment;
struct member;
struct plan_vs_actual;

enum {
    PLAN_VS_ACTUAL_RECORDS = 16,      /* kept of a deployment */
    PLAN_VS_ACTUAL_MAX_CELLS = 16384, /* stages x slices of one record */
    PLAN_VS_ACTUAL_PREDICT_MS =
        50, /* at most one prediction in so long, but for those that people ask for */
    PLAN_VS_ACTUAL_QUICK = 8192, /* layers x slices: less than a millisecond to predict */
};

/* The first prompt of a generation opens what later ones find open (data sessions, pages of memory
 * that nobody touched): it stands apart, and sums are of the others. */
struct plan_vs_actual_totals {
    uint64_t prefills; /* alone on their stages, and compared */
    double planned_s, measured_s;
    double first_planned_s, first_measured_s; /* of this generation; 0: not compared */
    double error;                             /* of the last one: measured / planned - 1 */
    uint64_t corrections;
};

/* A stage tells what a prompt took on it; once all have, it is compared with the plan and kept. Of
 * one that goes on only what is far slower than planned counts (plan_learning.h). */
void plan_vs_actual_prefill(struct coord *c, struct member *m, const struct message_prefill *p);
/* The same of the first steps of the answer: of a prompt that is still known. */
void plan_vs_actual_decode(struct coord *c, struct member *m, const struct message_decode *p);
/* All 0 where nothing was compared yet. */
struct plan_vs_actual_totals plan_vs_actual_totals(const struct deployment *d);
/* Seconds that the plan says of reading the prompt of that sequence, in the slices that it was read
 * in; 0: others ran beside it, or it is not known. */
double plan_vs_actual_planned(struct coord *c, struct deployment *d, uint64_t sequence);
/* {"count", "planned_s", "measured_s", "error", "corrections", "first": {"planned_s",
 * "measured_s", "error"} (if it was compared), "records": [up to n, the latest first]}. A record is
 * {"sequence", "tokens", "cached" (before these), "slices", "shared", "at_s", "measured_s",
 * "planned_s", "error", "stages": [{"agent", "layers", "planned", "measured"}]}, where planned and
 * measured are {"start_s", "end_s", "arrive_s"} by slice from the start of the first ("arrive_s":
 * when the input was there; planned is missing where nothing was predicted: other prompts ran too).
 * What is known of the answer's first steps is in "decode" (decode_steps.h). */
json_t *plan_vs_actual_describe(struct coord *c, struct deployment *d, size_t n);
void plan_vs_actual_free(struct plan_vs_actual **t);

#endif
