#include "transport/frame.h"

#include <string.h>
#include <xxhash.h>

static const uint8_t magic[2] = {'H', 'p'};

static const struct {
    const char *word;
    uint32_t elements, bytes; /* of a block */
    bool rows;
} dtypes[FRAME_DTYPE_END] = {[FRAME_F32] = {"f32", 1, 4, true},
                             [FRAME_F16] = {"f16", 1, 2, true},
                             [FRAME_BF16] = {"bf16", 1, 2, true},
                             [FRAME_BYTES] = {"bytes", 1, 1, false},
                             [FRAME_Q8] = {"q8", FRAME_Q8_ELEMENTS, FRAME_Q8_BYTES, true},
                             [FRAME_KV_Q8_0] = {"q8_0", 32, 34, false}};

const char *frame_dtype_word(enum frame_dtype dtype)
{
    return dtypes[dtype].word;
}

bool frame_dtype_of_word(const char *word, enum frame_dtype *out)
{
    *out = FRAME_F32;
    if (!word || !word[0])
        return true;
    for (int i = 0; i < FRAME_DTYPE_END; i++)
        if (dtypes[i].rows && strcmp(word, dtypes[i].word) == 0) {
            *out = (enum frame_dtype)i;
            return true;
        }
    return false;
}

uint32_t frame_dtype_block(enum frame_dtype dtype)
{
    return dtypes[dtype].elements;
}

uint64_t frame_dtype_bytes(enum frame_dtype dtype, uint64_t n)
{
    return n / dtypes[dtype].elements * dtypes[dtype].bytes;
}

uint64_t frame_rows_bytes(enum frame_dtype dtype, struct frame_row row, uint64_t tokens)
{
    return frame_dtype_bytes(dtype, tokens * (row.width - row.exact)) +
           frame_dtype_bytes(FRAME_F32, tokens * row.exact);
}

double frame_dtype_ratio(enum frame_dtype dtype)
{
    return (double)dtypes[dtype].bytes / dtypes[dtype].elements / (double)sizeof(float);
}

enum frame_dtype frame_dtype_of_kv(enum kv_format f)
{
    static const enum frame_dtype of[] = {
        [KV_F16] = FRAME_F16, [KV_F32] = FRAME_F32, [KV_Q8_0] = FRAME_KV_Q8_0};
    return of[f];
}

bool frame_dtype_is_kv(uint16_t dtype, enum kv_format *out)
{
    for (enum kv_format f = KV_F16; f <= KV_Q8_0; f++)
        if (frame_dtype_of_kv(f) == dtype) {
            *out = f;
            return true;
        }
    return false;
}

/* The layout, byte by byte: magic 0, version 2, kind 4, stage 6, dtype 8, n_runs 10, batch 12,
 * session 16, deployment 24, generation 32, first_position 36, sequence 40, n_tokens 48, reserved
 * 52 (0), payload_bytes 56, sent_ns 64, xxh64 of the first 72 bytes at 72. */

#define PUT(at, value) memcpy(out + (at), &(value), sizeof(value))
#define GET(at, value) memcpy(&(value), bytes + (at), sizeof(value))

void frame_header_encode(const struct frame_header *h, uint8_t out[FRAME_HEADER_BYTES])
{
    const uint16_t version = FRAME_VERSION;
    const uint32_t reserved = 0;
    memcpy(out, magic, sizeof magic);
    PUT(2, version);
    PUT(4, h->kind);
    PUT(6, h->stage);
    PUT(8, h->dtype);
    PUT(10, h->n_runs);
    PUT(12, h->batch);
    PUT(16, h->session);
    PUT(24, h->deployment);
    PUT(32, h->generation);
    PUT(36, h->first_position);
    PUT(40, h->sequence);
    PUT(48, h->n_tokens);
    PUT(52, reserved);
    PUT(56, h->payload_bytes);
    PUT(64, h->sent_ns);
    uint64_t hash = XXH64(out, 72, 0);
    PUT(72, hash);
}

int frame_header_decode(const uint8_t *bytes, size_t size, struct frame_header *out, struct err *e)
{
    uint16_t version;
    uint64_t hash;
    if (size != FRAME_HEADER_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return err_set(e, HP_EPROTO, "a frame's header of %zu bytes is not ours", size);
    GET(2, version);
    if (version != FRAME_VERSION)
        return err_set(e, HP_EPROTO, "the peer sends frames of version %u, this program version %d",
                       version, FRAME_VERSION);
    GET(72, hash);
    if (hash != XXH64(bytes, 72, 0))
        return err_set(e, HP_EPROTO, "a frame's header does not match its hash");
    struct frame_header h;
    GET(4, h.kind);
    GET(6, h.stage);
    GET(8, h.dtype);
    GET(10, h.n_runs);
    GET(12, h.batch);
    GET(16, h.session);
    GET(24, h.deployment);
    GET(32, h.generation);
    GET(36, h.first_position);
    GET(40, h.sequence);
    GET(48, h.n_tokens);
    GET(56, h.payload_bytes);
    GET(64, h.sent_ns);
    if (h.kind == 0 || h.kind >= FRAME_KIND_END || h.dtype >= FRAME_DTYPE_END ||
        h.n_runs > FRAME_MAX_RUNS || h.payload_bytes > FRAME_MAX_PAYLOAD_BYTES)
        return err_set(
            e, HP_EPROTO,
            "a frame's header holds kind %u, dtype %u, %u runs, %llu bytes: out of range", h.kind,
            h.dtype, h.n_runs, (unsigned long long)h.payload_bytes);
    *out = h;
    return 0;
}

void frame_runs_encode(const struct batch_run *runs, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += FRAME_RUN_BYTES) {
        PUT(0, runs[i].sequence);
        PUT(8, runs[i].first_position);
        PUT(12, runs[i].n_tokens);
        PUT(16, runs[i].n_logits);
        PUT(20, runs[i].n_drafts);
    }
}

