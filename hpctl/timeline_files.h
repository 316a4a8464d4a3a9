/* A timeline (planners/timeline.h) as the files that a person asked for. */
#ifndef HP_HPCTL_TIMELINE_FILES_H
#define HP_HPCTL_TIMELINE_FILES_H

#include "common/status.h"
#include "planners/timeline.h"

/* As SVG and as a trace for Chrome and Perfetto; NULL: not asked for. */
int timeline_save(const struct timeline *t, const char *svg, const char *trace, struct err *e);

#endif
