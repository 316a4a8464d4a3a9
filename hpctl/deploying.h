/* Asks a coordinator to deploy a model of this box, sends what its agents lack, and shows how far
 * it is. */
#ifndef HP_HPCTL_DEPLOYING_H
#define HP_HPCTL_DEPLOYING_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "hpctl/progress.h"

struct client;
struct deploying_bytes;
struct manifest_maker;

enum { DEPLOYMENT_NAME_BYTES = 64 };

struct deploying {
    const char *path; /* a file or folder that is there */
    char name[DEPLOYMENT_NAME_BYTES];
    json_t *options; /* of the admin's verb "deploy"; the caller's */
    struct progress_bar bar;
    struct manifest_maker *maker; /* makes its manifest already, and is used up; NULL: none */
    bool json;                    /* Ctrl-C is told as JSON, too */
    bool ends_with_us;            /* the cluster does: Ctrl-C is the caller's to heed */
    uint64_t uploaded_bytes;
    struct deploying_bytes *bytes; /* its own */
};

/* The file's or folder's name without its ending: what the deployment is called unless one says. */
void deploying_name(const char *path, char *out, size_t size);
/* *result is what the verb answers once it serves, the caller's. While it runs, Ctrl-C ends hpctl
 * and says what the cluster does without it. Errors as of client_ask and model_manifest_make. */
int deploying_run(struct deploying *d, struct client *client, json_t **result, struct err *e);

#endif
