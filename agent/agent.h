/* The agent: a core (agent_core.h) and what stands around it. A loop has the control channel and
 * the timers; the data channel, each device's executor and the store have threads of their own. The
 * core is behind one lock (shell_monitor.c): frames and what executors have done with sequences and
 * batches are fed by the threads that they come on; all else comes to the loop through a queue. */
#ifndef HP_AGENT_AGENT_H
#define HP_AGENT_AGENT_H

#include <stdint.h>
#include <uv.h>

#include "agent/discover.h"
#include "common/link_fault.h"
#include "common/status.h"
#include "transport/control.h"
#include "transport/data_choice.h"

struct agent;

struct agent_config {
    const char *coordinator; /* HOST:PORT, or a server's name within `hub` */
    struct control_hub *hub; /* NULL: ZeroMQ and UCX; else the twins within this process */
    const char *server_key;  /* of the coordinator */
    const char *secret;      /* of the join token, "" without */
    uint64_t process; /* by chance, of the program that calls: one that starts the agent anew is no
                         rival of itself; 0: another one each time */
    const char *name; /* asked for, "" for the coordinator's choice */
    const char *dir;  /* keys, weights and profiles are kept here */
    const char
        *network; /* interface of the data channel; NULL: the one on the way to the coordinator */
    uint16_t data_port;      /* of the data channel; 0: any that is free */
    struct data_policy data; /* what the cluster wanted of the data channel when it last said so */
    struct discover_share share;
    const char *kernels; /* as in device_config; NULL: the best that the CPU has */
    const char *pace_cluster, *pace_profile,
        *pace_as; /* stands for a device of a cluster file (backend/paced.h); NULL: for itself */
    const char *measured_dir;   /* what was measured is kept there; NULL: below `dir` */
    uint64_t store_limit_bytes; /* 0: none */
    bool store_borrows;         /* files of this box are used where they lie */
    bool serves_early;          /* stages serve while their weights are loaded */
    bool chaos_links;           /* agent_links_disturb may be called */
    bool direct_off; /* rows go by the host's memory, whatever the data channel could do */
    uint64_t spill_transit_bytes; /* beyond the first of these: on their way there and back */
    uint64_t spill_memory_bytes, spill_disk_bytes; /* of KV cache that was given up (spill_shelf.h);
                                                      both 0: nothing is spilled */
    uint64_t
        pool_limit_bytes; /* of received frames; 0: by what the stages need. Tests make it small */
    /* The cluster does not want this agent: on the loop's thread, once. Call agent_stop soon, but
     * not from within. */
    void (*quit)(void *ctx, const struct err *why);
    /* The cluster wants another data channel than `data` said: on the loop's thread. `reopen`: of
     * another kind than the one that is open; call agent_stop soon, but not from within, and start
     * anew with it. */
    void (*data_wanted)(void *ctx, const struct data_policy *wanted, bool reopen);
    void *ctx;
};

/* Starts threads and joins. Everything that `c` points at outlives the agent, but for cores.
 * HP_EIO, HP_EBUSY (its folder is in use), HP_EDEVICE. */
int agent_start(uv_loop_t *loop, const struct agent_config *c, struct agent **out, struct err *e);
/* Ends threads, frees stages and closes its handles; the loop must run until those are closed.
 * Weights stay on disk. */
void agent_stop(struct agent **a);

/* On the loop's thread: what the agent sends to others is late for a while (data_late_set). */
void agent_links_disturb(struct agent *a, struct link_fault fault);

#endif
