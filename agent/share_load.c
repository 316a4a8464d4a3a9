#include "agent/share_load.h"

#include <stdlib.h>

#include "model/text_network.h"
#include "transport/frame_tensors.h"

int share_part_threads(int device_threads, int part, int parts)
{
    int64_t all = device_threads, n = all * (part + 1) / parts - all * part / parts;
    return n > 1 ? (int)n : 1;
}

int share_part_open(const struct message_stage_prepare *p, const struct message_share *share,
                    const char *path, uint64_t limit_bytes, const atomic_bool *stop,
                    struct threads *threads, struct network_device *device,
                    const struct network_account *account, struct network_part **out, struct err *e)
{
    const struct message_dim *from = share->dims.items;
    struct network_dim *dims = calloc(share->dims.count + 1, sizeof *dims);
    struct onnx_network *network = NULL;
    size_t sizes = share->sizes ? share->sizes : 1;
    int rc = dims ? text_network_open(path, limit_bytes, &network, e) : err_no_memory(e, "a share");
    for (size_t i = 0; dims && i < share->dims.count; i++)
        dims[i] = (struct network_dim){from[i].symbol, (int64_t)from[i].size};
    const struct network_part_ask ask = {.dims = dims,
                                         .n_dims = (int)(share->dims.count / sizes),
                                         .n_sizes = (int)sizes,
                                         .n_blocks = (int)share->n_blocks,
                                         .bounds = share->bounds.count ? share->bounds.items : NULL,
                                         .first_block = (int)p->first_layer,
                                         .end_block = (int)p->end_layer,
                                         .batch = (int)share->batch,
                                         .threads = threads,
                                         .device = device,
                                         .account = account};
    if (rc == 0) {
        network_stop_on(network, stop);
        rc = network_part_open(&network, &ask, out, e);
    }
    free(dims);
    return rc;
}

/* What runs on zeros need not run well (an index out of its range): that is no reason to refuse
 * what it is made for. */
int share_part_warm(struct network_part *part, const atomic_bool *stop, struct err *e)
{
    for (int batch = network_part_next(part, 0); batch; batch = network_part_next(part, batch)) {
        struct err ignored = {0};
        int rc = network_part_warm(part, batch, &ignored);
        if (rc == HP_ENOMEM || rc == HP_EIO || atomic_load(stop)) {
            *e = ignored;
            return rc < 0 ? rc : err_set(e, HP_ECANCELED, "stopped");
        }
    }
    return 0;
}

uint64_t share_part_input_bytes(const struct network_part *part)
{
    uint64_t most = 0;
    for (int batch = network_part_next(part, 0); batch; batch = network_part_next(part, batch)) {
        int n;
        const struct ndarray *in = network_part_enters(part, batch, &n);
        uint64_t bytes = FRAME_MAX_LEGS * FRAME_LEG_BYTES;
        for (int i = 0; i < n; i++)
            bytes += ndarray_bytes(&in[i]) + 2 * FRAME_TENSOR_ALIGNMENT + 80;
        most = bytes > most ? bytes : most;
    }
    return most;
}
