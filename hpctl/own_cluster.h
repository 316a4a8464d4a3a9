/* A cluster of one agent for a model of this box, within this process (embedded.h): it begins with
 * this hpctl, ends with it, however that ends, and leaves nothing behind. */
#ifndef HP_HPCTL_OWN_CLUSTER_H
#define HP_HPCTL_OWN_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "hpctl/context.h"

struct own_cluster;

enum { OWN_MAX_DEVICES = 16 };

struct own_options {
    const char *path;                     /* of the model: a file or folder */
    const char *name;                     /* of the deployment; NULL: the file's */
    json_t *options;                      /* of the admin's verb "deploy"; NULL: none */
    const char *devices[OWN_MAX_DEVICES]; /* as hp-agent --device says them */
    int n_devices;                        /* 0: as own_devices.h chooses */
    uint64_t port;                        /* of the API on 127.0.0.1; 0: any free one */
    bool quiet;                           /* no progress is shown */
};

/* Whether an argument names a file and no deployment, whose names have neither a slash nor such an
 * ending. */
bool own_cluster_is_file(const char *argument);

/* Returns when the model serves. One a process. HP_ENOENT: no such model; else as embedded.h and
 * deploying.h say. */
int own_cluster_open(const struct own_options *o, struct own_cluster **out, struct err *e);
/* How the API is reached, and what the deployment is called. */
const struct context *own_cluster_context(const struct own_cluster *c);
const char *own_cluster_name(const struct own_cluster *c);
/* The code and the reason where it has ended by itself. */
int own_cluster_check(const struct own_cluster *c, struct err *e);
/* Whether the model serves, or will in a moment: else *why has the reason. */
bool own_cluster_serves(const struct own_cluster *c, struct err *why);
void own_cluster_close(struct own_cluster **c);

#endif
