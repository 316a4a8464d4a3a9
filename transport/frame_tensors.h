/* The payload of FRAME_TENSORS: a batch of requests of one network on its way through the shares of
 * a plan of pools (PPipe, USENIX ATC 2025, section 5.4), from the coordinator to the first share,
 * from share to share, and with its results back to the coordinator.
 *
 * The header's `deployment` and `generation` say the plan, `stage` the receiving share, `batch` the
 * batch, `n_tokens` how many samples it has, `n_runs` how many legs, and `first_position` which leg
 * the receiver is; n_runs: the coordinator. The payload is the legs, then a table of tensors, then
 * their elements, each tensor at a multiple of 64 bytes: inputs by the network's order to the first
 * share, between shares what crosses there, outputs by the network's order back. Pure: any
 * thread. */
#ifndef HP_TRANSPORT_FRAME_TENSORS_H
#define HP_TRANSPORT_FRAME_TENSORS_H

#include "transport/frame.h"

enum {
    FRAME_MAX_LEGS = 16,
    FRAME_LEG_BYTES = 48,
    FRAME_MAX_TENSORS = 1024,
    FRAME_TENSOR_DIMS = 8,
    FRAME_TENSOR_ALIGNMENT = 64
};

/* One share on a batch's way. Times are those of the clock of whoever is named. */
struct frame_leg {
    uint32_t share;   /* its number in the plan */
    uint32_t peer;    /* its agent's row of share_connect */
    uint64_t send_ns; /* the sender's: the batch does not leave for this share before; 0: at once */
    uint64_t start_ns; /* this agent's: it is not computed before; 0: at once */
    uint64_t arrived_ns, began_ns, ended_ns; /* this agent's: as it was; 0: not yet */
};

struct frame_tensor {
    uint32_t type; /* enum ndarray_type: of people who read the elements */
    uint32_t n_dims;
    int64_t dims[FRAME_TENSOR_DIMS];
    const void *data;
    uint64_t bytes;
};

/* Bytes of the payload; 0: more than FRAME_MAX_PAYLOAD_BYTES. Of the tensors `bytes` counts. */
uint64_t frame_tensors_size(int n_legs, const struct frame_tensor *tensors, int n);
/* Writes a payload of that size. Tensors whose data is NULL are left to the caller to fill:
 * frame_tensors_decode tells where they lie. */
void frame_tensors_encode(const struct frame_leg *legs, int n_legs,
                          const struct frame_tensor *tensors, int n, uint8_t *out);
/* Reads legs[h->n_runs] and up to `max` tensors, whose data points into the payload, and checks
 * that all lies within it. *n is how many there are. HP_EPROTO. */
int frame_tensors_decode(const struct frame_header *h, const uint8_t *payload,
                         struct frame_leg legs[FRAME_MAX_LEGS], struct frame_tensor *tensors,
                         int max, int *n, struct err *e);

#endif
