/* Files that a manifest is made of while it is made: read in ranges, which are cut into chunks and
 * named by their content. */
#ifndef HP_MODEL_MANIFEST_SOURCE_H
#define HP_MODEL_MANIFEST_SOURCE_H

#include <stdint.h>

#include "common/arena.h"
#include "common/manifest.h"
#include "common/status.h"

/* Called now and then while weights are read; a return other than 0 stops with HP_ECANCELED. */
typedef int (*manifest_progress_fn)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);

/* The caller fills in the first three and may use the arena, which lives until the source is
 * closed. */
struct manifest_source {
    const char *name;              /* of the model, for messages */
    manifest_progress_fn progress; /* NULL: nobody watches */
    void *progress_ctx;
    struct arena arena;
    struct manifest_source_file {
        const char *path;
        int fd;
    } * files;
    int n_files, room_files;
    uint64_t total_bytes;
};

struct manifest_range { /* of a file, in the order of their opening */
    int file;
    uint64_t offset, bytes;
};

/* One more file. HP_EIO, HP_ENOMEM. */
int manifest_source_open(struct manifest_source *s, const char *path, struct err *e);
uint64_t manifest_source_bytes(const struct manifest_source *s, int file);
/* HP_EIO. Any thread, while no file is opened. */
int manifest_source_read(struct manifest_source *s, int file, uint64_t offset, uint8_t *out,
                         uint64_t bytes, struct err *e);
/* Cuts ranges, which are in order, into out->chunks; several threads hash them, progress is called
 * on the caller's. HP_EIO, HP_ENOMEM, HP_ELIMIT, HP_ECANCELED. */
int manifest_source_chunks(struct manifest_source *s, const struct manifest_range *ranges, int n,
                           struct manifest *out, struct err *e);
void manifest_source_close(struct manifest_source *s);

#endif
