#include "agent/spill_store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/event_queue.h"
#include "common/env.h"
#include "common/log.h"

enum {
    SAVE_MOST_S = 20,  /* of the end; service managers wait for 30 s and more */
    TOLD_CHAINS = 64,  /* in one report */
    HEARERS_MOST = 64, /* stages of an agent */
    MEASURED_BYTES = 4 << 20,
};

enum spill_order_kind { SPILL_PUT, SPILL_GET, SPILL_TELL, SPILL_FORGET, SPILL_QUIT, SPILL_ORDERS };

struct spill_order {
    enum spill_order_kind kind;
    struct spill_want want; /* TELL: slot and identity of it; FORGET: slot */
    struct spill_image *image;
};

/* A stage that is told of chains. */
struct spill_hearer {
    uint64_t slot;
    struct digest identity;
};

struct spill_store {
    struct spill_store_config config;
    struct event_queue orders;
    pthread_t thread;
    bool started, opened;
    struct spill_shelf shelf; /* the thread's, as what follows */
    struct spill_hearer hearers[HEARERS_MOST];
    size_t n_hearers;
    atomic_ullong counted; /* bytes of all images */
    _Atomic double bytes_per_s;
};

static void store_report(struct spill_store *s, uint64_t slot, bool anew,
                         const struct message_spill *chains, size_t n)
{
    s->config.told(s->config.ctx,
                   &(struct spill_report){.slot = slot,
                                          .anew = anew,
                                          .chains = chains,
                                          .n_chains = n,
                                          .memory_bytes_per_s = atomic_load(&s->bytes_per_s),
                                          .disk_bytes_per_s = s->shelf.disk_bytes_per_s,
                                          .memory_bytes = s->shelf.memory_bytes,
                                          .disk_bytes = s->shelf.disk_bytes,
                                          .dropped = s->shelf.dropped});
}

static struct message_spill spill_row(const struct spill_entry *x, bool disk, bool gone)
{
    size_t n = x->head.n_pages - x->least + 1; /* with fewer none may begin */
    return (struct message_spill){
        {(const uint8_t *)(x->head.pages + x->least - 1), n * sizeof *x->head.pages}, disk, gone};
}

static bool identity_is(const struct spill_entry *x, const struct digest *identity)
{
    return memcmp(&x->head.identity, identity, sizeof *identity) == 0;
}

static void shelf_changed(void *ctx, const struct spill_entry *x, bool disk, bool gone)
{
    struct spill_store *s = ctx;
    struct message_spill row = spill_row(x, disk, gone);
    for (size_t i = 0; i < s->n_hearers; i++)
        if (identity_is(x, &s->hearers[i].identity))
            store_report(s, s->hearers[i].slot, false, &row, 1);
}

static void hearer_remove(struct spill_store *s, uint64_t slot)
{
    for (size_t i = s->n_hearers; i-- > 0;)
        if (s->hearers[i].slot == slot)
            s->hearers[i] = s->hearers[--s->n_hearers];
}

/* One more that hears of these; where there are too many, another hears no more. */
static void hearer_add(struct spill_store *s, uint64_t slot, const struct digest *identity)
{
    hearer_remove(s, slot);
    if (s->n_hearers == HEARERS_MOST)
        s->n_hearers--;
    s->hearers[s->n_hearers++] = (struct spill_hearer){slot, *identity};
}

static void store_tell(struct spill_store *s, uint64_t slot, const struct digest *identity)
{
    struct message_spill rows[TOLD_CHAINS];
    size_t n = 0, pages = 0;
    bool anew = true;
    hearer_add(s, slot, identity);
    for (size_t i = 0; i < s->shelf.n_entries; i++) {
        const struct spill_entry *x = s->shelf.entries[i];
        if (!identity_is(x, identity))
            continue;
        if (n == TOLD_CHAINS || pages + x->head.n_pages > SPILL_PAGES_MAX) {
            store_report(s, slot, anew, rows, n);
            anew = false;
            n = pages = 0;
        }
        pages += x->head.n_pages;
        rows[n++] = spill_row(x, !x->image, false);
    }
    store_report(s, slot, anew, rows, n);
}

/* Of all images, those that are being read back among them. */
static uint64_t images_most(const struct spill_store *s)
{
    return s->config.memory_bytes + s->config.transit_bytes;
}

static void store_get(struct spill_store *s, const struct spill_want *w)
{
    struct err e = {0};
    struct spill_found *f = NULL;
    if (atomic_load(&s->counted) > images_most(s))
        err_set(&e, HP_EBUSY, "too much is being read back at once");
    else
        f = spill_shelf_get(&s->shelf, &w->identity, w->n_pages, &w->page, w->kept, &e);
    s->config.found(s->config.ctx, w, f, f ? NULL : &e);
}

static void order_do(struct spill_store *s, const struct spill_order *o)
{
    switch (o->kind) {
    case SPILL_PUT: spill_shelf_put(&s->shelf, o->image); return;
    case SPILL_GET: store_get(s, &o->want); return;
    case SPILL_TELL: store_tell(s, o->want.slot, &o->want.identity); return;
    case SPILL_FORGET: hearer_remove(s, o->want.slot); return;
    case SPILL_QUIT:
    case SPILL_ORDERS: return;
    }
}

