#include "agent/engine/section_tensor.h"

struct tensor section_tensor(const struct graph_section *s, const struct memory *buffers, int value,
                             uint64_t rows)
{
    const struct graph_value *v = &s->graph->values[value];
    const struct section_view *view = &s->views[value];
    struct tensor t =
        tensor_rows(buffers[s->buffer_of[value]], v->dtype, rows, graph_value_width(v));
    if (view->of != SECTION_NO_VIEW) {
        t.strides[0] = graph_value_width(&s->graph->values[view->of]);
        t.offset = view->first * dtype_info(v->dtype)->block_bytes;
    }
    return t;
}
