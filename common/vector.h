/* The one way in which arrays grow: three variables of the caller's (the items, how many are there,
 * for how many there is room), which may be members of a struct and of any integer type. All zero
 * is an empty array; free() of the items ends it.
 *
 *     struct { struct gap *gaps; int n_gaps, room_gaps; } p;
 *     if (!vector_push(p.gaps, p.n_gaps, p.room_gaps, ((struct gap){at, from_ns, to_ns})))
 *         return err_no_memory(e, "a gap");
 *
 * Room doubles, so that n items cost O(n) copies. When memory runs out nothing has changed and the
 * answer is false. The arguments of the macros are evaluated more than once. */
#ifndef HP_COMMON_VECTOR_H
#define HP_COMMON_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The room for which a vector of `room` grows so that `wanted` items fit; 0: more than `most`. */
static inline size_t vector_room_for(size_t room, size_t wanted, size_t most)
{
    size_t more = room < 8 ? 8 : room;
    if (wanted > most)
        return 0;
    while (more < wanted)
        more = more > most / 2 ? most : 2 * more;
    return more < most ? more : most;
}

/* Moves the items whose pointer lies at `items_at` to where `wanted` of them have room, and gives
 * the new room; the old one when there is no memory. */
static inline size_t vector_grow(void *items_at, size_t room, size_t wanted, size_t item_bytes,
                                 size_t most)
{
    void *items;
    size_t more = vector_room_for(room, wanted, most), bytes;
    memcpy(&items, items_at, sizeof items);
    if (more == 0 || __builtin_mul_overflow(more, item_bytes, &bytes) || bytes > PTRDIFF_MAX)
        return room;
    items = realloc(items, bytes);
    if (!items)
        return room;
    memcpy(items_at, &items, sizeof items);
    return more;
}

/* Whether there is room for `wanted` items in all, made where it lacks. */
#define vector_reserve(items, room, wanted)                                                        \
    ((size_t)(wanted) <= (size_t)(room) ||                                                         \
     ((room) = (__typeof__(room))vector_grow(&(items), (size_t)(room), (size_t)(wanted),           \
                                             sizeof *(items),                                      \
                                             sizeof(room) > 4 ? PTRDIFF_MAX : INT32_MAX),          \
      (size_t)(wanted) <= (size_t)(room)))

/* Appends a zeroed item: a pointer to it, NULL when there is no memory. */
#define vector_add(items, count, room)                                                             \
    (vector_reserve(items, room, (count) + 1) ? memset(&(items)[(count)++], 0, sizeof *(items))    \
                                              : NULL)

/* Takes the item `at` out; those behind it move up. */
#define vector_remove(items, count, at)                                                            \
    vector_close_gap(items, (size_t)((count)--), sizeof *(items), (size_t)(at))
static inline void vector_close_gap(void *items, size_t count, size_t item_bytes, size_t at)
{
    uint8_t *gap = (uint8_t *)items + at * item_bytes;
    memmove(gap, gap + item_bytes, (count - at - 1) * item_bytes);
}

/* Appends a value. */
#define vector_push(items, count, room, value)                                                     \
    (vector_reserve(items, room, (count) + 1) && ((items)[(count)++] = (value), true))

#endif
