/* What plans of one network for several batches have in common, kept once: packed weights that are
 * the same to the byte, and the arena, since one plan runs at a time. Used by one thread; packed
 * weights are those of the other networks of an account too. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_SHELF_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_SHELF_H

#include "agent/engine/network/network_memory.h"

struct network_shelf;

/* NULL: no memory. `account` (NULL: nobody counts) is copied. */
struct network_shelf *network_shelf_create(const struct network_account *account);
/* After all plans. */
void network_shelf_destroy(struct network_shelf **s);

/* Takes allocated memory over, also on failure: *out holds the same bytes and stays until the shelf
 * goes. HP_ENOMEM. */
int network_shelf_keep(struct network_shelf *s, void *data, size_t bytes, const void **out,
                       struct err *e);
/* The opposite: it goes when as often dropped as kept. */
void network_shelf_drop(struct network_shelf *s, const void *data);
/* What is kept of `data` is used, if anything is; network_shelf_trim frees what nobody has said
 * this of since it was last called. */
void network_shelf_use(struct network_shelf *s, const void *data);
void network_shelf_trim(struct network_shelf *s);
/* An arena of at least so many bytes, a multiple of 64 and aligned to it, which others use as well.
 * The largest is best asked for first. HP_ENOMEM. */
int network_shelf_arena(struct network_shelf *s, uint64_t bytes, void **out, struct err *e);
/* Nobody uses an arena any more. */
void network_shelf_arenas_free(struct network_shelf *s);
/* Nobody uses anything of it any more. */
void network_shelf_clear(struct network_shelf *s);
/* All that it holds. */
uint64_t network_shelf_bytes(const struct network_shelf *s);

#endif
