/* The weights that this agent keeps on disk: of every model a sparse copy of its files, filled in
 * where chunks have arrived, so that it opens like the model itself; and over all of them an index
 * from a chunk's digest to a place that holds it, so that models which share weights fetch them
 * once.
 *
 *     FOLDER/models/<id>/manifest   as it came (its digest is the id)
 *     FOLDER/models/<id>/files/...  the sparse copy
 *     FOLDER/models/<id>/have       which chunks are there, 8 bytes each, appended after
 *                                   their bytes are on disk; a torn end is cut off
 *     FOLDER/models/<id>/used       its time is that of the last use
 *
 * A crash at any moment loses at most chunks that were not yet said to be there. One thread uses a
 * store at a time, and one process (a lock file). A limit on bytes is kept by removing whole
 * models, least recently used first, never one that is held. */
#ifndef HP_AGENT_WEIGHT_STORE_H
#define HP_AGENT_WEIGHT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/manifest.h"
#include "common/status.h"

struct weight_store;
struct store_model;

/* Makes the folder where it is missing. `limit_bytes` 0: none. HP_EBUSY when another process has it
 * open; HP_EIO. What is broken in it is removed; what cannot be read is left, and tried again by
 * weight_store_hold. */
int weight_store_open(const char *folder, uint64_t limit_bytes, struct weight_store **out,
                      struct err *e);
void weight_store_close(struct weight_store **s);

/* Finds the model of an encoded manifest, or begins it: its files, sparse, with the heads that open
 * them. It is held until weight_store_release; holds count. HP_EPARSE (bad manifest), HP_EIO,
 * HP_ENOSPACE, HP_ENOMEM. */
int weight_store_hold(struct weight_store *s, const uint8_t *manifest, size_t size,
                      struct store_model **out, struct err *e);
void weight_store_release(struct weight_store *s, struct store_model *m);

/* What model_open takes. */
const char *store_model_path(const struct store_model *m);
const struct manifest *store_model_manifest(const struct store_model *m);
struct digest store_model_id(const struct store_model *m);
bool store_model_has(const struct store_model *m, uint32_t chunk);

/* Keeps a chunk that came from anywhere. HP_ECORRUPT when it is not what its digest says (nothing
 * is kept), HP_ENOSPACE (limit or disk, the text says which and how much is missing), HP_EIO.
 * Keeping one that is there is 0. */
int weight_store_put(struct weight_store *s, struct store_model *m, uint32_t chunk,
                     const uint8_t *bytes, size_t size, struct err *e);
/* From a place in this store, of any model. HP_ENOENT when there is none; as above. */
int weight_store_copy(struct weight_store *s, struct store_model *m, uint32_t chunk, struct err *e);
/* From the model's own files below `path` (as hpctl read them). HP_ENOENT when they cannot be read;
 * as above. */
int weight_store_import(struct weight_store *s, struct store_model *m, uint32_t chunk,
                        const char *path, struct err *e);
/* Uses those files where they are, instead of a copy: nothing is read, they are believed to be what
 * the manifest says until they change, and are never written. Not for a model of which something is
 * here already, which stays as it is (0). HP_ENOENT: they are not there, HP_EIO. */
int weight_store_borrow(struct store_model *m, const char *path, struct err *e);
/* Whether a chunk that is here still is what its digest says: reads and compares it, once in the
 * life of this process and again when its file was touched by others. HP_ECORRUPT: it is not (the
 * text names file and chunk); it counts as not here from now on. HP_EIO: it cannot be read, and
 * counts as not here until the model is held once more. HP_ENOENT. */
int weight_store_check(struct weight_store *s, struct store_model *m, uint32_t chunk,
                       struct err *e);
/* Makes durable, and says to be there, what was put since. Happens by itself every 64 MiB. On
 * failure nobody knows what of it is on disk: it counts as not here (store_model_has), except on
 * HP_ENOMEM. */
int weight_store_sync(struct weight_store *s, struct err *e);

/* Bytes of a chunk that is here: its size in *size, and the bytes in `out` [MANIFEST_CHUNK_BYTES].
 * HP_ENOENT. */
int weight_store_read(struct weight_store *s, const struct digest *digest, uint8_t *out,
                      size_t *size, struct err *e);

/* Bytes of that chunk; 0 when it is not here. */
size_t weight_store_size(const struct weight_store *s, const struct digest *digest);

/* Removes a model. HP_EBUSY while it is held, HP_ENOENT. */
int weight_store_remove(struct weight_store *s, const struct digest *id, struct err *e);

struct store_entry {
    struct digest id;
    const char *name; /* valid until the store changes */
    uint64_t bytes;   /* of chunks held */
    bool held;
};
/* The i-th model; false when there is none. */
bool weight_store_entry(const struct weight_store *s, size_t i, struct store_entry *out);
uint64_t weight_store_bytes(const struct weight_store *s);

#endif
