/* The command line of hp-agent. */
#ifndef HP_AGENT_OPTIONS_H
#define HP_AGENT_OPTIONS_H

#include <stdint.h>

#include "agent/agent.h"
#include "agent/discover_devices.h"
#include "common/status.h"

/* As they were given: texts are those of argv, NULL or 0 where nothing was said. */
struct agent_options {
    struct agent_config config; /* what is an option word for word; the rest is the program's */
    const char *token, *token_file;
    /* The share of the box. */
    const char *cores, *devices[DISCOVER_MAX_DEVICES];
    int n_devices, threads;
    uint64_t memory_bytes;
};

/* Reads the command line, and HP_TEST_POOL. HP_PENDING: --help or --version were asked for and have
 * been printed; HP_EUSAGE. */
int agent_options_parse(int argc, char **argv, struct agent_options *o, struct err *e);

#endif
