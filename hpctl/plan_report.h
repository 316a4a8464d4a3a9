/* A plan (hp-plan/1) as a page for a browser that is whole by itself: what it promises, its
 * picture, what goes where, what else was weighed, what it was made from, and the plan's own JSON.
 */
#ifndef HP_HPCTL_PLAN_REPORT_H
#define HP_HPCTL_PLAN_REPORT_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"
#include "planners/timeline.h"

/* `picture` is SVG, and its bytes are freed. HP_ENOMEM, HP_EIO. */
int plan_report_save(const char *file, const char *title, const json_t *plan,
                     struct buffer *picture, struct err *e);
/* The same with a time line as the picture. */
int plan_report_save_timeline(const char *file, const json_t *plan, const struct timeline *t,
                              struct err *e);

#endif
