/* What a deployment's last prompt took, beside what was predicted (the record of
 * `deployment.describe`, coordinator/plan_vs_actual.h): as tables and as pictures. */
#ifndef HP_HPCTL_PREFILL_VIEW_H
#define HP_HPCTL_PREFILL_VIEW_H

#include <jansson.h>

#include "common/status.h"

/* Nothing where no prompt was told of. */
int prefill_view_print(const json_t *deployment, struct err *e);
/* Draws the latest record, planned above measured; either file may be NULL. HP_ENOENT: there is
 * none, HP_EIO. */
int prefill_view_draw(const json_t *deployment, const char *svg, const char *trace, struct err *e);

#endif
