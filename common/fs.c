#include "common/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fs_error(const char *path, const char *doing, struct err *e)
{
    int code = errno == ENOSPC || errno == EDQUOT  ? HP_ENOSPACE
               : errno == ENOENT                   ? HP_ENOENT
               : errno == EACCES || errno == EPERM ? HP_EDENIED
                                                   : HP_EIO;
    return err_set(e, code, "%s: cannot %s: %s", path, doing, strerror(errno));
}

static int path_copy(const char *path, char out[FS_PATH_BYTES], struct err *e)
{
    size_t n = strlen(path);
    if (n == 0 || n >= FS_PATH_BYTES)
        return err_set(e, HP_EINVAL, n ? "%.80s...: the path is too long" : "an empty path%s",
                       path);
    memcpy(out, path, n + 1);
    return 0;
}

/* ---- folders ---- */

static int folder_make(const char *path, unsigned mode, struct err *e)
{
    struct stat st;
    if (mkdir(path, (mode_t)mode) == 0)
        return 0;
    if (errno == EEXIST && (stat(path, &st) != 0 || S_ISDIR(st.st_mode)))
        return 0;
    return fs_error(path, "make this folder", e);
}

int fs_folder_above_make(const char *path, unsigned mode, struct err *e)
{
    char part[FS_PATH_BYTES];
    int rc = path_copy(path, part, e);
    for (char *p = part + 1; rc == 0 && *p; p++)
        if (*p == '/') {
            *p = '\0';
            rc = folder_make(part, mode, e);
            *p = '/';
        }
    return rc;
}

int fs_folder_make(const char *path, unsigned mode, struct err *e)
{
    int rc = fs_folder_above_make(path, mode, e);
    return rc == 0 ? folder_make(path, mode, e) : rc;
}

/* ---- reading ---- */

static int fd_read(int fd, const char *path, size_t limit_bytes, struct buffer *out, struct err *e)
{
    enum { STEP_BYTES = 1 << 16 };
    size_t before = out->size;
    for (;;) {
        uint8_t *p = buffer_extend(out, STEP_BYTES);
        if (!p)
            return err_no_memory(e, "%s", path);
        ssize_t got = read(fd, p, STEP_BYTES);
        out->size -= STEP_BYTES - (got > 0 ? (size_t)got : 0);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR)
            return fs_error(path, "read", e);
        if (out->size - before > limit_bytes)
            return err_set(e, HP_ELIMIT, "%s: larger than %zu bytes", path, limit_bytes);
    }
}

int fs_file_read(const char *path, size_t limit_bytes, struct buffer *out, struct err *e)
{
    size_t before = out->size;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fs_error(path, "open", e);
    int rc = fd_read(fd, path, limit_bytes, out, e);
    close(fd);
    if (rc < 0)
        out->size = before;
    return rc;
}

int fs_input_read(const char *path, size_t limit_bytes, struct buffer *out, struct err *e)
{
    return strcmp(path, "-") == 0 ? fd_read(STDIN_FILENO, "standard input", limit_bytes, out, e)
                                  : fs_file_read(path, limit_bytes, out, e);
}

/* ---- writing ---- */

static int fd_write(int fd, const char *path, const void *data, size_t size, struct err *e)
{
    const char *p = data;
    while (size > 0) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fs_error(path, "write", e);
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

static int fd_close(int fd, const char *path, int rc, struct err *e)
{
    return close(fd) != 0 && rc == 0 ? fs_error(path, "write", e) : rc;
}

static int special_write(const char *path, const void *data, size_t size, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return fs_error(path, "write", e);
    return fd_close(fd, path, fd_write(fd, path, data, size, e), e);
}

/* A rename is durable once its folder is; a folder that cannot be synced (some file systems) is no
 * failure: the file has its bytes. */
static void folder_above_sync(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = '\0';
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static int file_sync(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fs_error(path, "write", e);
    int rc = fsync(fd) != 0 ? fs_error(path, "write", e) : 0;
    close(fd);
    return rc;
}

static int file_rename(const char *beside, const char *path, struct err *e)
{
    char folder[FS_PATH_BYTES];
    int rc = path_copy(path, folder, e);
    if (rc == 0 && rename(beside, path) != 0)
        rc = fs_error(path, "write", e);
    if (rc == 0)
        folder_above_sync(folder);
    return rc;
}

int fs_file_replace(const char *beside, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, HP_EINVAL, "%s is no regular file, and is not replaced by one", path);
    int rc = file_sync(beside, e);
    return rc == 0 ? file_rename(beside, path, e) : rc;
}

/* A name that no other thread and no other process has: one that a crash left is passed over. */
static int beside_open(const char *path, unsigned mode, char beside[FS_PATH_BYTES], struct err *e)
{
    static atomic_uint next;
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        int n = snprintf(beside, FS_PATH_BYTES, "%s.%ld-%u.tmp", path, (long)getpid(), next++);
        if (n >= FS_PATH_BYTES)
            return err_set(e, HP_EINVAL, "%.80s...: the path is too long", path);
        int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            break;
    }
    return fs_error(path, "write", e);
}

int fs_file_write(const char *path, const void *data, size_t size, unsigned mode, struct err *e)
{
    char beside[FS_PATH_BYTES];
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return special_write(path, data, size, e);
    int fd = beside_open(path, mode, beside, e);
    if (fd < 0)
        return fd;
    int rc = fd_write(fd, path, data, size, e);
    if (rc == 0 && fsync(fd) != 0)
        rc = fs_error(path, "write", e);
    rc = fd_close(fd, path, rc, e);
    if (rc == 0)
        rc = file_rename(beside, path, e);
    if (rc < 0)
        unlink(beside);
    return rc;
}

int fs_buffer_save(const char *path, struct buffer *b, struct err *e)
{
    int rc = b->failed
                 ? err_no_memory(e, "%s", path)
                 : fs_file_write(path, b->data ? b->data : (const void *)"", b->size, 0666, e);
    buffer_free(b);
    return rc;
}
