/* A cluster on one box, for trying and for tests: real processes on loopback, each with its own
 * state below one folder, its own keys, and the cores it was given. What was started stands in
 * `local.json` in that folder, so that any later call of hpctl can find, restart or end it. */
#ifndef HP_HPCTL_LOCAL_CLUSTER_H
#define HP_HPCTL_LOCAL_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

enum { LOCAL_MAX_AGENTS = 64, LOCAL_MAX_CORES = 256, LOCAL_MAX_DEVICES = 16 };
enum { LOCAL_MAX_SAID = 64, LOCAL_DEVICE_TEXT = 256 };
enum { LOCAL_CORES_TEXT = 8 + 12 * LOCAL_MAX_CORES };

struct local_agent {
    char name[32];
    pid_t pid;
    uint64_t
        started; /* the kernel's start time of that process: a pid alone may be another's by now */
    int cores[LOCAL_MAX_CORES];
    int n_cores;
    uint64_t memory_bytes; /* 0: a fair part of the box's */
    char as[160];          /* paced: the device it stands for, "node/device"; "" otherwise */
};

/* A device that was asked for, as hp-agent --device says it. */
struct local_device {
    int agent; /* which of the cluster's */
    char spec[LOCAL_DEVICE_TEXT];
};

struct local_cluster {
    char name[64], dir[512];
    char http[64], control[64]; /* HOST:PORT, once the coordinator has said them */
    char grpc[64];              /* the same; "": it speaks none */
    pid_t coordinator_pid;
    uint64_t coordinator_started;
    char pace_cluster[512], pace_profile[512]; /* "" unless paced */
    struct local_agent agents[LOCAL_MAX_AGENTS];
    int n_agents;
    struct local_device said[LOCAL_MAX_SAID]; /* of an agent with none: as `devices` says */
    int n_said;
    uint64_t devices; /* of each agent: parts of its cores; 0 and 1: one device of all */
    uint64_t spill_memory_bytes,
        spill_disk_bytes; /* of each agent: for KV cache that was given up */
    char data[8];         /* "auto", "ucx", "tcp": which data channel the agents open; "": auto */
};

/* Writes it where local_load finds it. Errors as of fs.h. */
int local_save(const struct local_cluster *c, struct err *e);
/* By the name of its context. HP_ENOENT. */
int local_load(const char *name, struct local_cluster *out, struct err *e);

/* Start one of the cluster's processes in the background, and write it down at once (under the lock
 * of local_lock.h); its output goes to `log` in its folder. The coordinator's call returns when its
 * ports are known. A failure carries the last lines of the log. */
int local_start_coordinator(struct local_cluster *c, struct err *e);
/* `token` may be "" for an agent that has joined before. */
int local_start_agent(struct local_cluster *c, struct local_agent *a, const char *token,
                      struct err *e);

/* "0,1,5" behind `prefix` (at most 7 bytes): LOCAL_MAX_CORES numbers of any size have room. */
void local_cores_text(const char *prefix, const int *cores, int n, char out[LOCAL_CORES_TEXT]);

/* Ends every process: asks first, insists after `patience_ms`. */
void local_stop(struct local_cluster *c, uint64_t patience_ms);

/* Reads what the coordinator wrote about itself and makes it a context. */
int local_make_context(const struct local_cluster *c, bool make_current, struct err *e);

#endif
