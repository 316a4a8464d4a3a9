/* What this process may use of the box: the limits of its control groups (v1 and v2), from its own
 * group up to the root, and what is free within them. `root` stands before every path ("" for this
 * system; a folder with a made-up tree in tests). All read-only. */
#ifndef HP_AGENT_DISCOVER_LIMITS_H
#define HP_AGENT_DISCOVER_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

enum { DISCOVER_GROUP = 1024 };

struct discover_limits {
    uint64_t memory_bytes; /* memory.max, memory.high or memory.limit_in_bytes, the smallest;
                              UINT64_MAX: none */
    double cpus;           /* of cpu.max, or quota by period; 0: none */
    char memory_group[DISCOVER_GROUP]; /* the file that says memory_bytes; "" without one */
};

void discover_limits(const char *root, struct discover_limits *out);

/* Bytes that could be had now: the box's available memory, within what the groups leave (their page
 * cache counts as free). False when the system does not say; *out is untouched. */
bool discover_memory_free(const char *root, uint64_t *out);

#endif
