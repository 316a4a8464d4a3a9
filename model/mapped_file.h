/* A file mapped read-only and private; nothing is read until it is touched, and sparse files are fine. The descriptor is closed
 * at once. */
#ifndef HP_MODEL_MAPPED_FILE_H
#define HP_MODEL_MAPPED_FILE_H

#include "common/status.h"

#include <stdint.h>

struct mapped_file {
    const uint8_t *data; /* whoever shortens the file while it is mapped takes the process down: SIGBUS */
    uint64_t bytes;
};

/* HP_ENOENT, HP_EDENIED, HP_EIO; HP_EPARSE for an empty file or what is not a regular one. */
int mapped_file_open(const char *path, struct mapped_file *out, struct err *e);
void mapped_file_close(struct mapped_file *m);

#endif
