/* Between the files that read hp-cluster/1. Names are looked up in maps: a file of one line may
 * stand for 200 000 nodes. */
#ifndef HP_COMMON_CLUSTER_INT_H
#define HP_COMMON_CLUSTER_INT_H

#include "common/cluster.h"
#include "common/map.h"

/* The first of a name, of a cluster or of a node; its text is the cluster's. */
struct cluster_name {
    const char *text;
    int index;
    UT_hash_handle hh;
};

struct cluster_reader {
    struct cluster c;
    struct arena arena;                           /* of the maps' items */
    struct cluster_name *nodes, *devices, *kinds; /* by name, by id, by kind */
};

/* The index of a name; -1 when the map does not have it. */
int cluster_name_find(const struct cluster_name *map, const char *text);
/* Adds a name that the map does not have; HP_ENOMEM. */
int cluster_name_add(struct cluster_reader *r, struct cluster_name **map, const char *text,
                     int index);

/* {"bandwidth_bytes_per_s", "latency_s"} */
int cluster_read_wire(const struct json_at *at, struct cluster_wire *out, struct err *e);
/* How many members an optional array has; the place of the array in *list. */
int cluster_optional_array(const struct json_at *at, const char *key, struct json_at *list,
                           size_t *count, struct err *e);
/* The `nodes` of a file, with their devices, buses, NICs and peer links. */
int cluster_read_nodes(struct cluster_reader *r, const struct json_at *list, struct err *e);

#endif
