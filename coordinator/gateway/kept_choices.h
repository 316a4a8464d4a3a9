/* One choice of a kept answer: what the core told of it so far, and who hears of it. Only
 * kept_*.c include this. */
#ifndef HP_COORDINATOR_GATEWAY_KEPT_CHOICES_H
#define HP_COORDINATOR_GATEWAY_KEPT_CHOICES_H

#include "coordinator/gateway/kept_stops.h"
#include "coordinator/gateway/kept_streams.h"

enum { KEPT_CHOICES_MOST = 0xffff }; /* of one answer; those behind it end with their coordinator */

struct kept_streams {
    const struct requests *requests;
    uint64_t resume_ms;
    uv_timer_t soon; /* readers that came lately are told what there is */
    struct kept_stream **all;
    size_t n, room, bytes;
    uint64_t last_reader; /* number of the last reading of a choice */
};

struct kept_choice {
    struct kept_stream *of;
    uint32_t index;
    uint64_t request; /* the core's; 0: over */
    bool ended;
    enum request_finish finish;
    struct request_usage usage;
    uint32_t *ids;
    size_t n_ids, room_ids;
    struct score *said, *of_prompt;
    size_t n_said, room_said, n_prompt, room_prompt;
    struct request_callbacks reader;
    uint64_t reading;         /* 0: nobody reads */
    struct kept_watch *watch; /* reads it while nobody does, for its stops; NULL: not yet */
    bool waits;               /* its reader has not been told what there is */
};

void kept_choice_unread(struct kept_choice *c);
/* Ends its request, which is forgotten. */
void kept_choice_drop(struct kept_choice *c);
void kept_choice_free(struct kept_choice *c);
/* One of before: of which the core tells this, and then to be attached to. */
bool kept_choice_restore(struct kept_stream *s, const struct request_before *r);
bool kept_choice_attach(struct kept_stream *s, uint64_t number);

#endif
