/* Pushes chunks of a model to agents over the data channel, as the coordinator asked for them. */
#ifndef HP_HPCTL_UPLOAD_H
#define HP_HPCTL_UPLOAD_H

#include <jansson.h>
#include <stdint.h>

#include "common/manifest.h"
#include "common/status.h"
#include "hpctl/progress.h"
#include "transport/keys.h"

struct upload;

/* `folder` holds the model's files (or is the one file). `manifest` outlives the upload. `keys`,
 * the admin's, prove to the agents that the upload may come. */
int upload_open(const char *path, const struct manifest *manifest, const struct key_pair *keys,
                struct upload **out, struct err *e);
/* One request: {"session", "targets": [{"address" (hex), "chunks": [index, ...]}]}. Sends all,
 * waits until they have left, and shows how far it is. Adds what it sent to *bytes. */
int upload_send(struct upload *u, const json_t *request, struct progress_bar *bar, uint64_t *bytes,
                struct err *e);
void upload_close(struct upload **u);

#endif
