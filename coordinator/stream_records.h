/* A request that outlives the coordinator, in the store and back: what it asked for when it was
 * opened, and its answer when that is whole. Nothing is stored between the two: its tokens are with
 * the last stage (streams.h). */
#ifndef HP_COORDINATOR_STREAM_RECORDS_H
#define HP_COORDINATOR_STREAM_RECORDS_H

#include "coordinator/sequence.h"
#include "transport/message.h"

/* What was stored when it was opened. */
struct stream_record {
    const char *model, *client;
    uint64_t priority; /* plus REQUEST_PRIORITY_MOST */
    bool ignore_end;
    struct pack_span open; /* a sequence_open: prompt, max_tokens, sampling */
    struct pack_span note;
    struct message message; /* `open`, decoded */
};

/* And at its end. */
struct stream_record_end {
    struct pack_u32s ids;
    struct pack_span scores; /* struct score: of these and of an end token, where asked for */
    uint64_t finish;         /* enum request_finish */
    uint64_t prompt_tokens, output_tokens, cached_tokens;
};

/* The sequence is a stream from now on. */
void stream_record_keep(struct coord *c, struct sequence *s, uint64_t stream,
                        struct pack_span note);
/* The sequence has all its tokens; of one that is no stream nothing. Its end token was not told,
 * and is not stored; one whose reader is `satisfied` has none. */
void stream_record_end(struct coord *c, const struct sequence *s, enum request_finish finish,
                       bool satisfied);
void stream_record_forget(struct coord *c, uint64_t stream);

/* The number in a record's key, and whether the record is of an end. False: it is no key of ours.
 */
bool stream_record_key(const char *key, uint64_t *stream, bool *ended);
/* What they point at is in `bytes` or `arena`. HP_EPARSE, HP_ENOMEM. */
int stream_record_read(struct pack_span bytes, struct arena *arena, struct stream_record *out,
                       struct err *e);
int stream_record_end_read(struct pack_span bytes, struct arena *arena,
                           struct stream_record_end *out, struct err *e);

#endif
