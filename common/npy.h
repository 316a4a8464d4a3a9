/* Arrays in files: NumPy's .npy, version 1.0, float32 [rows, columns], row-major, little-endian;
 * written a few rows at a time. */
#ifndef HP_COMMON_NPY_H
#define HP_COMMON_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct npy_writer;

/* Begins `path`.part with the header; the file gets its name when it is whole. What is no regular
 * file (/dev/null, a pipe) is written to as it is. HP_EIO, HP_ENOSPACE. */
int npy_writer_open(const char *path, uint64_t rows, uint64_t columns, struct npy_writer **out,
                    struct err *e);
/* The next n rows. */
int npy_writer_rows(struct npy_writer *w, const float *rows, uint64_t n, struct err *e);
/* Ends the file: HP_EINVAL when rows are missing. The writer is gone either way, and on failure the
 * unfinished file too. */
int npy_writer_close(struct npy_writer **w, struct err *e);
/* Gives up: nothing is left behind. */
void npy_writer_abandon(struct npy_writer **w);

#endif
