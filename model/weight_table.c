#include "model/weight_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b, void *weights)
{
    const struct weight *w = weights;
    return strcmp(w[*(const uint32_t *)a].name, w[*(const uint32_t *)b].name);
}

int weight_table_make(const char *file, struct weight *weights, size_t n_weights,
                      struct arena *arena, struct weight_table *out, struct err *e)
{
    if (n_weights > UINT32_MAX)
        return err_set(e, HP_EPARSE, "%s: %zu tensors are too many", file, n_weights);
    uint32_t *by_name = arena_alloc(arena, n_weights + 1, sizeof *by_name);
    bool *used = arena_alloc(arena, n_weights + 1, sizeof *used);
    if (!by_name || !used)
        return err_set(e, HP_ENOMEM, "%s: out of memory for %zu tensors", file, n_weights);
    for (size_t i = 0; i < n_weights; i++)
        by_name[i] = (uint32_t)i;
    qsort_r(by_name, n_weights, sizeof *by_name, compare_names, weights);
    for (size_t i = 1; i < n_weights; i++)
        if (strcmp(weights[by_name[i - 1]].name, weights[by_name[i]].name) == 0) {
            err_set(e, HP_EPARSE, "%s: tensor %s is there twice", file, weights[by_name[i]].name);
            err_hint(e, "one of a model's files is of another model, or the file is not whole: "
                        "fetch them again");
            return HP_EPARSE;
        }
    *out = (struct weight_table){file, weights, n_weights, by_name, used};
    return 0;
}

const struct weight *weight_table_find(const struct weight_table *t, const char *name)
{
    size_t low = 0, high = t->n_weights;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct weight *w = &t->weights[t->by_name[middle]];
        int c = strcmp(name, w->name);
        if (c == 0)
            return w;
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void weight_table_ignore(struct weight_table *t, const struct weight *w)
{
    t->used[w - t->weights] = true;
}

static const char *shape_text(int n_dims, const uint64_t *shape, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int d = 0; d < n_dims && at < size; d++) {
        int n = snprintf(out + at, size - at, d ? ", %llu" : "%llu", (unsigned long long)shape[d]);
        at += n > 0 ? (size_t)n : 0;
    }
    return out;
}

static int hint_of_lie(struct err *e, int code)
{
    err_hint(e, "the model's settings (GGUF keys or config.json) and its tensors are not of one "
                "model, or the file is not whole: fetch it again, or convert it anew");
    return code;
}

static int shape_take(struct weight_table *t, const char *name, int n_dims, const uint64_t *wanted,
                      const struct weight **out, struct err *e)
{
    const struct weight *w = weight_table_find(t, name);
    if (!w) {
        err_set(e, HP_EPARSE, "%s: tensor %s is missing", t->file, name);
        return hint_of_lie(e, HP_EPARSE);
    }
    if (w->n_dims != n_dims || memcmp(w->shape, wanted, (size_t)n_dims * sizeof *wanted) != 0) {
        char has[96], needs[72];
        err_set(e, HP_EPARSE, "%s: tensor %s has shape [%s], expected [%s]", t->file, name,
                shape_text(w->n_dims, w->shape, has, sizeof has),
                shape_text(n_dims, wanted, needs, sizeof needs));
        return hint_of_lie(e, HP_EPARSE);
    }
    weight_table_ignore(t, w);
    *out = w;
    return 0;
}

int weight_table_take(struct weight_table *t, const char *name, uint64_t rows, uint64_t columns,
                      const struct weight **out, struct err *e)
{
    const uint64_t matrix[2] = {rows, columns};
    return shape_take(t, name, rows ? 2 : 1, rows ? matrix : matrix + 1, out, e);
}

int weight_table_take_stack(struct weight_table *t, const char *name, uint64_t n, uint64_t rows,
                            uint64_t columns, struct weight **out, struct err *e)
{
    const uint64_t stack[3] = {n, rows, columns};
    const struct weight *w;
    int rc = shape_take(t, name, 3, stack, &w, e);
    *out = rc < 0 ? NULL : &t->weights[w - t->weights];
    return rc;
}

int weight_table_refuse_unused(const struct weight_table *t, const char *family, struct err *e)
{
    for (size_t i = 0; i < t->n_weights; i++)
        if (!t->used[i]) {
            err_set(e, HP_EUNSUPPORTED, "%s: tensor %s is not one that a model of family %s has",
                    t->file, t->weights[i].name, family);
            err_hint(e, "without it the model would compute something else; take a file of the "
                        "model that was not changed, or a newer hodgepodge");
            return HP_EUNSUPPORTED;
        }
    return 0;
}
