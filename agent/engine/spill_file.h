/* What a stage keeps of a chain of tokens, as the bytes of a file: a head (what was computed, under
 * which names, in which shape), keys and values page by page of each block, and a digest of all
 * before it. Nothing of a file is believed before its digest was. Pure; threads of any kind. */
#ifndef HP_AGENT_ENGINE_SPILL_FILE_H
#define HP_AGENT_ENGINE_SPILL_FILE_H

#include "agent/engine/kv_shape.h"
#include "common/bytes.h"
#include "common/digest.h"

enum { SPILL_PAGES_MAX = 4096 }; /* of a chain */

/* Whose keys and values these are. */
struct spill_head {
    struct digest identity;     /* of model, layers and arithmetic */
    uint32_t n_pages;           /* from the first position on */
    const struct digest *pages; /* [n_pages]: each covers the tokens of all pages up to it */
    struct kv_shape shape;
};

/* With so many of its first pages a sequence may begin, and with any more up to all of them: of
 * layers with a window the file has what a token behind all of them sees. */
uint32_t spill_file_least(const struct spill_head *h);
/* Bytes of the file. */
uint64_t spill_file_bytes(const struct spill_head *h);
/* Makes the file in an empty buffer, but for keys and values, for which it returns room (in the
 * order of spill_file_next), and for the digest. NULL: no memory. */
uint8_t *spill_file_begin(struct buffer *b, const struct spill_head *h);
/* Writes the digest of a whole file behind its other bytes. */
void spill_file_seal(uint8_t *data, size_t size);

/* Reads the head alone, from the first `size` bytes of a file, and where keys and values begin:
 * `out` points into them. HP_EPARSE: this is no such file, or fewer bytes than its head has. */
int spill_file_head(const void *data, size_t size, struct spill_head *out, size_t *begin,
                    struct err *e);
/* Whether a whole file is as it was written. HP_EPARSE: cut short, longer, or changed. */
int spill_file_check(const void *data, size_t size, struct err *e);

/* The next piece of the chain's keys and values: a page of a block. False: that was all. */
static inline bool spill_file_next(const struct spill_head *h, struct kv_cursor *at,
                                   struct kv_range *out)
{
    return kv_shape_next(&h->shape, h->n_pages * KV_PAGE_TOKENS, 1, at, out);
}
/* Whether both keep the same of a token, in the same layers. */
bool spill_shape_same(const struct kv_shape *a, const struct kv_shape *b);

#endif
