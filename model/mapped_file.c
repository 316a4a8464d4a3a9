#include "model/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(struct err *e, const char *path)
{
    int code = errno == ENOENT || errno == ENOTDIR ? HP_ENOENT : errno == EACCES || errno == EPERM ? HP_EDENIED : HP_EIO;
    return err_set(e, code, "%s: %s", path, strerror(errno));
}

static int map(int fd, const char *path, struct mapped_file *out, struct err *e)
{
    struct stat s;
    if (fstat(fd, &s) < 0)
        return failed(e, path);
    if (!S_ISREG(s.st_mode))
        return err_set(e, HP_EPARSE, "%s: not a regular file", path);
    if (s.st_size == 0)
        return err_set(e, HP_EPARSE, "%s: the file is empty", path);
    void *data = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return failed(e, path);
    *out = (struct mapped_file){data, (uint64_t)s.st_size};
    return 0;
}

int mapped_file_open(const char *path, struct mapped_file *out, struct err *e)
{
    *out = (struct mapped_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of that name must not hang us */
    if (fd < 0)
        return failed(e, path);
    int rc = map(fd, path, out, e);
    close(fd);
    return rc;
}

void mapped_file_close(struct mapped_file *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, (size_t)m->bytes);
    *m = (struct mapped_file){0};
}
