/* What ends a kept answer beside the model's own end: stop strings and tokens that end it, looked
 * for while nobody reads. Kept as bytes, so that the next run of the coordinator knows them, too.
 */
#ifndef HP_COORDINATOR_GATEWAY_KEPT_STOPS_H
#define HP_COORDINATOR_GATEWAY_KEPT_STOPS_H

#include "common/bytes.h"
#include "coordinator/gateway/completion.h"
#include "coordinator/requests.h"

struct kept_stops {
    const char *model; /* the deployment's name */
    char *const *texts;
    int n_texts;
    const uint32_t *ids;
    int n_ids;
    const struct completion_text *like; /* keeps the same special tokens as text */
};
/* Nothing where there are none. */
void kept_stops_write(const struct kept_stops *s, struct buffer *out);

/* Reads an answer for them. On the loop's thread. */
struct kept_watch;
/* NULL: the model does not serve now, or there is no memory. */
struct kept_watch *kept_watch_create(const struct requests *r, const char *client,
                                     struct pack_span stops);
void kept_watch_destroy(struct kept_watch **w);
/* Whether one of them is among these, all of the answer's tokens so far. */
bool kept_watch_sees(struct kept_watch *w, const uint32_t *ids, size_t n);

#endif
