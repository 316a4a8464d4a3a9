/* What a stage keeps of each token, group by group: enough to say which keys and values of a
 * sequence are to go from one stage to another, and in which pieces. Plain data. */
#ifndef HP_AGENT_ENGINE_KV_SHAPE_H
#define HP_AGENT_ENGINE_KV_SHAPE_H

#include <stdbool.h>

#include "common/kv_format.h"
#include "common/kv_range.h"

enum { KV_GROUPS_MAX = 8 };

struct kv_shape_group {
    uint32_t first_block, n_blocks; /* that the stage has; none: n_blocks 0 */
    uint32_t window;                /* 0: none */
    uint32_t token_bytes;           /* what is kept of one token in one block */
    enum kv_format format;
};

struct kv_shape {
    uint32_t n_groups; /* of the model */
    struct kv_shape_group groups[KV_GROUPS_MAX];
};

/* What is kept of so many bytes of a token, in another format: false where these are no whole
 * blocks of it, and then nothing has changed. */
bool kv_shape_group_as(struct kv_shape_group *g, enum kv_format format);
/* Every group in whichever of its own format and that one has fewer bytes: what crosses to a stage
 * that keeps keys and values so. */
void kv_shape_narrow(struct kv_shape *s, enum kv_format format);

/* Bytes of a range, which is [block][part][token][kv head][head dim] (backend.h); 0: not all of its
 * blocks are on this stage. */
uint64_t kv_shape_bytes(const struct kv_shape *s, const struct kv_range *r);

/* Bytes of what the stage has of a sequence of `length` tokens and a later token may see. */
uint64_t kv_shape_whole_bytes(const struct kv_shape *s, uint32_t length);

/* How far a sequence's keys and values have been cut into pieces; zero-initialised: not at all. Of
 * one that is cut while it grows, tokens [from, upto) are cut next: `from` is the first of a page,
 * so is `upto`, where it is not the whole length. */
struct kv_cursor {
    uint32_t group, block, first;
    uint32_t from, upto; /* upto 0: the whole length */
};
/* The next piece of what the stage has of a sequence of `length` tokens and a later token may see
 * (from the page where that begins): of at most `most_bytes`, or one page of one
 * block. False: that was all. */
bool kv_shape_next(const struct kv_shape *s, uint32_t length, uint64_t most_bytes,
                   struct kv_cursor *at, struct kv_range *out);

#endif
