#include "model/convert/beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* "FOLDER" of "FOLDER/NAME", and where NAME begins. */
static const char *path_cut(const char *path, char folder[FS_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (!slash)
        strcpy(folder, ".");
    else
        snprintf(folder, FS_PATH_BYTES, "%.*s", n ? (int)n : 1, path);
    return slash ? slash + 1 : path;
}

/* "NAME.123.tmp" */
static bool is_leftover(const char *entry, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(entry, name, n) != 0 || entry[n] != '.')
        return false;
    const char *digits = entry + n + 1;
    size_t many = strspn(digits, "0123456789");
    return many > 0 && strcmp(digits + many, ".tmp") == 0;
}

/* Whoever makes a file has it locked as long as he lives, on whatever box. */
static void leftover_remove(int folder, const char *entry)
{
    struct stat s;
    int fd = openat(folder, entry, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, entry, 0);
    close(fd);
}

static void leftovers_remove(const char *path)
{
    char folder[FS_PATH_BYTES];
    const char *name = path_cut(path, folder);
    DIR *d = opendir(folder);
    if (!d)
        return;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (is_leftover(entry->d_name, name))
            leftover_remove(dirfd(d), entry->d_name);
    closedir(d);
}

static bool nameless_open(struct beside *b, const char *path)
{
    char folder[FS_PATH_BYTES];
    struct stat s;
    path_cut(path, folder);
    b->fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    if (b->fd < 0)
        return false;
    snprintf(b->path, sizeof b->path, "/proc/self/fd/%d", b->fd);
    if (stat(b->path, &s) == 0)
        return true;
    close(b->fd); /* no /proc: it could never get a name */
    b->fd = -1;
    return false;
}

static int named_open(struct beside *b, const char *path, struct err *e)
{
    strcpy(b->path, b->name);
    b->fd = open(b->name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (b->fd < 0)
        return fs_error(path, "write", e);
    flock(b->fd, LOCK_EX | LOCK_NB); /* a filesystem without locks keeps its leftovers */
    return 0;
}

int beside_open(struct beside *b, const char *path, struct err *e)
{
    *b = (struct beside){.fd = -1};
    int n = snprintf(b->name, sizeof b->name, "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof b->name)
        return err_set(e, HP_EINVAL, "%.80s...: the path is too long", path);
    leftovers_remove(path);
    return nameless_open(b, path) ? 0 : named_open(b, path, e);
}

int beside_publish(struct beside *b, const char *path, struct err *e)
{
    int rc = 0;
    if (strcmp(b->path, b->name) != 0) {
        bool linked = linkat(AT_FDCWD, b->path, AT_FDCWD, b->name, AT_SYMLINK_FOLLOW) == 0;
        if (linked)
            strcpy(b->path, b->name);
        else
            rc = fs_error(path, "write", e);
    }
    rc = rc < 0 ? rc : fs_file_replace(b->name, path, e);
    if (rc < 0)
        beside_discard(b);
    else if (b->fd >= 0 && close(b->fd) != 0)
        rc = fs_error(path, "write", e);
    b->fd = -1;
    return rc;
}

void beside_discard(struct beside *b)
{
    if (b->fd < 0)
        return;
    if (strcmp(b->path, b->name) == 0)
        unlink(b->name);
    close(b->fd);
    b->fd = -1;
}
