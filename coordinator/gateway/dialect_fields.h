/* Fields of another API, moved to those of OpenAI's. Only dialect_*.c and *_body.c include this. */
#ifndef HP_COORDINATOR_GATEWAY_DIALECT_FIELDS_H
#define HP_COORDINATOR_GATEWAY_DIALECT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "coordinator/gateway/dialect.h"

/* Gives `to` what `from` has of these names (a row of NULLs ends them) and is not null. False: no
 * memory. */
bool fields_move(json_t *to, const json_t *from, const struct field_name *names);
/* One more message at the end; `content` is borrowed. False: no memory. */
bool message_add(json_t *messages, const char *role, json_t *content);
/* Whether a field asks for something: neither missing nor null, false, "", [] or {}. */
bool field_asks(const json_t *root, const char *name);

#endif
