/* What the files of the weight store share: weight_store.c (models, index, limits), store_files.c (what lies on disk and how it gets there safely). */
#ifndef HP_AGENT_STORE_INT_H
#define HP_AGENT_STORE_INT_H

#include "agent/weight_store.h"
#include "common/arena.h"
#include "common/bytes.h"

#include <limits.h>

enum { STORE_PATH_MAX = 2048 };

struct store_model {
    struct digest id;
    char folder[STORE_PATH_MAX]; /* FOLDER/models/<id> */
    char *path;                  /* what model_open takes */
    struct buffer bytes;         /* the manifest, encoded */
    struct arena arena;
    struct manifest manifest;
    uint8_t *have;               /* bit of every chunk */
    uint64_t head_bytes, chunk_bytes;
    int holds;
    int64_t used_ns;             /* wall time of the last use */
    uint32_t *unsaid;            /* chunks written and not yet in the `have` file */
    size_t n_unsaid, unsaid_capacity;
    struct store_model *next;
};

static inline const struct manifest_chunk *store_chunk(const struct store_model *m, uint32_t i)
{
    return (const struct manifest_chunk *)m->manifest.chunks.items + i;
}
static inline const struct manifest_file *store_file(const struct store_model *m, uint64_t i)
{
    return (const struct manifest_file *)m->manifest.files.items + i;
}

/* Makes a folder and those above it. */
int store_folder_make(const char *path, struct err *e);
/* Removes a model's folder; nothing of it counts any more once its manifest is gone, which is removed first. */
void store_folder_remove(const char *path);

/* Reads a model's folder. HP_ECORRUPT when it is not what it says: the caller removes it. */
int store_model_load(const char *models, const char *hex, struct store_model **out, struct err *e);
/* Writes a new model's folder: files and heads first, the manifest last. */
int store_model_make(const char *models, const uint8_t *manifest, size_t size, struct store_model **out, struct err *e);
void store_model_free(struct store_model **m);

int store_chunk_write(struct store_model *m, uint32_t chunk, const uint8_t *bytes, struct err *e);
int store_chunk_read(const struct store_model *m, uint32_t chunk, uint8_t *out, struct err *e);
/* Bytes [offset, offset + size) of a file. HP_ENOENT when it cannot be opened or ends before. */
int store_range_read(const char *file, uint64_t offset, uint8_t *out, size_t size, struct err *e);
/* fdatasync of the files that unsaid chunks lie in, then of the `have` file. */
int store_model_sync(struct store_model *m, struct err *e);
void store_model_touch(struct store_model *m);

#endif
