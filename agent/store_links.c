#include "agent/store_links.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct store_flow {
    atomic_int references; /* the link's, and one of each frame under way */
    atomic_int under_way;
};

static void flow_release(struct store_flow *f)
{
    if (f && atomic_fetch_sub(&f->references, 1) == 1)
        free(f);
}

/* On the endpoint's thread, when the link may be long gone. */
static void flow_done(void *ctx, int status)
{
    struct store_flow *f = ctx;
    (void)status; /* whoever waits asks again */
    atomic_fetch_sub(&f->under_way, 1);
    flow_release(f);
}

static void link_close(struct store_links *l, size_t i)
{
    data_disconnect(&l->items[i].link);
    flow_release(l->items[i].flow);
    free(l->items[i].address);
    l->items[i] = l->items[--l->count];
}

static int link_open(struct store_links *l, const uint8_t *address, size_t size,
                     struct store_link *out, struct err *e)
{
    *out = (struct store_link){
        .address = malloc(size ? size : 1), .size = size, .flow = calloc(1, sizeof *out->flow)};
    int rc =
        !out->address || !out->flow ? err_set(e, HP_ENOMEM, "no memory for a link to a peer") : 0;
    if (rc == 0 && !size)
        rc = err_set(e, HP_EINVAL, "a peer without an address");
    rc = rc < 0 ? rc : data_connect(l->data, address, size, &out->link, e);
    if (rc < 0) {
        free(out->address);
        free(out->flow);
        return rc;
    }
    memcpy(out->address, address, size);
    out->number = data_link_number(out->link);
    atomic_init(&out->flow->references, 1);
    return 0;
}

int store_links_get(struct store_links *l, const uint8_t *address, size_t size,
                    struct store_link **out, struct err *e)
{
    size_t oldest = 0;
    for (size_t i = 0; i < l->count; i++) {
        struct store_link *k = &l->items[i];
        if (k->size == size && memcmp(k->address, address, size) == 0) {
            if (!k->down) {
                k->used = ++l->clock;
                *out = k;
                return 0;
            }
            link_close(l, i--);
            continue;
        }
        if (k->used < l->items[oldest].used)
            oldest = i;
    }
    if (l->count == STORE_MAX_LINKS)
        link_close(l, oldest);
    struct store_link made;
    int rc = link_open(l, address, size, &made, e);
    if (rc < 0)
        return rc;
    made.used = ++l->clock;
    l->items[l->count] = made;
    *out = &l->items[l->count++];
    return 0;
}

struct store_link *store_links_find(struct store_links *l, uint64_t number)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i].number == number)
            return &l->items[i];
    return NULL;
}

void store_links_close(struct store_links *l)
{
    while (l->count)
        link_close(l, 0);
}

void store_link_post(struct store_link *l, const struct frame_header *h, struct data_buffer *b)
{
    atomic_fetch_add(&l->flow->references, 1);
    atomic_fetch_add(&l->flow->under_way, 1);
    data_post(l->link, h, b, flow_done, l->flow);
}

int store_link_under_way(const struct store_link *l)
{
    return atomic_load(&l->flow->under_way);
}
