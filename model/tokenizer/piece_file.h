/* SentencePiece's tokenizer.model: a ModelProto in protobuf's wire format, of which pieces,
 * normalizer and the numbers of the special pieces are read and all else is passed over. Source:
 * sentencepiece_model.proto of SentencePiece, and protobuf's "Encoding". */
#ifndef HP_MODEL_TOKENIZER_PIECE_FILE_H
#define HP_MODEL_TOKENIZER_PIECE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"

/* The numbers are the file's. */
enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER_DEFINED, /* looked for in the text, and never merged with anything */
    PIECE_UNUSED,
    PIECE_BYTE
};

struct vocabulary_piece {
    const char *text;
    uint32_t size;
    float score;
    enum piece_type type;
};

/* How text is cut into pieces. */
enum piece_model { PIECE_MODEL_UNIGRAM = 1, PIECE_MODEL_BPE };

struct piece_file {
    struct vocabulary_piece *pieces; /* [n]; a piece's id is its place */
    uint32_t n;
    enum piece_model model;
    bool byte_fallback;                /* what has no piece is spelled by its bytes' pieces */
    bool prefix;                       /* a space before a text */
    bool squeeze;                      /* of several spaces one stays, and none at the ends */
    int64_t unknown, first, last, pad; /* ids; -1: none */
    const uint8_t *charsmap;           /* charsmap.h; NULL: none */
    size_t charsmap_bytes;
};

/* Reads `size` bytes, into which the pieces' texts and the charsmap point; `file` is for messages.
 * HP_EPARSE: the bytes are no such file. HP_EUNSUPPORTED: pieces are cut in another way (whole
 * words, characters, spaces behind a word). HP_ELIMIT, HP_ENOMEM. */
int piece_file_read(const char *file, const void *bytes, size_t size, struct arena *arena,
                    struct piece_file *out, struct err *e);

#endif
