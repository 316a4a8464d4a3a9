/* A file mapped read-only and private; nothing is read until it is touched, and sparse files are
 * fine. The descriptor is closed at once.
 *
 * A mapped file can fail while it is read: somebody shortens it, or the disk gives no bytes
 * (SIGBUS). Then the rest of the mapping becomes zeros and the mapping is marked broken; whoever
 * used its bytes asks mapped_file_check afterwards and throws away what was made of them. Somebody
 * may write to the file: then what is mapped is not what was opened any more, which
 * mapped_file_check finds (but for a write in the tick of the kernel's clock, some 4 ms, in which
 * it was opened). Where this process writes to a file that it may have mapped, to parts that nobody
 * reads yet, it says so (mapped_file_write_begin). The first opening installs the handler; a SIGBUS
 * of anything else goes to the handler that was there before. */
#ifndef HP_MODEL_FILES_MAPPED_FILE_H
#define HP_MODEL_FILES_MAPPED_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/status.h"

enum { MAPPED_FILE_MOST = 4096 }; /* guarded at once; more are mapped without a guard */

struct mapped_file {
    const uint8_t *data;
    uint64_t bytes;
    int guard;                  /* its place among the guarded, from 1; 0: none */
    struct mapped_watch *watch; /* of others who write to it */
};

/* HP_ENOENT, HP_EDENIED, HP_EIO; HP_EPARSE for an empty file or what is not a regular one. */
int mapped_file_open(const char *path, struct mapped_file *out, struct err *e);
void mapped_file_close(struct mapped_file *m);

/* HP_EIO when a byte could not be read since it was opened (the text names `path` and the byte), or
 * somebody else wrote to it. From any thread; a system call. */
int mapped_file_check(const struct mapped_file *m, const char *path, struct err *e);
/* The same for each of many short uses: who wrote to it is looked for a hundred times a second, a
 * thousand times where `path` was a link. Cheap. */
int mapped_file_glance(const struct mapped_file *m, const char *path, struct err *e);

/* Around each write of this process to a file that may be mapped: what changes between the two is
 * nobody else's doing, who else writes to it just then is not found. Any thread, which owns *out,
 * unmoved until mapped_file_write_end. */
struct mapped_write {
    struct stat file;
    bool there;
    struct mapped_write *next;
};
void mapped_file_write_begin(const char *path, struct mapped_write *out);
void mapped_file_write_end(const char *path, struct mapped_write *done);

#endif
