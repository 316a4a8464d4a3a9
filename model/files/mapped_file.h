/* A file mapped read-only and private; nothing is read until it is touched, and sparse files are
 * fine. The descriptor is closed at once.
 *
 * A mapped file can fail while it is read: somebody shortens it, or the disk gives no bytes
 * (SIGBUS). Then the rest of the mapping becomes zeros and the mapping is marked broken; whoever
 * used its bytes asks mapped_file_check afterwards and throws away what was made of them. A file
 * that lies behind a link is somebody else's, who may write to it: then what is mapped is not what
 * was opened any more, which mapped_file_check finds within a millisecond. The first opening
 * installs the handler; a SIGBUS of anything else goes to the handler that was there before. */
#ifndef HP_MODEL_FILES_MAPPED_FILE_H
#define HP_MODEL_FILES_MAPPED_FILE_H

#include <stdint.h>

#include "common/status.h"

enum { MAPPED_FILE_MOST = 4096 }; /* guarded at once; more are mapped without a guard */

struct mapped_file {
    const uint8_t *data;
    uint64_t bytes;
    int guard;                      /* its place among the guarded, from 1; 0: none */
    struct mapped_foreign *foreign; /* who opened it closes it; NULL: it is no link */
};

/* HP_ENOENT, HP_EDENIED, HP_EIO; HP_EPARSE for an empty file or what is not a regular one. */
int mapped_file_open(const char *path, struct mapped_file *out, struct err *e);
void mapped_file_close(struct mapped_file *m);

/* HP_EIO when a byte could not be read since it was opened (the text names `path` and the byte), or
 * somebody else wrote to it. From any thread, and cheap. */
int mapped_file_check(const struct mapped_file *m, const char *path, struct err *e);

#endif
