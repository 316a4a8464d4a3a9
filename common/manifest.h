/* What a model is made of, by content: its files, the bytes that everybody needs to open it
 * (heads), and its weights cut into chunks that are named by their BLAKE2b-256. A chunk never spans
 * two weights, so the chunks of a stage are exactly the bytes of its layers. Two models that share
 * weights share chunks.
 *
 * The manifest travels as msgpack; its own digest is the model's id. */
#ifndef HP_COMMON_MANIFEST_H
#define HP_COMMON_MANIFEST_H

#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/digest.h"
#include "common/pack.h"
#include "common/status.h"

enum { MANIFEST_CHUNK_BYTES = 4 << 20, MANIFEST_MAX_CHUNKS = 4 << 20 };

struct manifest_file {
    const char *name; /* relative, no "..", no leading "/" */
    uint64_t bytes;
};
struct manifest_head {
    uint64_t file, offset;
    struct pack_span data;
};
struct manifest_chunk {
    uint64_t file, offset, bytes;
    struct pack_span digest; /* DIGEST_BYTES */
};

struct manifest {
    const char *name; /* of the file or folder, for people */
    bool folder; /* a Hugging Face folder; else GGUF files, the first of which names the others */
    struct pack_list files;  /* struct manifest_file */
    struct pack_list heads;  /* struct manifest_head */
    struct pack_list chunks; /* struct manifest_chunk, by (file, offset) */
};

/* Appends the bytes, which follow from the content alone; want of memory shows in the buffer. */
void manifest_encode(const struct manifest *m, struct buffer *out);
/* Decodes and checks: names safe, ranges within files, sorted, no overlap, digests of the right
 * size. `bytes` must outlive *out. */
int manifest_decode(const uint8_t *bytes, size_t size, struct arena *arena, struct manifest *out,
                    struct err *e);
/* The model's id: digest of the encoded bytes. */
struct digest manifest_id(const uint8_t *bytes, size_t size);

#endif
