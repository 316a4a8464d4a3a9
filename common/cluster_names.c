/* What the readers of hp-cluster/1 share: maps of names, wires, optional arrays. */
#include <string.h>

#include "common/cluster_int.h"

int cluster_name_find(const struct cluster_name *map, const char *text)
{
    struct cluster_name *found;
    HASH_FIND(hh, map, text, strlen(text), found);
    return found ? found->index : -1;
}

int cluster_name_add(struct cluster_reader *r, struct cluster_name **map, const char *text,
                     int index)
{
    struct cluster_name *n = arena_alloc(&r->arena, 1, sizeof *n);
    if (!n)
        return HP_ENOMEM;
    n->text = text;
    n->index = index;
    HASH_ADD_KEYPTR(hh, *map, n->text, strlen(n->text), n);
    return map_has_added(n) ? 0 : HP_ENOMEM;
}

int cluster_read_wire(const struct json_at *at, struct cluster_wire *out, struct err *e)
{
    int rc = json_get_number_min(at, "bandwidth_bytes_per_s", 0, &out->bandwidth_bytes_per_s, e);
    return rc == 0 ? json_opt_number_min(at, "latency_s", 0, 0, &out->latency_s, e) : rc;
}

int cluster_optional_array(const struct json_at *at, const char *key, struct json_at *list,
                           size_t *count, struct err *e)
{
    *count = 0;
    return json_find(at, key, list) ? json_as_array(list, count, e) : 0;
}
