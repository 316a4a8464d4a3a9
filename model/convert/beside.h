/* A large file in the making, which nobody sees before it is whole: without a name where the
 * filesystem has such files (O_TMPFILE), so that nothing is left of a process that is killed; else
 * beside its place as "OUT.PID.tmp", locked, and what a killed process left so is removed by the
 * next that makes the same file. */
#ifndef HP_MODEL_CONVERT_BESIDE_H
#define HP_MODEL_CONVERT_BESIDE_H

#include "common/fs.h"

struct beside {
    int fd;                   /* read and write; -1: none */
    char path[FS_PATH_BYTES]; /* opens it while `fd` is open */
    char name[FS_PATH_BYTES]; /* under which it lies beside its place, or is about to */
};

/* For the file at `path`. HP_EINVAL, HP_EIO, HP_EDENIED, HP_ENOSPACE. */
int beside_open(struct beside *b, const char *path, struct err *e);
/* Durable and in the place of `path`, whatever stood there; closes it. On failure nothing is left.
 */
int beside_publish(struct beside *b, const char *path, struct err *e);
/* Closes and forgets it; nothing is left. Once is enough. */
void beside_discard(struct beside *b);

#endif
