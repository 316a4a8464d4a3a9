#include "coordinator/gateway/dialect_fields.h"

#include <string.h>

bool fields_move(json_t *to, const json_t *from, const struct field_name *names)
{
    for (const struct field_name *n = names; n->there; n++) {
        json_t *v = json_object_get(from, n->there);
        if (v && !json_is_null(v) && json_object_set(to, n->here, v) < 0)
            return false; /* an object that could not grow takes no more */
    }
    return true;
}

bool message_add(json_t *messages, const char *role, json_t *content)
{
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return message && json_array_append_new(messages, message) == 0;
}

bool field_asks(const json_t *root, const char *name)
{
    const json_t *v = json_object_get(root, name);
    if (!v || json_is_null(v) || json_is_false(v))
        return false;
    if (json_is_string(v))
        return json_string_length(v) > 0;
    return !json_is_array(v) && !json_is_object(v) ? true
                                                   : json_array_size(v) + json_object_size(v) > 0;
}
