/* Folders, and files that are read or replaced whole. All calls block and may be made by any
 * thread. Errors name the path and what the system says of it: HP_ENOENT, HP_EDENIED, HP_ENOSPACE,
 * HP_EIO; paths of more than FS_PATH_BYTES - 1 bytes are HP_EINVAL. */
#ifndef HP_COMMON_FS_H
#define HP_COMMON_FS_H

#include <stddef.h>

#include "common/bytes.h"
#include "common/status.h"

enum { FS_PATH_BYTES = 4096 };

/* "PATH: cannot DOING: what errno says", and its code. */
int fs_error(const char *path, const char *doing, struct err *e);

/* A folder and those above it, where they are not there yet, with this mode (less the umask). */
int fs_folder_make(const char *path, unsigned mode, struct err *e);
/* The same for the folders above a file. */
int fs_folder_above_make(const char *path, unsigned mode, struct err *e);

/* Appends a file's bytes, which may be at most `limit_bytes` (HP_ELIMIT). After an error the buffer
 * is as it was. */
int fs_file_read(const char *path, size_t limit_bytes, struct buffer *out, struct err *e);

/* The same for what a person names: "-" is standard input. */
int fs_input_read(const char *path, size_t limit_bytes, struct buffer *out, struct err *e);

/* Gives a file these bytes: they are written beside it, made durable and renamed, so that whoever
 * reads sees the old file or the new one, whatever happens. A file that is there keeps nothing, its
 * mode neither. What is no regular file (/dev/stdout, a pipe) is written to as it is. */
int fs_file_write(const char *path, const void *data, size_t size, unsigned mode, struct err *e);

/* The same with what a buffer holds, for every user's eyes (0666 less the umask); HP_ENOMEM when
 * the buffer failed. Frees the buffer. */
int fs_buffer_save(const char *path, struct buffer *b, struct err *e);

/* The last step alone, for who wrote `beside` by himself: durable, and in the place of `path`.
 * HP_EINVAL: that is something else than a regular file. */
int fs_file_replace(const char *beside, const char *path, struct err *e);

#endif
