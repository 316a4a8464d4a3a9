/* What the box has and what this process may use of it: the system's own count of memory, the
 * limits of control groups (v1 and v2), from the process's own group up to the root, and what is
 * free within them. Every program that speaks of a box's memory has its figure from here. `root`
 * stands before every path ("" for this system; a folder with a made-up tree in tests). All
 * read-only. */
#ifndef HP_COMMON_HOST_LIMITS_H
#define HP_COMMON_HOST_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

enum { HOST_GROUP = 1024 };

struct host_limits {
    uint64_t box_bytes;    /* all memory that the system has now, also what was plugged in while it
                              ran, which NUMA nodes in sysfs may lack; UINT64_MAX: it does not say */
    uint64_t memory_bytes; /* box_bytes, or what memory.max, memory.high or memory.limit_in_bytes
                              says, the smallest */
    double cpus;           /* of cpu.max, or quota by period; 0: none */
    char memory_group[HOST_GROUP]; /* the file that says memory_bytes; "": the box does */
};

void host_limits_read(const char *root, struct host_limits *out);

/* What this process takes of this system's memory where nobody says how much: nine tenths. */
uint64_t host_memory_default(void);

/* Bytes that could be had now: the box's available memory, within what the groups leave (their page
 * cache counts as free). False when the system does not say; *out is untouched. */
bool host_memory_free(const char *root, uint64_t *out);

#endif
