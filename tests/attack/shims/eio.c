/* LD_PRELOAD: a disk that fails. Calls on regular files below a folder end with EIO as the file
 * HP_EIO_FILE says (read anew each time): "KINDS PERCENT FOLDER", where KINDS has r for reads, w
 * for writes and s for syncs, and PERCENT of them fail. Without such a line nothing fails. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path of a descriptor, where that is a regular file. */
static bool path_of(int fd, char *out, size_t size)
{
    struct stat s;
    char link[64];
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool fails(int fd, char kind)
{
    static _Atomic unsigned drawn;
    char path[1000], kinds[8] = "", folder[600] = "";
    unsigned percent = 0;
    int before = errno;
    const char *file = getenv("HP_EIO_FILE");
    FILE *f = file && path_of(fd, path, sizeof path) ? fopen(file, "re") : NULL;
    bool told = f && fscanf(f, "%7s %u %599s", kinds, &percent, folder) == 3;
    if (f)
        fclose(f);
    errno = before;
    /* A sequence that no two threads draw alike: Weyl's, by the golden ratio. */
    unsigned chance = (unsigned)((++drawn * UINT64_C(0x9E3779B9) & 0xFFFFFFFF) * 100 >> 32);
    if (!told || !strchr(kinds, kind) || strncmp(path, folder, strlen(folder)) != 0 ||
        chance >= percent)
        return false;
    errno = EIO;
    return true;
}

static void next_find(const char *name, void *out, size_t size)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(out, &found, size);
}

ssize_t read(int fd, void *out, size_t n)
{
    ssize_t (*next)(int, void *, size_t);
    next_find("read", &next, sizeof next);
    return fails(fd, 'r') ? -1 : next(fd, out, n);
}

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t);
    next_find("pread", &next, sizeof next);
    return fails(fd, 'r') ? -1 : next(fd, out, n, at);
}

ssize_t pread64(int fd, void *out, size_t n, off64_t at)
{
    return pread(fd, out, n, at);
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t (*next)(int, const void *, size_t);
    next_find("write", &next, sizeof next);
    return fails(fd, 'w') ? -1 : next(fd, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    ssize_t (*next)(int, const void *, size_t, off_t);
    next_find("pwrite", &next, sizeof next);
    return fails(fd, 'w') ? -1 : next(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    return pwrite(fd, data, n, at);
}

int fsync(int fd)
{
    int (*next)(int);
    next_find("fsync", &next, sizeof next);
    return fails(fd, 's') ? -1 : next(fd);
}

int fdatasync(int fd)
{
    int (*next)(int);
    next_find("fdatasync", &next, sizeof next);
    return fails(fd, 's') ? -1 : next(fd);
}

int ftruncate(int fd, off_t size)
{
    int (*next)(int, off_t);
    next_find("ftruncate", &next, sizeof next);
    return fails(fd, 'w') ? -1 : next(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, size);
}
