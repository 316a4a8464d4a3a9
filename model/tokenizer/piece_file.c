#include "model/tokenizer/piece_file.h"

#include <string.h>

enum { PIECES_MAX = 1 << 24, PIECE_MAX_BYTES = 1 << 16 };

/* ---- protobuf's wire format ---- */

enum wire_type { WIRE_VARINT, WIRE_64_BITS, WIRE_BYTES, WIRE_32_BITS = 5 };

struct wire {
    const uint8_t *at, *end;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;     /* of a varint; the bits of the others */
    struct wire inside; /* of bytes */
};

static bool varint_read(struct wire *w, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool fixed_read(struct wire *w, size_t bytes, uint64_t *out)
{
    if ((size_t)(w->end - w->at) < bytes)
        return false;
    *out = 0;
    for (size_t i = 0; i < bytes; i++)
        *out |= (uint64_t)w->at[i] << (8 * i);
    w->at += bytes;
    return true;
}

/* The next field: 1, 0 at the end, -1 where there is none and should be. */
static int field_next(struct wire *w, struct wire_field *f)
{
    uint64_t key, size;
    if (w->at == w->end)
        return 0;
    if (!varint_read(w, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return -1;
    *f = (struct wire_field){.number = (uint32_t)(key >> 3), .type = (enum wire_type)(key & 7)};
    switch (f->type) {
    case WIRE_VARINT: return varint_read(w, &f->value) ? 1 : -1;
    case WIRE_64_BITS: return fixed_read(w, 8, &f->value) ? 1 : -1;
    case WIRE_32_BITS: return fixed_read(w, 4, &f->value) ? 1 : -1;
    case WIRE_BYTES:
        if (!varint_read(w, &size) || size > (uint64_t)(w->end - w->at))
            return -1;
        f->inside = (struct wire){w->at, w->at + size};
        w->at += size;
        return 1;
    }
    return -1;
}

/* A field of another type than the format's is one that is not known, as in protobuf. */
static bool is_field(const struct wire_field *f, uint32_t number, enum wire_type type)
{
    return f->number == number && f->type == type;
}

/* ---- SentencePiece's messages ---- */

enum model_field { MODEL_PIECE = 1, MODEL_TRAINER, MODEL_NORMALIZER };
enum piece_field { PIECE_TEXT = 1, PIECE_SCORE, PIECE_TYPE };
enum trainer_field {
    TRAINER_MODEL = 3,
    TRAINER_SUFFIX = 24, /* treat_whitespace_as_suffix */
    TRAINER_BYTE_FALLBACK = 35,
    TRAINER_UNKNOWN_ID = 40,
    TRAINER_FIRST_ID,
    TRAINER_LAST_ID,
    TRAINER_PAD_ID
};
enum normalizer_field {
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_PREFIX,  /* add_dummy_prefix */
    NORMALIZER_SQUEEZE, /* remove_extra_whitespaces */
    NORMALIZER_ESCAPE   /* escape_whitespaces */
};

struct piece_reading {
    const char *file;
    const uint8_t *start;
    struct piece_file *out;
    uint64_t model;
    bool suffix, spaces_stay;
    struct err *e;
};

static int refuse_bytes(const struct piece_reading *r, const struct wire *w)
{
    err_set(r->e, HP_EPARSE, "%s: byte %zu is not as in a SentencePiece model", r->file,
            (size_t)(w->at - r->start));
    return err_hint(r->e, "the file is cut short, or of another kind (tiktoken's lists of tokens "
                          "have the name, too); fetch tokenizer.json");
}

static int read_piece(const struct piece_reading *r, struct wire w, struct vocabulary_piece *p)
{
    struct wire_field f = {0};
    int more;
    *p = (struct vocabulary_piece){.text = "", .type = PIECE_NORMAL};
    while ((more = field_next(&w, &f)) > 0) {
        if (is_field(&f, PIECE_TEXT, WIRE_BYTES)) {
            size_t size = (size_t)(f.inside.end - f.inside.at);
            if (size > PIECE_MAX_BYTES)
                return err_set(r->e, HP_ELIMIT, "%s: piece %td has %zu bytes; at most %d are read",
                               r->file, p - r->out->pieces, size, PIECE_MAX_BYTES);
            p->text = (const char *)f.inside.at;
            p->size = (uint32_t)size;
        } else if (is_field(&f, PIECE_SCORE, WIRE_32_BITS)) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&p->score, &bits, sizeof p->score);
        } else if (is_field(&f, PIECE_TYPE, WIRE_VARINT)) {
            if (f.value < PIECE_NORMAL || f.value > PIECE_BYTE)
                return err_set(r->e, HP_EPARSE, "%s: piece %td is of type %llu; 1 to 6 are known",
                               r->file, p - r->out->pieces, (unsigned long long)f.value);
            p->type = (enum piece_type)f.value;
        }
    }
    return more < 0 ? refuse_bytes(r, &w) : 0;
}

/* Numbers are written as 64 bits of two's complement: -1 is none. */
static int64_t id_of_field(const struct wire_field *f)
{
    return f->value > INT32_MAX ? -1 : (int64_t)f->value;
}

static int read_trainer(struct piece_reading *r, struct wire w)
{
    struct wire_field f = {0};
    struct piece_file *p = r->out;
    int more;
    while ((more = field_next(&w, &f)) > 0) {
        if (f.type != WIRE_VARINT)
            continue;
        switch (f.number) {
        case TRAINER_MODEL: r->model = f.value; break;
        case TRAINER_SUFFIX: r->suffix = f.value != 0; break;
        case TRAINER_BYTE_FALLBACK: p->byte_fallback = f.value != 0; break;
        case TRAINER_UNKNOWN_ID: p->unknown = id_of_field(&f); break;
        case TRAINER_FIRST_ID: p->first = id_of_field(&f); break;
        case TRAINER_LAST_ID: p->last = id_of_field(&f); break;
        case TRAINER_PAD_ID: p->pad = id_of_field(&f); break;
        default: break;
        }
    }
    return more < 0 ? refuse_bytes(r, &w) : 0;
}

static int read_normalizer(struct piece_reading *r, struct wire w)
{
    struct wire_field f = {0};
    struct piece_file *p = r->out;
    int more;
    while ((more = field_next(&w, &f)) > 0) {
        if (is_field(&f, NORMALIZER_CHARSMAP, WIRE_BYTES)) {
            p->charsmap = f.inside.at;
            p->charsmap_bytes = (size_t)(f.inside.end - f.inside.at);
        } else if (is_field(&f, NORMALIZER_PREFIX, WIRE_VARINT)) {
            p->prefix = f.value != 0;
        } else if (is_field(&f, NORMALIZER_SQUEEZE, WIRE_VARINT)) {
            p->squeeze = f.value != 0;
        } else if (is_field(&f, NORMALIZER_ESCAPE, WIRE_VARINT)) {
            r->spaces_stay = f.value == 0;
        }
    }
    return more < 0 ? refuse_bytes(r, &w) : 0;
}

/* How many pieces there are; fields of the outermost message are whole after it. */
static int count_pieces(const struct piece_reading *r, struct wire w, size_t *n)
{
    struct wire_field f = {0};
    int more;
    *n = 0;
    while ((more = field_next(&w, &f)) > 0)
        *n += is_field(&f, MODEL_PIECE, WIRE_BYTES);
    if (more < 0 || *n == 0)
        return refuse_bytes(r, &w);
    if (*n > PIECES_MAX)
        return err_set(r->e, HP_ELIMIT, "%s: has %zu pieces; at most %d are read", r->file, *n,
                       PIECES_MAX);
    return 0;
}

static int read_model(struct piece_reading *r, struct wire w)
{
    struct wire_field f = {0};
    int rc = 0;
    while (rc == 0 && field_next(&w, &f) > 0) {
        if (f.type != WIRE_BYTES)
            continue;
        switch (f.number) {
        case MODEL_PIECE: rc = read_piece(r, f.inside, &r->out->pieces[r->out->n++]); break;
        case MODEL_TRAINER: rc = read_trainer(r, f.inside); break;
        case MODEL_NORMALIZER: rc = read_normalizer(r, f.inside); break;
        default: break;
        }
    }
    return rc;
}

static int model_refuse(const struct piece_reading *r)
{
    static const char *const models[] = {"", "unigram", "bpe", "word", "char"};
    if (r->model != PIECE_MODEL_UNIGRAM && r->model != PIECE_MODEL_BPE)
        return err_set(r->e, HP_EUNSUPPORTED,
                       "%s: a SentencePiece model of type %llu (%s) is not supported; known are "
                       "unigram and bpe",
                       r->file, (unsigned long long)r->model,
                       r->model < sizeof models / sizeof *models ? models[r->model] : "unknown");
    if (r->suffix || r->spaces_stay)
        return err_set(r->e, HP_EUNSUPPORTED, "%s: a SentencePiece model with %s is not supported",
                       r->file,
                       r->suffix ? "spaces behind their words (treat_whitespace_as_suffix)"
                                 : "spaces as they are (escape_whitespaces false)");
    return 0;
}

int piece_file_read(const char *file, const void *bytes, size_t size, struct arena *arena,
                    struct piece_file *out, struct err *e)
{
    struct wire all = {bytes, (const uint8_t *)bytes + size};
    struct piece_reading r = {
        .file = file, .start = bytes, .out = out, .model = PIECE_MODEL_UNIGRAM, .e = e};
    size_t n;
    /* What the format says where a file does not. */
    *out = (struct piece_file){.prefix = true, .squeeze = true, .first = 1, .last = 2, .pad = -1};
    int rc = count_pieces(&r, all, &n);
    if (rc == 0 && !(out->pieces = arena_alloc(arena, n, sizeof *out->pieces)))
        rc = err_set(e, HP_ENOMEM, "%s: out of memory for %zu pieces", file, n);
    rc = rc < 0 ? rc : read_model(&r, all);
    rc = rc < 0 ? rc : model_refuse(&r);
    out->model = (enum piece_model)r.model;
    return rc;
}
