/* Frames of the data channel. One fixed header of FRAME_HEADER_BYTES, little-endian, versioned,
 * closed by the xxh64 of what precedes it; then the payload. The header says whose the frame is; a
 * receiver counts and drops what is stale or foreign without reading the payload. */
#ifndef HP_TRANSPORT_FRAME_H
#define HP_TRANSPORT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/batch.h"
#include "common/bytes.h"
#include "common/kv_format.h"
#include "common/kv_range.h"
#include "common/status.h"

enum {
    FRAME_VERSION = 1,
    FRAME_HEADER_BYTES = 80,
    FRAME_MAX_PAYLOAD_BYTES = 1 << 30,
    FRAME_MAX_RUNS = 4096
};

enum frame_kind {
    FRAME_ACTIVATION = 1, /* a batch for the next stage: run table, then the values that cross, one
                             after the other, each [tokens, its width] of `dtype` */
    FRAME_TOKEN = 2, /* from the last stage to the first: a batch has been through; token table of
                        the sequences that got one (may be empty) */
    FRAME_KV = 3,    /* keys and values of a sequence's tokens: which blocks, then [block][k or
                        v][token][kv head][head dim] of `dtype` */
    FRAME_CHUNK = 4, /* a chunk of a model: its digest (32 bytes), then its bytes */
    FRAME_CHUNK_WANT = 5, /* asks for chunks: u32 count, digests, then the asker's data address */
    FRAME_PROBE = 6,      /* measures a link; echoed with FRAME_PROBE_ECHO, payload dropped */
    FRAME_PROBE_ECHO = 7,
    FRAME_ALIVE = 8, /* a sign of life over a hop between stages, without payload */
    FRAME_TENSORS =
        9, /* a batch of a plan of pools on its way: legs and tensors (frame_tensors.h) */
    FRAME_KIND_END
};

enum frame_dtype {
    FRAME_F32 = 0,
    FRAME_F16 = 1,
    FRAME_BF16 = 2,
    FRAME_BYTES = 3,   /* no rows */
    FRAME_KV_Q8_0 = 4, /* of FRAME_KV alone */
    FRAME_Q8 = 5, /* blocks of FRAME_Q8_ELEMENTS: scale and kept value (f32), then a signed byte
                     each, of which -128 is the kept value (DTYPE_Q8_WIRE) */
    FRAME_DTYPE_END
};
enum { FRAME_Q8_ELEMENTS = 64, FRAME_Q8_BYTES = 72 };
/* "f32", "f16", "bf16", "q8": how rows cross between stages, and back. False: the text is none of
 * them (NULL and "" are f32: whoever says nothing means what there was before). */
const char *frame_dtype_word(enum frame_dtype dtype);
bool frame_dtype_of_word(const char *word, enum frame_dtype *out);
/* All that frame_dtype_of_word knows, for messages: "f32, f16, bf16 or q8". */
#define FRAME_DTYPES_KNOWN "f32, f16, bf16 or q8"
/* Elements that cross together: rows are whole blocks. 1 but for q8. */
uint32_t frame_dtype_block(enum frame_dtype dtype);
/* Of n elements, whole blocks; FRAME_BYTES: n. */
uint64_t frame_dtype_bytes(enum frame_dtype dtype, uint64_t n);
/* Bytes that cross for each byte of float32. */
double frame_dtype_ratio(enum frame_dtype dtype);
/* Elements of a token that cross between stages: `width` in all, of which `exact` are float32
 * whatever the others are, since rounding would change what they mean (experts' numbers). */
struct frame_row {
    uint64_t width, exact;
};
uint64_t frame_rows_bytes(enum frame_dtype dtype, struct frame_row row, uint64_t tokens);
/* Of keys and values that are kept so. */
enum frame_dtype frame_dtype_of_kv(enum kv_format f);
/* The other way. False: keys and values are not kept so. */
bool frame_dtype_is_kv(uint16_t dtype, enum kv_format *out);

struct frame_header {
    uint16_t kind;
    uint16_t stage;   /* of the receiver */
    uint16_t dtype;   /* enum frame_dtype */
    uint16_t n_runs;  /* FRAME_ACTIVATION, FRAME_TOKEN: rows of the table */
    uint64_t session; /* session token that the coordinator issued */
    uint64_t deployment;
    uint32_t generation;
    uint32_t batch;          /* number that the first stage gave to the batch */
    uint64_t sequence;       /* of the first run; 0 where there is none. FRAME_TENSORS: which of the
                                share's sizes */
    uint32_t first_position; /* of the first run */
    uint32_t n_tokens;       /* of all runs */
    uint64_t payload_bytes;
    uint64_t sent_ns; /* sender's clock when posted (of a paced agent: when it is due to arrive);
                         means something only where clocks are one */
};

/* A row of FRAME_TOKEN: 16 bytes on the wire. */
enum frame_token_kind {
    FRAME_TOKEN_NEXT,  /* the sequence goes on with this token */
    FRAME_TOKEN_LAST,  /* it ends with it */
    FRAME_TOKEN_DRAFT, /* a guess of what follows the row before: to be verified with that */
    FRAME_TOKEN_KINDS
};
struct frame_token {
    uint64_t sequence;
    uint32_t token;
    uint16_t kind;  /* enum frame_token_kind */
    uint16_t right; /* NEXT, LAST: so many guesses of its run were right */
};

enum { FRAME_RUN_BYTES = 24, FRAME_TOKEN_BYTES = 16, FRAME_KV_BYTES = 16 };

/* The header as it goes over the wire, its hash included. */
void frame_header_encode(const struct frame_header *h, uint8_t out[FRAME_HEADER_BYTES]);
/* HP_EPROTO: wrong size, magic, version (the text names both), kind or hash. */
int frame_header_decode(const uint8_t *bytes, size_t size, struct frame_header *out, struct err *e);

/* A run (FRAME_ACTIVATION) is 24 bytes on the wire: sequence, first position, tokens, logits,
 * guesses. */
void frame_runs_encode(const struct batch_run *runs, int n, uint8_t *out);
/* Reads header->n_runs runs from the payload's start; checks that their tokens add up to
 * header->n_tokens. Their rows follow each other; none is sampled. */
int frame_runs_decode(const struct frame_header *h, const uint8_t *payload, struct batch_run *out,
                      struct err *e);
void frame_tokens_encode(const struct frame_token *tokens, int n, uint8_t *out);
int frame_tokens_decode(const struct frame_header *h, const uint8_t *payload,
                        struct frame_token *out, struct err *e);

/* The payload of a FRAME_KV begins with group, first block, number of blocks, and 4 bytes of 0; the
 * header says the first token and how many. */
void frame_kv_encode(const struct kv_range *r, uint8_t out[FRAME_KV_BYTES]);
int frame_kv_decode(const struct frame_header *h, const uint8_t *payload, struct kv_range *out,
                    struct err *e);

#endif
