/* Sets of characters (code points without surrogates), as ranges in order that neither touch nor
 * overlap. */
#ifndef HP_MODEL_GRAMMAR_CHAR_SET_H
#define HP_MODEL_GRAMMAR_CHAR_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHAR_MAX_POINT = 0x10FFFF, CHAR_SET_MAX_RANGES = 1024 };

struct char_range {
    uint32_t low, high;
};

/* Zero-initialised is empty; char_set_free ends it. Want of memory and more than
 * CHAR_SET_MAX_RANGES ranges leave it `failed`. */
struct char_set {
    struct char_range *ranges;
    size_t count, room;
    bool failed;
};

/* Characters from `low` to `high`, both among them. */
void char_set_add(struct char_set *s, uint32_t low, uint32_t high);
void char_set_add_all(struct char_set *s, const struct char_range *ranges, size_t n);
/* In order, joined, without surrogates. To be called after the last addition. */
void char_set_settle(struct char_set *s);
/* Of settled sets: all that is not in it; what is in both. */
void char_set_negate(struct char_set *s);
void char_set_intersect(struct char_set *s, const struct char_range *with, size_t n);
void char_set_free(struct char_set *s);

#endif
