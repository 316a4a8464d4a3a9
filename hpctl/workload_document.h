/* A workload file (hp-workload/1, as YAML or JSON) with the networks and profiles that it names, as
 * the one document that a coordinator applies (coordinator/pools/pool_spec.h). */
#ifndef HP_HPCTL_WORKLOAD_DOCUMENT_H
#define HP_HPCTL_WORKLOAD_DOCUMENT_H

#include <jansson.h>

#include "common/arena.h"
#include "common/manifest.h"
#include "common/status.h"
#include "hpctl/progress.h"

enum { WORKLOAD_NETWORKS = 64 };

struct workload_network {
    const char *name, *path; /* of the file, absolute */
    struct manifest manifest;
    struct buffer encoded;
};

struct workload_document {
    struct arena arena;
    json_t *json; /* the document */
    struct workload_network networks[WORKLOAD_NETWORKS];
    int n_networks;
};

/* Paths are relative to the file. HP_EPARSE names what is wrong in which file; HP_ENOENT,
 * HP_EUNSUPPORTED (a network), HP_EUSAGE, HP_ENOMEM. workload_document_free after, also on failure.
 */
int workload_document_read(const char *file, struct progress_bar *bar,
                           struct workload_document *out, struct err *e);
void workload_document_free(struct workload_document *d);

#endif
