/* The token ids of a body, which are read without a tree: there each of them takes ten times as
 * long, and eight times the memory. They may be one field of the outermost object as a whole, or
 * items of it; what is left of them in the text that becomes a tree is an empty list. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_IDS_H
#define HP_COORDINATOR_GATEWAY_BODY_IDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BODY_IDS_WHOLE SIZE_MAX /* in place of an item's number: the field itself */

struct body_id_list {
    size_t item;       /* of the field, or BODY_IDS_WHOLE */
    size_t begin, end; /* in the body: what stands between the brackets */
    uint32_t *ids;
    size_t n_ids, room;
};

/* `field` is set by whoever reads the body; all else is zero before. */
struct body_ids {
    const char *field;          /* NULL: no ids are read */
    struct body_id_list *lists; /* in the order of the body */
    size_t n, room, next;       /* next: that may be taken */
    bool failed;                /* no memory */
};

/* Reads the list whose `[` stands before text[begin]. NULL: it is no list of ids, or an empty one,
 * and is left to the tree. Beyond `most` ids it ends within the list, with one more. */
const struct body_id_list *body_ids_read(struct body_ids *b, size_t item, const char *text,
                                         size_t begin, size_t n, size_t most);
/* Whether the field itself is a list of ids that was read. */
bool body_ids_whole(const struct body_ids *b);
/* Gives the ids of an item (in rising order) to the caller: those that were read, or else those of
 * `value`, the tree's. HP_EINVAL: `value` has something else; HP_ENOMEM. */
int body_ids_take(struct body_ids *b, size_t item, const json_t *value, uint32_t **ids,
                  size_t *n_ids);
void body_ids_free(struct body_ids *b);

#endif
