/* Answers that outlive their readers: those of requests with an Idempotency-Key. The core's tokens
 * of such a request come here, and are kept; whoever reads it is told all of them, from the first
 * one, and then each as it comes. A reader that is gone leaves the request at work, for
 * `resume_ms`; one that asks again (same key, or the answer's name) goes on reading, also from a
 * coordinator that was started meanwhile: what the core has of requests of before is found at the
 * start. A whole answer is kept for as long.
 *
 * One reader at a time: a second one takes the stream over. All on the loop's thread; readers are
 * told from the loop, never from within a call. */
#ifndef HP_COORDINATOR_GATEWAY_KEPT_STREAMS_H
#define HP_COORDINATOR_GATEWAY_KEPT_STREAMS_H

#include <uv.h>

#include "common/bytes.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/event_ids.h"
#include "coordinator/requests.h"

enum {
    KEPT_KEY_BYTES = 256,
    KEPT_MOST = 4096,
    KEPT_BYTES = 256 << 20, /* of bodies, tokens and scores; what is over goes first */
};

struct kept_streams;

struct kept_stream {
    char id[40];                      /* of its answer */
    char key[KEPT_KEY_BYTES];         /* as the client chose it, */
    char scope[REQUEST_CLIENT_BYTES]; /* whose it is: a digest of the API key; "": without one */
    char client[REQUEST_CLIENT_BYTES];
    const struct dialect *dialect;
    bool chat;
    int64_t created_s;
    struct buffer body;
    struct buffer stops; /* kept_stops.h; set before its first choice is opened */
    /* the rest is its own */
    struct kept_streams *all;
    uint64_t number; /* of the core's streams: its choices' follow */
    struct kept_choice **choices;
    uint32_t n_choices, room_choices;
    void *reader;
    void (*taken)(void *reader);
    uint64_t left_ns; /* since when nobody reads it */
    bool failed;      /* nobody finds it any more */
    bool before;      /* an earlier run opened it, whose readers may have more than is known here */
    size_t bytes;
};

/* NULL: no memory. `requests` outlives it. */
struct kept_streams *kept_streams_create(uv_loop_t *loop, const struct requests *requests,
                                         uint64_t resume_ms);
/* Nobody reads any more; its requests stay the core's. Freed when the loop has run. */
void kept_streams_close(struct kept_streams **k);
/* Once a second: what nobody has come back for ends. */
void kept_streams_tick(struct kept_streams *k);

/* The stream of this key, which a client of this scope has opened, or a new one (*found false).
 * HP_EINVAL: no key; HP_EEXIST: it had another body; HP_EBUSY: too many; HP_ENOMEM. The body is
 * copied. */
int kept_stream_find(struct kept_streams *k, const struct kept_stream *asked,
                     struct kept_stream **out, bool *found, struct err *e);
/* NULL: none, or another client's. */
struct kept_stream *kept_stream_of_id(struct kept_streams *k, const char *scope, const char *id);

/* False: nobody can have had so much of it yet. */
bool kept_stream_told(const struct kept_stream *s, const struct event_id *had);

/* The stream has this reader from now on; the one before hears so by `taken`, and calls nothing any
 * more but kept_choice_leave. */
void kept_stream_read(struct kept_stream *s, void *reader, void (*taken)(void *reader));
void kept_stream_leave(struct kept_stream *s, const void *reader);

/* As requests->open and ->cancel, of one of its choices: what was opened before is told again. A
 * reader that leaves it unsatisfied leaves it at work. */
int kept_choice_open(struct kept_stream *s, uint32_t index, const struct request_spec *spec,
                     uint64_t *id, struct err *e);
void kept_choice_leave(struct kept_stream *s, uint64_t id, bool satisfied,
                       struct request_usage *usage);

#endif
