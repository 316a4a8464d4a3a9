/* Plans on a device: on which side values are, and what has to be there before steps run. */
#include <assert.h>
#include <string.h>

#include "agent/engine/network/network_int.h"

enum { LOOKED_FOR_BYTES = 1 << 16 /* weights of fewer are known by what they are */ };

/* ---- values ---- */

static uint8_t *root_there(const struct network_plan *p, const struct network_root *r)
{
    return (uint8_t *)p->facts->device->arena.data + r->offset;
}

const float *network_there_in(struct network_plan *p, const struct network_view *v)
{
    struct network_root *r = &p->roots[v->root];
    if (r->fixed) {
        assert(r->kept);
        return (const float *)r->kept + v->offset;
    }
    assert(r->is_here || r->is_there);
    if (!r->is_there)
        network_device_send(p->facts->device, root_there(p, r), p->arena + r->offset, r->bytes);
    r->is_there = true;
    return (const float *)(const void *)root_there(p, r) + v->offset;
}

float *network_there_out(struct network_plan *p, const struct network_view *v)
{
    struct network_root *r = &p->roots[v->root];
    if (r->is_here) /* others may have written a part of it */
        network_there_in(p, v);
    r->is_there = true;
    r->is_here = false;
    return (float *)(void *)root_there(p, r) + v->offset;
}

void network_there_elements(struct network_plan *p, struct array_elements c,
                            const struct network_view *out, const struct network_view *x,
                            const struct network_view *y)
{
    const struct network_device *d = p->facts->device;
    c.x = x ? network_there_in(p, x) : NULL;
    c.y = y ? network_there_in(p, y) : NULL;
    c.out = network_there_out(p, out);
    d->arrays->elements(d->stream, &c);
}

int network_here_in(struct network_plan *p, int root, struct err *e)
{
    struct network_device *d = p->facts->device;
    struct network_root *r = &p->roots[root];
    if (!d || r->fixed || r->is_here)
        return 0;
    assert(r->is_there);
    network_device_fetch(d, p->arena + r->offset, root_there(p, r), r->bytes);
    r->is_here = true;
    return network_device_wait(d, e);
}

int network_here_out(struct network_plan *p, int root, struct err *e)
{
    struct network_device *d = p->facts->device;
    struct network_root *r = &p->roots[root];
    r->is_here = true;
    r->is_there = false;
    return d && d->sends ? network_device_wait(d, e) : 0;
}

/* ---- before runs, and behind them ---- */

static bool root_enters(const struct network_plan *p, int root, int first)
{
    const struct network_root *r = &p->roots[root];
    bool is_input = false;
    for (int i = 0; i < p->o->n_inputs && first <= 0; i++)
        is_input |= p->in_roots[i] == root;
    return is_input || (first > 0 && network_root_crosses(r, first));
}

/* Another plan, for which there was no larger arena, may have lost it. */
int network_there_begin(struct network_plan *p, int first, struct err *e)
{
    int rc = network_device_arena(p->facts->device, p->arena_bytes, e);
    for (int i = 0; i < p->n_roots; i++) {
        p->roots[i].is_there = false;
        p->roots[i].is_here = !p->roots[i].fixed && root_enters(p, i, first);
    }
    return rc;
}

int network_there_end(struct network_plan *p, int end, struct err *e)
{
    struct network_device *d = p->facts->device;
    for (int i = 0; i < p->n_roots; i++) {
        struct network_root *r = &p->roots[i];
        if (!network_root_crosses(r, end) || r->is_here || !r->is_there)
            continue;
        network_device_fetch(d, p->arena + r->offset, root_there(p, r), r->bytes);
        r->is_here = true;
    }
    return network_device_wait(d, e);
}

/* ---- made ready ---- */

/* Whether it lies where it does as long as the network is open. */
static bool root_stays(const struct network_plan *p, const struct network_root *r)
{
    for (int v = 0; !r->owns && r->fixed_bytes >= LOOKED_FOR_BYTES && v < p->o->n_values; v++) {
        const struct ndarray *a = network_constant(p->network, v);
        if (a && a->data == r->fixed)
            return true;
    }
    return false;
}

int network_there_ready(struct network_plan *p, int first, int end, struct err *e)
{
    struct network_device *d = p->facts->device;
    int rc = 0;
    for (int i = 0; i < p->n_roots && rc == 0; i++) {
        struct network_root *r = &p->roots[i];
        if (r->fixed && r->last >= first && r->first < end)
            rc = network_device_keep(d, r->fixed, r->fixed_bytes, root_stays(p, r), &r->kept, e);
    }
    int waited = network_device_wait(d, rc < 0 ? &(struct err){0} : e);
    return rc < 0 ? rc : waited;
}
