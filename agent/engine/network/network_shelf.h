/* What plans of one network for several batches have in common, kept once: packed weights that are
 * the same to the byte, and the arena, since one plan runs at a time. Used by one thread. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_SHELF_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_SHELF_H

#include <stddef.h>
#include <stdint.h>

struct network_shelf;

/* NULL: no memory. */
struct network_shelf *network_shelf_create(void);
/* After all plans. */
void network_shelf_destroy(struct network_shelf **s);

/* Takes allocated memory over: gives back what holds the same bytes and stays until the shelf goes;
 * NULL: no memory, and `data` is freed. */
const void *network_shelf_keep(struct network_shelf *s, void *data, size_t bytes);
/* What is kept of `data` is used, if anything is; network_shelf_trim frees what nobody has said
 * this of since it was last called. */
void network_shelf_use(struct network_shelf *s, const void *data);
void network_shelf_trim(struct network_shelf *s);
/* An arena of at least so many bytes, aligned to 64, which others use as well; NULL: no memory. The
 * largest is best asked for first. */
void *network_shelf_arena(struct network_shelf *s, uint64_t bytes);
/* All that it holds. */
uint64_t network_shelf_bytes(const struct network_shelf *s);

#endif
