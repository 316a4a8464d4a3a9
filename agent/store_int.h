/* What the files of the weight store share: weight_store.c (models, index, limits), store_files.c
 * (folders of models), store_chunks.c (the bytes of chunks, and which are there). */
#ifndef HP_AGENT_STORE_INT_H
#define HP_AGENT_STORE_INT_H

#include <fcntl.h>
#include <limits.h>

#include "agent/weight_store.h"
#include "common/arena.h"
#include "common/bytes.h"

enum { STORE_PATH_MAX = 2048, STORE_FILE_PATH = STORE_PATH_MAX + 640 };

/* A file as it was when last looked at: another stamp means that somebody else wrote to it. */
struct store_stamp {
    int64_t modified_ns, changed_ns;
    uint64_t bytes;
};

struct store_model {
    struct digest id;
    char folder[STORE_PATH_MAX]; /* FOLDER/models/<id> */
    char *path;                  /* what model_open takes */
    struct buffer bytes;         /* the manifest, encoded */
    struct arena arena;
    struct manifest manifest;
    uint8_t *have;    /* bit of every chunk: it is there */
    uint8_t *checked; /* bit of every chunk: it was seen to be what its digest says, since this
                         process began and since `stamps` */
    struct store_stamp *stamps; /* of every file */
    uint64_t said_bytes;        /* of the `have` file that are good */
    uint64_t head_bytes, chunk_bytes;
    int holds;
    bool unread;      /* more may be there than `have` says: it could not be read */
    bool borrowed;    /* its files are links to those of somebody else: never written */
    int64_t used_ns;  /* wall time of the last use */
    uint32_t *unsaid; /* chunks written and not yet in the `have` file */
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

/* Removes a model's folder; nothing of it counts any more once its manifest is gone, which is
 * removed first. */
void store_folder_remove(const char *path);

/* Reads a model's folder. HP_ECORRUPT when it is not what it says: the caller removes it. HP_EIO:
 * it cannot be read now, whatever it is. */
int store_model_load(const char *models, const char *hex, struct store_model **out, struct err *e);
/* Writes a new model's folder: files and heads first, the manifest last. */
int store_model_make(const char *models, const uint8_t *manifest, size_t size,
                     struct store_model **out, struct err *e);
void store_model_free(struct store_model **m);
/* Gives files their sizes and heads back where something else changed them. */
int store_model_mend(const struct store_model *m, struct err *e);
/* The model's own files below `path` take the place of its sparse ones, for as long as this process
 * lives; all chunks are there, and believed until a file changes. HP_ENOENT: they are not there,
 * and nothing has changed; HP_EIO. */
int store_model_borrow(struct store_model *m, const char *path, struct err *e);

int store_file_path(const struct store_model *m, uint64_t file, char out[STORE_FILE_PATH]);
/* open(2) flags beside O_WRONLY; O_APPEND ignores the offset. */
int store_file_write(const char *path, int flags, uint64_t offset, const uint8_t *bytes,
                     size_t size, bool sync, struct err *e);

/* Before a file of a model is written: what is borrowed is not, and that it should be means that
 * its owner has changed it. HP_EIO. */
int store_write_check(const struct store_model *m, const char *path, struct err *e);
/* Writes a chunk that was compared with its digest. */
int store_chunk_write(struct store_model *m, uint32_t chunk, const uint8_t *bytes, struct err *e);
int store_chunk_read(const struct store_model *m, uint32_t chunk, uint8_t *out, struct err *e);
/* Reads a chunk that is there into `scratch` [MANIFEST_CHUNK_BYTES] and compares it with its
 * digest, unless that was done before and its file is untouched since. HP_ECORRUPT, HP_EIO (it
 * cannot be read): the text names file and chunk. */
int store_chunk_check(struct store_model *m, uint32_t chunk, uint8_t *scratch, struct err *e);
/* The chunk is not there any more. */
void store_chunk_forget(struct store_model *m, uint32_t chunk);
/* The chunk cannot be read now, and counts as not there until store_have_read is tried again. */
void store_chunk_leave(struct store_model *m, uint32_t chunk);
/* Bytes [offset, offset + size) of a file. HP_ENOENT when there is none or it ends before;
 * HP_EIO. */
int store_range_read(const char *file, uint64_t offset, uint8_t *out, size_t size, struct err *e);
/* Whether they are these. */
bool store_range_is(const char *file, uint64_t offset, const uint8_t *bytes, size_t size);
/* All are there, as their digests say. */
void store_chunks_trust(struct store_model *m);
/* Reads which chunks are there. HP_EIO: not all of that could be read. */
int store_have_read(struct store_model *m, struct err *e);
/* fdatasync of the files that unsaid chunks lie in, then of the `have` file. On failure those
 * chunks are forgotten: nobody knows whether they are there. */
int store_model_sync(struct store_model *m, struct err *e);
void store_model_touch(struct store_model *m);

#endif
