/* Parts of values: v.name, v[key], v[start:stop:step]. What is not there is an undefined value; an
 * undefined value has no parts (HP_EINVAL). */
#ifndef HP_MODEL_TEMPLATE_ACCESS_H
#define HP_MODEL_TEMPLATE_ACCESS_H

#include "model/template/run.h"

int run_attribute(struct run *r, const struct value *v, struct text name, struct value *out);
int run_item(struct run *r, const struct value *v, const struct value *key, struct value *out);
/* Each bound may be NULL or none. */
int run_slice(struct run *r, const struct value *v, const struct value *start,
              const struct value *stop, const struct value *step, struct value *out);
/* "a.b.0", or a number: one step after the other, as filters name attributes. */
int run_attribute_path(struct run *r, const struct value *v, const struct value *path,
                       struct value *out);

#endif
