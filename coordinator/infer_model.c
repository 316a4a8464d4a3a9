#include "coordinator/infer_model.h"

#include <string.h>

static bool tensor_is_like(const struct infer_tensor *a, const struct infer_tensor *b)
{
    if (strcmp(a->name, b->name) != 0 || a->type != b->type || a->n_dims != b->n_dims)
        return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->dims[d] != b->dims[d])
            return false;
    return true;
}

static bool tensors_are_like(const struct infer_tensor *a, const struct infer_tensor *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!tensor_is_like(&a[i], &b[i]))
            return false;
    return true;
}

bool infer_model_is_like(const struct infer_model *a, const struct infer_model *b)
{
    return a->n_inputs == b->n_inputs && a->n_outputs == b->n_outputs &&
           tensors_are_like(a->inputs, b->inputs, a->n_inputs) &&
           tensors_are_like(a->outputs, b->outputs, a->n_outputs);
}
