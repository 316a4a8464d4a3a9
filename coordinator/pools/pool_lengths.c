#include "coordinator/pools/pool_lengths.h"

#include <string.h>

int pool_length_of(const struct pool_model *m, const struct ndarray *inputs, int64_t *out,
                   struct err *e)
{
    *out = 0;
    for (int i = 0; m->n_lengths && i < m->facts.n_inputs; i++) {
        int axis = m->input_axes[i];
        if (axis < 0)
            continue;
        int64_t length = inputs[i].dims[axis];
        if (*out && length != *out)
            return err_set(e, HP_EINVAL, "inputs: %s: shape[%d] is %lld, of the inputs before %lld",
                           m->facts.inputs[i].name, axis, (long long)length, (long long)*out);
        if (length > m->lengths[0])
            return err_set(e, HP_EINVAL,
                           "inputs: %s: shape[%d] is %lld; \"%s\" is served with lengths of up to "
                           "%lld",
                           m->facts.inputs[i].name, axis, (long long)length, m->facts.name,
                           (long long)m->lengths[0]);
        *out = length;
    }
    return 0;
}

int pool_length_size(const struct pool_model *m, int64_t length)
{
    int size = 0;
    while (size + 1 < m->n_lengths && m->lengths[size + 1] >= length)
        size++;
    return size;
}

struct pool_stretch pool_stretch_of(const struct ndarray *a, bool batched, int axis, int64_t to)
{
    size_t samples = batched && a->dims[0] > 0 ? (size_t)a->dims[0] : 1,
           bytes = ndarray_bytes(a) / samples;
    struct pool_stretch s = {1, bytes, bytes};
    if (axis < 0 || a->dims[axis] < 1)
        return s;
    for (int d = batched; d < axis; d++)
        s.rows *= (size_t)a->dims[d];
    s.from_bytes = bytes / s.rows;
    s.to_bytes = s.from_bytes / (size_t)a->dims[axis] * (size_t)to;
    return s;
}

void pool_stretch_copy(const struct pool_stretch *s, uint8_t *to, const uint8_t *from)
{
    size_t both = s->from_bytes < s->to_bytes ? s->from_bytes : s->to_bytes;
    for (size_t row = 0; row < s->rows; row++) {
        memcpy(to, from, both);
        memset(to + both, 0, s->to_bytes - both);
        to += s->to_bytes;
        from += s->from_bytes;
    }
}