int frame_runs_decode(const struct frame_header *h, const uint8_t *payload, struct batch_run *out,
                      struct err *e)
{
    uint64_t total = 0;
    if (h->payload_bytes < (uint64_t)h->n_runs * FRAME_RUN_BYTES)
        return err_set(e, HP_EPROTO, "a frame of %llu bytes cannot hold %u runs",
                       (unsigned long long)h->payload_bytes, h->n_runs);
    for (int i = 0; i < h->n_runs; i++) {
        const uint8_t *bytes = payload + (size_t)i * FRAME_RUN_BYTES;
        out[i] = (struct batch_run){.row = (uint32_t)total};
        GET(0, out[i].sequence);
        GET(8, out[i].first_position);
        GET(12, out[i].n_tokens);
        GET(16, out[i].n_logits);
        GET(20, out[i].n_drafts);
        if (out[i].n_tokens == 0 || out[i].n_logits > out[i].n_tokens)
            return err_set(e, HP_EPROTO, "run %d of a frame has %u tokens and %u logits", i,
                           out[i].n_tokens, out[i].n_logits);
        if (out[i].n_drafts &&
            (out[i].n_drafts > BATCH_MAX_DRAFTS || out[i].n_tokens != out[i].n_drafts + 1 ||
             out[i].n_logits != out[i].n_tokens))
            return err_set(e, HP_EPROTO, "run %d of a frame has %u tokens and %u guesses", i,
                           out[i].n_tokens, out[i].n_drafts);
        total += out[i].n_tokens;
    }
    if (total != h->n_tokens)
        return err_set(e, HP_EPROTO, "a frame's runs have %llu tokens, its header says %u",
                       (unsigned long long)total, h->n_tokens);
    return 0;
}

void frame_tokens_encode(const struct frame_token *tokens, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += FRAME_TOKEN_BYTES) {
        PUT(0, tokens[i].sequence);
        PUT(8, tokens[i].token);
        PUT(12, tokens[i].kind);
        PUT(14, tokens[i].right);
    }
}

int frame_tokens_decode(const struct frame_header *h, const uint8_t *payload,
                        struct frame_token *out, struct err *e)
{
    if (h->payload_bytes != (uint64_t)h->n_runs * FRAME_TOKEN_BYTES)
        return err_set(e, HP_EPROTO, "a token frame of %llu bytes does not hold %u tokens",
                       (unsigned long long)h->payload_bytes, h->n_runs);
    for (int i = 0; i < h->n_runs; i++) {
        const uint8_t *bytes = payload + (size_t)i * FRAME_TOKEN_BYTES;
        GET(0, out[i].sequence);
        GET(8, out[i].token);
        GET(12, out[i].kind);
        GET(14, out[i].right);
        if (out[i].kind >= FRAME_TOKEN_KINDS)
            return err_set(e, HP_EPROTO, "row %d of a token frame is of kind %u", i, out[i].kind);
    }
    return 0;
}

void frame_kv_encode(const struct kv_range *r, uint8_t out[FRAME_KV_BYTES])
{
    PUT(0, r->group);
    PUT(4, r->first_block);
    PUT(8, r->n_blocks);
    PUT(12, (uint32_t){0});
}

int frame_kv_decode(const struct frame_header *h, const uint8_t *payload, struct kv_range *out,
                    struct err *e)
{
    const uint8_t *bytes = payload;
    struct kv_range r = {.first = h->first_position, .count = h->n_tokens};
    if (!h->payload_bytes && !h->n_tokens && !h->n_runs) { /* a sign of life of its sender */
        *out = (struct kv_range){0};
        return 0;
    }
    if (h->payload_bytes <= FRAME_KV_BYTES || h->n_runs)
        return err_set(e, HP_EPROTO, "a frame of %llu bytes and %u runs holds no keys and values",
                       (unsigned long long)h->payload_bytes, h->n_runs);
    GET(0, r.group);
    GET(4, r.first_block);
    GET(8, r.n_blocks);
    *out = r;
    return 0;
}
