/* The chunks of a manifest by their digests: a frame names what it brings by content, and a model
 * of 140 GB has 35 000 chunks. Pure; whoever uses it owns it. */
#ifndef HP_AGENT_CHUNK_INDEX_H
#define HP_AGENT_CHUNK_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "common/manifest.h"

struct chunk_index {
    const struct manifest *manifest; /* outlives the index */
    uint32_t *by_digest;             /* all numbers, sorted by digest, then by number */
};

/* HP_ENOMEM. */
int chunk_index_make(const struct manifest *m, struct chunk_index *out, struct err *e);
void chunk_index_free(struct chunk_index *x);

/* How many chunks have these DIGEST_BYTES (weights may repeat), and their numbers, rising. */
size_t chunk_index_find(const struct chunk_index *x, const uint8_t *digest,
                        const uint32_t **numbers);

#endif
