/* Lists, dicts and strings that a run makes, and what a `for` goes through. */
#ifndef HP_MODEL_TEMPLATE_COLLECTIONS_H
#define HP_MODEL_TEMPLATE_COLLECTIONS_H

#include <jansson.h>

#include "model/template/run.h"

/* An empty list; one more item. HP_ENOMEM. */
int value_new_list(struct run *r, enum list_kind kind, size_t capacity, struct value *out);
int list_push(struct run *r, struct list *l, struct value v);

/* `type` is VALUE_DICT or VALUE_NAMESPACE. */
int value_new_dict(struct run *r, enum value_type type, struct value *out);
/* Sets or adds; HP_EINVAL for what cannot be a key. */
int dict_set(struct run *r, struct dict *d, struct value key, struct value v);

/* What a `for` would go through: items of a list (the list itself), keys of a dict, characters of a
 * string; HP_EINVAL for a value without items. */
int value_items(struct run *r, const struct value *v, struct list **out);
/* A list of tuples (key, value). */
int value_pair_list(struct run *r, const struct dict *d, struct value *out);

/* A string of the buffer's bytes; the buffer stays the caller's. */
int value_copy_text(struct run *r, const struct buffer *b, struct value *out);
/* The same for a buffer that is done with, which is freed; with `rc` negative nothing but that. */
int value_of_buffer(struct run *r, struct buffer *b, int rc, struct value *out);

/* The value of a JSON document, whose strings are not copied: the document outlives the run.
 * `depth` is 0 for a whole document. */
int value_from_json(struct run *r, const json_t *j, int depth, struct value *out);

#endif
