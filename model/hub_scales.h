/* Tensors of a Hugging Face folder that are one weight together: eight bits with scales
 * (`X.weight` in F8_E4M3 or F8_E5M2; `X.weight_scale_inv` or `X.weight_scale` for the whole matrix,
 * for each row, or for each block of `weight_block_size`, 128 x 128 where config.json does not
 * say), and MXFP4 in two (`X_blocks`, `X_scales`). Either kind of scale is multiplied by, whatever
 * its name says. */
#ifndef HP_MODEL_HUB_SCALES_H
#define HP_MODEL_HUB_SCALES_H

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"
#include "model/weight_table.h"

/* Joins them in the table: the weight gets its scales (weights.h), X_blocks the name X; scales, and
 * those of activations and of KV caches, which nothing here needs, are marked as used. `config` is
 * config.json. HP_EPARSE (scales that are missing, or whose shape is none of these),
 * HP_EUNSUPPORTED (U8 that is neither), HP_ENOMEM; naming file and tensor. */
int hub_scales_join(const struct json_at *config, struct weight_table *t, struct arena *arena,
                    struct err *e);

#endif
