#include "coordinator/stream_records.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/effects.h"

enum { KEY_DIGITS = 16, KEY_BYTES_MOST = KEY_DIGITS + sizeof ".end" };
static const char end_suffix[] = ".end";

static const struct pack_field record_fields[] = {PACK_FIELD(stream_record, PACK_TEXT, model),
                                                  PACK_FIELD(stream_record, PACK_TEXT, client),
                                                  PACK_FIELD(stream_record, PACK_U64, priority),
                                                  PACK_FIELD(stream_record, PACK_BOOL, ignore_end),
                                                  PACK_FIELD(stream_record, PACK_BYTES, open),
                                                  PACK_FIELD(stream_record, PACK_BYTES, note),
                                                  {0}};
static const struct pack_field end_fields[] = {
    PACK_FIELD(stream_record_end, PACK_U32S, ids),
    PACK_FIELD(stream_record_end, PACK_BYTES, scores),
    PACK_FIELD(stream_record_end, PACK_U64, finish),
    PACK_FIELD(stream_record_end, PACK_U64, prompt_tokens),
    PACK_FIELD(stream_record_end, PACK_U64, output_tokens),
    PACK_FIELD(stream_record_end, PACK_U64, cached_tokens),
    {0}};

/* ---- keys ---- */

static void key_write(char out[KEY_BYTES_MOST], uint64_t stream, bool ended)
{
    snprintf(out, KEY_BYTES_MOST, "%016" PRIx64 "%s", stream, ended ? end_suffix : "");
}

bool stream_record_key(const char *key, uint64_t *stream, bool *ended)
{
    uint64_t n = 0;
    for (int i = 0; i < KEY_DIGITS; i++) {
        const char *digits = "0123456789abcdef", *at = key[i] ? strchr(digits, key[i]) : NULL;
        if (!at)
            return false;
        n = n << 4 | (uint64_t)(at - digits);
    }
    *stream = n;
    *ended = strcmp(key + KEY_DIGITS, end_suffix) == 0;
    return n && (*ended || !key[KEY_DIGITS]);
}

/* ---- writing ---- */

static void record_write(struct coord *c, uint64_t stream, bool ended,
                         const struct pack_field *fields, const void *record)
{
    char key[KEY_BYTES_MOST];
    struct buffer bytes = {0};
    key_write(key, stream, ended);
    pack_encode(fields, record, &bytes);
    if (!bytes.failed) /* else it ends with this run */
        effects_store_bytes(c, "stream", key, bytes.data, bytes.size);
    buffer_free(&bytes);
}

void stream_record_keep(struct coord *c, struct sequence *s, uint64_t stream, struct pack_span note)
{
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    struct buffer open = {0};
    s->stream = stream;
    m.u.sequence_open = (struct message_sequence_open){.prompt = {s->prompt, s->n_prompt},
                                                       .max_tokens = s->max_tokens,
                                                       .said_scores = s->said_width,
                                                       .sampling = s->sampling};
    message_encode(&m, &open);
    struct stream_record r = {.model = s->deployment->name,
                              .client = s->client,
                              .priority = (uint64_t)(s->priority + REQUEST_PRIORITY_MOST),
                              .ignore_end = s->ignore_end,
                              .open = {open.data, open.size},
                              .note = note};
    if (!open.failed)
        record_write(c, stream, false, record_fields, &r);
    buffer_free(&open);
}

void stream_record_end(struct coord *c, const struct sequence *s, enum request_finish finish,
                       bool satisfied)
{
    if (!s->stream || s->kind != SEQUENCE_REQUEST || s->n_ids != s->n_prompt + s->n_output)
        return;
    struct request_usage usage = sequence_usage(c, s);
    bool untold = finish == REQUEST_STOP && !satisfied && s->n_output;
    struct stream_record_end r = {
        .ids = {s->prompt + s->n_prompt, (size_t)s->n_output - untold},
        .scores = {(const uint8_t *)s->scores, s->n_scores * sizeof *s->scores},
        .finish = finish,
        .prompt_tokens = usage.prompt_tokens,
        .output_tokens = usage.output_tokens,
        .cached_tokens = usage.cached_tokens};
    record_write(c, s->stream, true, end_fields, &r);
}

void stream_record_forget(struct coord *c, uint64_t stream)
{
    char key[KEY_BYTES_MOST];
    for (int ended = 0; ended < 2; ended++) {
        key_write(key, stream, ended);
        effects_forget(c, "stream", key);
    }
}

/* ---- reading ---- */

int stream_record_read(struct pack_span bytes, struct arena *arena, struct stream_record *out,
                       struct err *e)
{
    *out = (struct stream_record){0};
    int rc = pack_decode(record_fields, bytes.data, bytes.size, arena, out, e);
    rc = rc < 0 ? rc : message_decode(out->open.data, out->open.size, arena, &out->message, e);
    if (rc < 0)
        return rc;
    const struct message_sequence_open *o = &out->message.u.sequence_open;
    if (out->message.type != MESSAGE_SEQUENCE_OPEN || !o->prompt.count || !o->max_tokens ||
        o->max_tokens > UINT32_MAX || o->said_scores > 1 + SCORE_MAX_TOP ||
        out->priority > 2 * REQUEST_PRIORITY_MOST || strlen(out->client) >= REQUEST_CLIENT_BYTES)
        return err_set(e, HP_EPARSE, "this record is not a request's");
    return 0;
}

int stream_record_end_read(struct pack_span bytes, struct arena *arena,
                           struct stream_record_end *out, struct err *e)
{
    *out = (struct stream_record_end){0};
    int rc = pack_decode(end_fields, bytes.data, bytes.size, arena, out, e);
    if (rc == 0 && (out->finish > REQUEST_LENGTH || out->scores.size % sizeof(struct score)))
        rc = err_set(e, HP_EPARSE, "this record is not an answer's");
    return rc;
}
