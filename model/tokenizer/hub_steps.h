/* Lists of steps in tokenizer.json: a step, or a Sequence of them. */
#ifndef HP_MODEL_TOKENIZER_HUB_STEPS_H
#define HP_MODEL_TOKENIZER_HUB_STEPS_H

#include "common/json.h"
#include "model/tokenizer/tokenizer_int.h"

typedef int (*hub_step_fn)(struct tokenizer *t, const struct json_at *at, const char *type,
                           void *ctx, struct err *e);

/* Calls `each` for a step, or for every step of a Sequence whose list is called `list`; `depth` is
 * 0 from outside. */
int hub_steps_each(struct tokenizer *t, const struct json_at *at, const char *list, int depth,
                   hub_step_fn each, void *ctx, struct err *e);
/* HP_EUNSUPPORTED naming the place. `known` says what is; NULL: nothing to say. */
int hub_step_unsupported(const struct json_at *at, const char *what, const char *type,
                         const char *known, struct err *e);

#endif
