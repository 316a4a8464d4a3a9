/* Time lines of a load of models of fixed shape: every request on a lane among those that were open
 * beside it, and every batch on the shares and links that it crossed, as reserved and below that as
 * it was. The coordinator's clock is laid on ours so that no request came there before it was
 * sent. */
#ifndef HP_HPCTL_INFER_DRAWING_H
#define HP_HPCTL_INFER_DRAWING_H

#include "hpctl/infer_run.h"

/* As SVG and as a trace for Chrome and Perfetto; NULL: not asked for. HP_EIO, HP_ENOMEM. */
int infer_draw(const struct infer_run *run, const char *title, const char *svg, const char *trace,
               struct err *e);

#endif
