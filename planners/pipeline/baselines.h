/* The methods that HPipe is compared with (its section 4.2), under the same costs: Base, GPipe on
 * the even or the balanced partition, TeraPipe, and Megatron's tensor parallelism within a node
 * with GPipe between nodes. Each uses the devices in the order given. All give a layout in the
 * cost's arena that passed layout_check. HP_EINFEASIBLE, HP_ENOMEM. */
#ifndef HP_PLANNERS_PIPELINE_BASELINES_H
#define HP_PLANNERS_PIPELINE_BASELINES_H

#include "planners/pipeline/layout.h"

int baseline_even(struct pipeline_cost *c, struct layout *out, struct err *e);
int baseline_gpipe(struct pipeline_cost *c, enum pipeline_partition partition, int micro_batches,
                   struct layout *out, struct err *e);
int baseline_terapipe(struct pipeline_cost *c, struct layout *out, struct err *e);
int baseline_tensor(struct pipeline_cost *c, int micro_batches, struct layout *out, struct err *e);
/* HPipe: both of its programmes. */
int baseline_hpipe(struct pipeline_cost *c, struct layout *out, struct err *e);

#endif
