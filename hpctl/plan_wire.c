#include "hpctl/plan_wire.h"

#include "transport/frame.h"

int plan_wire_apply(const char *wire, struct profile *p, struct err *e)
{
    enum frame_dtype dtype;
    if (!frame_dtype_of_word(wire, &dtype))
        return err_set(e, HP_EUSAGE, "rows cross as " FRAME_DTYPES_KNOWN ", not as \"%.40s\"",
                       wire);
    for (int i = 0; i < p->n_layers; i++)
        p->layers[i].output_bytes_per_token *= frame_dtype_ratio(dtype);
    return 0;
}
