/* Weights found by name, and which of them something uses. Made while a model opens; names are
 * unique over all of its files. */
#ifndef HP_MODEL_WEIGHT_TABLE_H
#define HP_MODEL_WEIGHT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/arena.h"
#include "common/status.h"
#include "model/weights.h"

struct weight_table {
    const char *file;       /* the model's path, for messages */
    struct weight *weights; /* [n_weights], in file order */
    size_t n_weights;
    uint32_t *by_name; /* [n_weights], indices in the order of names */
    bool *used;        /* [n_weights] */
};

/* Indexes weights that live as long as the arena. HP_EPARSE when a name is there twice. */
int weight_table_make(const char *file, struct weight *weights, size_t n_weights,
                      struct arena *arena, struct weight_table *out, struct err *e);

/* NULL when there is none of that name. Neither marks it used. */
const struct weight *weight_table_find(const struct weight_table *t, const char *name);
/* One that must be there, with exactly this shape (rows 0: a vector of `columns`); marks it used.
 * HP_EPARSE names file, tensor and problem. */
int weight_table_take(struct weight_table *t, const char *name, uint64_t rows, uint64_t columns,
                      const struct weight **out, struct err *e);
/* The same for `n` matrices in one tensor [n, rows, columns]. */
int weight_table_take_stack(struct weight_table *t, const char *name, uint64_t n, uint64_t rows,
                            uint64_t columns, struct weight **out, struct err *e);
/* Marks as used what may be there and is not needed. */
void weight_table_ignore(struct weight_table *t, const struct weight *w);
/* HP_EUNSUPPORTED naming the first weight that nobody used: a model with more to it than its family
 * says would compute nonsense.
 */
int weight_table_refuse_unused(const struct weight_table *t, const char *family, struct err *e);

#endif
