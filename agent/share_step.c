#include "agent/share_step.h"

#include <stdlib.h>
#include <string.h>

struct share_step {
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[FRAME_MAX_TENSORS];
    struct ndarray arrays[FRAME_MAX_TENSORS];
    int n_legs, n;
};

struct share_step *share_step_new(void)
{
    return calloc(1, sizeof(struct share_step));
}

void share_step_free(struct share_step **s)
{
    free(*s);
    *s = NULL;
}

/* What a tensor's row says is not believed before its bytes agree. */
static int array_read(const struct frame_tensor *t, int i, struct ndarray *a, struct err *e)
{
    union {
        const void *in;
        void *out;
    } data = {t->data};
    if (t->type >= ND_TYPE_COUNT || !ndarray_type_bytes((enum ndarray_type)t->type) ||
        ndarray_shape(a, (enum ndarray_type)t->type, (int)t->n_dims, t->dims, NULL) < 0 ||
        ndarray_bytes(a) != t->bytes)
        return err_set(e, HP_EPROTO, "tensor %d of a batch has type %u and %llu bytes", i, t->type,
                       (unsigned long long)t->bytes);
    a->data = data.out;
    a->owned = false;
    return 0;
}

int share_step_read(struct share_step *s, const struct frame_header *h, const uint8_t *payload,
                    struct err *e)
{
    int rc = frame_tensors_decode(h, payload, s->legs, s->tensors, FRAME_MAX_TENSORS, &s->n, e);
    for (int i = 0; rc == 0 && i < s->n; i++)
        rc = array_read(&s->tensors[i], i, &s->arrays[i], e);
    s->n_legs = h->n_runs;
    return rc;
}

int share_step_is_for(const struct share_step *s, const struct frame_header *h, uint32_t share,
                      uint64_t *start_ns, struct err *e)
{
    if (h->first_position >= (uint32_t)s->n_legs)
        return err_set(e, HP_EPROTO, "a batch came at leg %u of %d", h->first_position, s->n_legs);
    const struct frame_leg *leg = &s->legs[h->first_position];
    if (leg->share != share)
        return err_set(e, HP_EPROTO, "a batch for share %u came to share %u", leg->share, share);
    *start_ns = leg->start_ns;
    return 0;
}

struct frame_leg *share_step_leg(struct share_step *s, uint32_t leg)
{
    return &s->legs[leg < FRAME_MAX_LEGS ? leg : 0];
}

/* Samples and size, as the part names them; 0, which it does not have, of what cannot be. */
static int batch_of(const struct frame_header *h)
{
    return h->sequence < NETWORK_PART_SIZES && h->n_tokens <= NETWORK_PART_BATCH
               ? network_part_sized((int)h->sequence, (int)h->n_tokens)
               : 0;
}

int share_step_run(struct share_step *s, struct network_part *part, const struct frame_header *h,
                   struct err *e)
{
    return network_part_run(part, batch_of(h), s->arrays, s->n, e);
}

/* Rows of what the part gives, of which `tensors` holds no more what came in. */
static int tensors_of(struct share_step *s, const struct network_part *part, int batch)
{
    int n;
    const struct ndarray *made = network_part_leaves(part, batch, &n);
    for (int i = 0; i < n; i++) {
        s->tensors[i] = (struct frame_tensor){.type = made[i].type,
                                              .n_dims = (uint32_t)made[i].n_dims,
                                              .data = made[i].data,
                                              .bytes = ndarray_bytes(&made[i])};
        memcpy(s->tensors[i].dims, made[i].dims, (size_t)made[i].n_dims * sizeof *made[i].dims);
    }
    return n;
}

uint64_t share_step_out(struct share_step *s, const struct network_part *part,
                        const struct frame_header *in, struct frame_header *out, uint32_t *peer,
                        uint64_t *send_ns)
{
    uint32_t next = in->first_position + 1;
    bool ends = next >= (uint32_t)s->n_legs;
    *out = (struct frame_header){.kind = FRAME_TENSORS,
                                 .stage = ends ? 0 : (uint16_t)s->legs[next].share,
                                 .dtype = FRAME_BYTES,
                                 .n_runs = in->n_runs,
                                 .deployment = in->deployment,
                                 .generation = in->generation,
                                 .batch = in->batch,
                                 .sequence = in->sequence,
                                 .first_position = next,
                                 .n_tokens = in->n_tokens};
    *peer = ends ? 0 : s->legs[next].peer;
    *send_ns = ends ? 0 : s->legs[next].send_ns;
    return frame_tensors_size(s->n_legs, s->tensors, tensors_of(s, part, batch_of(in)));
}

void share_step_write(struct share_step *s, const struct network_part *part,
                      const struct frame_header *in, uint8_t *out)
{
    frame_tensors_encode(s->legs, s->n_legs, s->tensors, tensors_of(s, part, batch_of(in)), out);
}
