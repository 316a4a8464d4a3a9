/* Maps: Debian's uthash (https://troydhanson.github.io/uthash), where an item carries its own
 * `UT_hash_handle hh` and a map is a pointer to its first item, NULL when empty. Looking up, adding
 * and deleting take constant time on average.
 *
 *     struct errand { uint64_t id; UT_hash_handle hh; } *errands = NULL, *j;
 *     HASH_ADD(hh, errands, id, sizeof j->id, j);
 *     if (!map_has_added(j)) ...no memory: j is not in the map
 *     HASH_FIND(hh, errands, &id, sizeof id, j);
 *     HASH_DEL(errands, j);
 *
 * As it comes uthash ends the process when memory runs out; included by this header it leaves the
 * map as it was, and map_has_added says so. A map does not own its items: who frees one deletes it
 * from the map first. */
#ifndef HP_COMMON_MAP_H
#define HP_COMMON_MAP_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Whether the item that was just added is in its map. */
#define map_has_added(item) ((item)->hh.tbl != NULL)

#endif