static void *spill_thread(void *ctx)
{
    struct spill_store *s = ctx;
    struct spill_order o;
    pthread_setname_np(pthread_self(), "hp-spill");
    while (event_queue_wait(&s->orders, &o, -1) && o.kind != SPILL_QUIT)
        order_do(s, &o);
    return NULL;
}

/* What copying within memory gives, until something has been read back: the best of a few, since
 * others may have the core meanwhile. */
static double copy_measure(void)
{
    enum { COPIES = 5 };
    uint8_t *a = malloc(2 * MEASURED_BYTES);
    double best = 0;
    if (!a)
        return 0;
    memset(a, 1, 2 * MEASURED_BYTES);
    for (int i = 0; i < COPIES; i++) {
        uint64_t from_ns = env_now_ns(&env_real);
        memcpy(a + i % 2 * MEASURED_BYTES, a + (i + 1) % 2 * MEASURED_BYTES, MEASURED_BYTES);
        double seconds = (double)(env_now_ns(&env_real) - from_ns) * 1e-9;
        best = seconds > 0 && MEASURED_BYTES / seconds > best ? MEASURED_BYTES / seconds : best;
    }
    volatile uint8_t kept = a[MEASURED_BYTES - 1];
    (void)kept;
    free(a);
    return best;
}

int spill_store_open(const struct spill_store_config *c, struct spill_store **out, struct err *e)
{
    static const uint32_t places[SPILL_ORDERS] = {1024, 4096, 1024, 1024, 1};
    struct spill_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for what is spilled");
    s->config = *c;
    atomic_init(&s->bytes_per_s, copy_measure());
    event_queue_init_classes(&s->orders, sizeof(struct spill_order), places, SPILL_ORDERS);
    s->shelf = (struct spill_shelf){.memory_limit = c->memory_bytes,
                                    .disk_limit = c->disk_bytes,
                                    .save_most_ns = SAVE_MOST_S * UINT64_C(1000000000),
                                    .counted = &s->counted,
                                    .changed = shelf_changed,
                                    .ctx = s};
    snprintf(s->shelf.folder, sizeof s->shelf.folder, "%s", c->folder);
    int rc = s->orders.places[SPILL_QUIT] ? spill_shelf_open(&s->shelf, e)
                                          : err_set(e, HP_ENOMEM, "no memory for spill orders");
    s->opened = rc == 0;
    if (rc == 0 && pthread_create(&s->thread, NULL, spill_thread, s) != 0)
        rc = err_set(e, HP_ENOMEM, "cannot start the thread that spills");
    s->started = rc == 0;
    if (rc < 0)
        spill_store_close(&s);
    else
        *out = s;
    return rc;
}

void spill_store_stop(struct spill_store *s)
{
    struct spill_order o = {.kind = SPILL_QUIT};
    if (!s || !s->started)
        return;
    event_queue_put_as(&s->orders, SPILL_QUIT, &o); /* its place is its own */
    pthread_join(s->thread, NULL);
    s->started = false;
    s->n_hearers = 0;
}

void spill_store_close(struct spill_store **ps)
{
    struct spill_store *s = *ps;
    struct spill_order o;
    if (!s)
        return;
    spill_store_stop(s);
    while (event_queue_take(&s->orders, &o))
        if (o.kind == SPILL_PUT)
            spill_shelf_put(&s->shelf, o.image);
    spill_shelf_close(&s->shelf, s->opened);
    event_queue_fini(&s->orders);
    free(s);
    *ps = NULL;
}

static bool order_put(struct spill_store *s, const struct spill_order *o)
{
    return event_queue_put_as(&s->orders, o->kind, o);
}

struct spill_image *spill_store_image(struct spill_store *s, const struct spill_head *h,
                                      uint8_t **keys)
{
    uint64_t bytes = spill_file_bytes(h), most = images_most(s);
    if (bytes > most || atomic_load(&s->counted) > most - bytes)
        return NULL;
    return spill_image_make(h, &s->counted, keys);
}

void spill_store_put(struct spill_store *s, struct spill_image *i)
{
    struct spill_order o = {.kind = SPILL_PUT, .image = i};
    if (!order_put(s, &o))
        spill_image_release(i);
}

void spill_store_get(struct spill_store *s, const struct spill_want *w)
{
    struct err e = {0};
    if (order_put(s, &(struct spill_order){.kind = SPILL_GET, .want = *w}))
        return;
    err_set(&e, HP_EBUSY, "too much is to be read back at once");
    s->config.found(s->config.ctx, w, NULL, &e);
}

void spill_store_tell(struct spill_store *s, uint64_t slot, const struct digest *identity)
{
    struct spill_order o = {.kind = SPILL_TELL, .want = {.slot = slot, .identity = *identity}};
    if (!order_put(s, &o))
        log_warn_limited("agent", "spills_not_told", "slot=%llu", (unsigned long long)slot);
}

void spill_store_forget(struct spill_store *s, uint64_t slot)
{
    struct spill_order o = {.kind = SPILL_FORGET, .want = {.slot = slot}};
    order_put(s, &o); /* else the next one of its name is told in its place */
}

void spill_store_measured(struct spill_store *s, uint64_t bytes, double seconds)
{
    if (seconds > 0 && bytes >= MEASURED_BYTES / 64)
        atomic_store(&s->bytes_per_s,
                     0.5 * atomic_load(&s->bytes_per_s) + 0.5 * (double)bytes / seconds);
}
