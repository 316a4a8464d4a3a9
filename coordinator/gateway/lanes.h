/* The gateway's share of the worker threads (requests.h's `work`). What takes long (templates,
 * tokenizers, grammars, the JSON of large bodies) waits here for its turn, bounded, in two lanes:
 * one large piece at a time, and beside it small ones, which do not wait for large ones. All on the
 * loop's thread but `run`. */
#ifndef HP_COORDINATOR_GATEWAY_LANES_H
#define HP_COORDINATOR_GATEWAY_LANES_H

#include <jansson.h>
#include <stddef.h>

#include "common/status.h"
#include "coordinator/requests.h"
#include "coordinator/work.h"

enum {
    LANES_LARGE_BYTES = 65536, /* from here on a piece is large */
    LANES_SMALL_AT_ONCE = 2,
    LANES_MAX_WAITING = 1024,
    LANES_MAX_BYTES = 256 << 20, /* of all pieces together */
};

struct lanes;

/* One piece; embedded in what it works on, which must live until `done`. */
struct piece {
    struct coord_work work;
    void (*run)(struct piece *p); /* on a worker thread */
    /* On the loop, once. `why` is NULL when it ran, else it did not: no thread took it, or the
     * coordinator ends. */
    void (*done)(struct piece *p, const struct err *why);
    /* The lanes' own. */
    struct lanes *lanes;
    struct piece *next;
    size_t bytes;
};

/* NULL: no memory. */
struct lanes *lanes_create(const struct requests *requests);
/* Pieces that wait are done before it returns; those that run are done when they have run. */
void lanes_close(struct lanes **lanes);
/* Puts a piece (run and done are set) in its lane. HP_EBUSY: too many wait, and `done` is not
 * called. `bytes` is the size of what is worked on. */
int lanes_add(struct lanes *lanes, struct piece *p, size_t bytes, struct err *e);

/* Frees a tree that was made of so many bytes: of a large one in its lane, since that takes as long
 * as a tenth of its making. To be called where `lanes` may be; NULL, or HP_EBUSY: it is freed here.
 */
void lanes_drop_tree(struct lanes *lanes, json_t **root, size_t bytes);

#endif
