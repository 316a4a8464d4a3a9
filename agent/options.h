/* The command line of hp-agent. */
#ifndef HP_AGENT_OPTIONS_H
#define HP_AGENT_OPTIONS_H

#include <stdint.h>

#include "agent/discover_devices.h"
#include "common/status.h"

/* As they were given: texts are those of argv, NULL or 0 where nothing was said. */
struct agent_options {
    const char *join, *token, *token_file, *name, *dir, *cores, *network, *kernels, *pace, *profile,
        *as, *measured;
    const char *devices[DISCOVER_MAX_DEVICES];
    int n_devices, threads, data_port;
    bool store_borrows, serves_early, chaos_links;
    uint64_t memory_bytes, store_limit_bytes, spill_memory_bytes, spill_disk_bytes, pool_bytes;
};

/* Reads the command line, and HP_TEST_POOL. HP_PENDING: --help or --version were asked for and have
 * been printed; HP_EUSAGE. */
int agent_options_parse(int argc, char **argv, struct agent_options *o, struct err *e);

#endif
