#include "common/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"

struct npy_writer {
    FILE *file;
    char *path, *part; /* alike: what is no regular file is written to as it is */
    uint64_t rows, columns, written;
};

static int io_error(const char *path, struct err *e)
{
    int why = errno;
    return err_set(e, why == ENOSPC ? HP_ENOSPACE : HP_EIO, "%s: %s", path, strerror(why));
}

/* Magic, version 1.0, length of what follows, and a dictionary padded with blanks so that the data
 * begins at a multiple of 64. */
static int write_header(struct npy_writer *w, struct err *e)
{
    char text[128];
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    int n = snprintf(text + 10, sizeof text - 10,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %llu), }",
                     (unsigned long long)w->rows, (unsigned long long)w->columns);
    memset(text + 10 + n, ' ', sizeof text - 10 - (size_t)n);
    text[sizeof text - 1] = '\n';
    text[8] = (char)(sizeof text - 10);
    text[9] = 0;
    return fwrite(text, 1, sizeof text, w->file) == sizeof text ? 0 : io_error(w->part, e);
}

static bool writer_is_apart(const struct npy_writer *w)
{
    return strcmp(w->path, w->part) != 0;
}

int npy_writer_open(const char *path, uint64_t rows, uint64_t columns, struct npy_writer **out,
                    struct err *e)
{
    struct npy_writer *w = calloc(1, sizeof *w);
    struct stat st;
    size_t n = strlen(path);
    bool is_special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (w) {
        w->path = strdup(path);
        w->part = malloc(n + sizeof ".part");
    }
    if (!w || !w->path || !w->part) {
        npy_writer_abandon(&w);
        return err_no_memory(e, "%s", path);
    }
    snprintf(w->part, n + sizeof ".part", is_special ? "%s" : "%s.part", path);
    w->rows = rows;
    w->columns = columns;
    w->file = fopen(w->part, "wb");
    int rc = w->file ? write_header(w, e) : io_error(w->part, e);
    if (rc < 0)
        npy_writer_abandon(&w);
    else
        *out = w;
    return rc;
}

int npy_writer_rows(struct npy_writer *w, const float *rows, uint64_t n, struct err *e)
{
    if (n > w->rows - w->written)
        return err_set(e, HP_EINVAL, "%s was to have %llu rows, and there are more", w->path,
                       (unsigned long long)w->rows);
    if (fwrite(rows, sizeof *rows, n * w->columns, w->file) != n * w->columns)
        return io_error(w->part, e);
    w->written += n;
    return 0;
}

int npy_writer_close(struct npy_writer **self, struct err *e)
{
    struct npy_writer *w = *self;
    int rc = 0;
    if (w->written != w->rows)
        rc = err_set(e, HP_EINVAL, "%s was to have %llu rows, and there are %llu", w->path,
                     (unsigned long long)w->rows, (unsigned long long)w->written);
    if (rc == 0 && fflush(w->file) != 0)
        rc = io_error(w->part, e);
    if (rc == 0 && writer_is_apart(w))
        rc = fs_file_replace(w->part, w->path, e);
    if (rc < 0) {
        npy_writer_abandon(self);
        return rc;
    }
    fclose(w->file);
    w->file = NULL;
    free(w->part);
    w->part = NULL;
    npy_writer_abandon(self);
    return 0;
}

void npy_writer_abandon(struct npy_writer **self)
{
    struct npy_writer *w = *self;
    *self = NULL;
    if (!w)
        return;
    if (w->file) {
        fclose(w->file);
        if (writer_is_apart(w))
            unlink(w->part);
    }
    free(w->path);
    free(w->part);
    free(w);
}
