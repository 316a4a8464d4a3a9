/* NumPy's .npz: a zip without compression whose members are .npy files, an array each, named
 * NAME.npy. Sizes are believed only after they were checked against the file's length. */
#ifndef HP_MODEL_FILES_NPZ_H
#define HP_MODEL_FILES_NPZ_H

#include <stddef.h>
#include <stdint.h>

#include "model/ndarray.h"

struct npz_array {
    char *name; /* without ".npy" */
    struct ndarray array;
};

struct npz {
    struct npz_array *arrays; /* in the file's order */
    int n_arrays, room_arrays;
};

/* Reads all of a file's arrays into memory of their own. HP_ENOENT, HP_EIO, HP_ENOMEM; HP_EPARSE,
 * HP_EUNSUPPORTED (compressed, Fortran order, a type that is no number), naming file and member.
 * End with npz_free, on failure too. */
int npz_read(const char *path, struct npz *out, struct err *e);
/* The same of bytes; `name` is for messages. */
int npz_parse(const char *name, const uint8_t *data, size_t size, struct npz *out, struct err *e);
/* Takes the array over, which is all zero afterwards. HP_ENOMEM. */
int npz_add(struct npz *z, const char *name, struct ndarray *array, struct err *e);
/* NULL: there is none of that name. */
const struct ndarray *npz_find(const struct npz *z, const char *name);
/* As a whole or not at all. HP_EIO, HP_ENOSPACE, HP_ENOMEM. */
int npz_write(const char *path, const struct npz *z, struct err *e);
void npz_free(struct npz *z);

#endif
