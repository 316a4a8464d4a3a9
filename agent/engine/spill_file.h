/* What a stage keeps of a chain of tokens, as the bytes of a file: a head (what was computed, under
 * which names, in which shape), keys and values page by page of each block, and a digest of all
 * before it. Nothing of a file is believed before its digest was. Pure; threads of any kind. */
#ifndef HP_AGENT_ENGINE_SPILL_FILE_H
#define HP_AGENT_ENGINE_SPILL_FILE_H

#include "agent/engine/kv_shape.h"
#include "common/bytes.h"
#include "common/digest.h"

enum { SPILL_PAGES_MAX = 4096 }; /* of a chain */

/* Whose keys and values these are. A file need not have all that a sequence begins with: those of
 * pages that other chains begin with, too, lie in another file. */
struct spill_head {
    struct digest identity;     /* of model, layers and arithmetic */
    uint32_t n_pages;           /* from the first position on */
    const struct digest *pages; /* [n_pages]: each covers the tokens of all pages up to it */
    struct kv_shape shape;
    uint32_t first;               /* so many of the first pages are another file's */
    uint32_t from[KV_GROUPS_MAX]; /* of each group there are pages [from, n_pages) */
};

/* The first page of a group that a token behind so many pages sees. */
uint32_t spill_page_seen(const struct kv_shape *s, uint32_t group, uint32_t n_pages);
/* Of a file that has all that a token behind its pages sees. */
struct spill_head spill_head_whole(const struct digest *identity, const struct digest *pages,
                                   uint32_t n_pages, const struct kv_shape *shape);
/* Bytes of the file; 0: more than can be counted. */
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

/* The next piece of the file's keys and values: a page of a block; *at begins as zeros. False: that
 * was all. */
bool spill_file_next(const struct spill_head *h, struct kv_cursor *at, struct kv_range *out);

/* Of each group pages [least, upto) are wanted of files that are read one after the other, a
 * chain's own first, then that of the pages before, and so on. */
struct spill_wanted {
    uint32_t least[KV_GROUPS_MAX], upto[KV_GROUPS_MAX];
};
/* What a sequence of `n_pages` sees, but for its first `kept` pages, which it has. */
struct spill_wanted spill_wanted_of(const struct kv_shape *s, uint32_t n_pages, uint32_t kept);
/* Whether this piece of the file is. */
bool spill_wanted_has(const struct spill_wanted *w, const struct kv_range *piece);
/* The file of that head has been read; whether any of it was wanted. */
bool spill_wanted_pass(struct spill_wanted *w, const struct spill_head *h);

/* Whether both keep the same of a token, in the same layers. */
bool spill_shape_same(const struct kv_shape *a, const struct kv_shape *b);

#endif
