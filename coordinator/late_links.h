/* Data paths over which frames take longer than usual: links are measured where nothing runs, and
 * what runs shows what became of them since. Plans count what is late as latency until frames or a
 * measurement are on time again. */
#ifndef HP_COORDINATOR_LATE_LINKS_H
#define HP_COORDINATOR_LATE_LINKS_H

#include "coordinator/deployment.h"
#include "coordinator/links.h"

/* From the end of a slice on one stage to its arrival at the next: of one prompt, the least. */
struct hop_seconds {
    double planned, measured;
};

/* A prompt went from `stage` to the next one. True: that has changed what is known of the link. */
bool late_links_hear(struct coord *c, const struct deployment *d, int stage,
                     const struct hop_seconds *hop);
/* The first steps of an answer went on for span_s seconds, and each took least_s or longer from
 * `stage` to the next one, from the last one back to the first: those of an answer of some seconds
 * say as much as prompts in a row do. That a link is late, and no more: what takes large frames
 * longer does not show in theirs; of the way back, which no prompt takes, also that it is on time.
 * Links of paced agents are as they were given. */
bool late_links_hear_steps(struct coord *c, const struct deployment *d, int stage, double least_s,
                           double span_s);
/* The link was measured. Where that takes far longer than the latency that it is known by, which
 * stays, it is late, as frames may have shown already (and of which way: a measurement cannot);
 * what is measured else is its latency from now on. True: that is news, for plans or for people. */
bool late_links_measured(const struct member *from, struct member_link *l, double latency_s);
struct late_hashes {
    uint64_t
        which; /* changes when a link becomes late or is on time again, not when it is measured */
    uint64_t told; /* changes when one becomes late, or later still */
};
struct late_hashes late_links_hash(const struct coord *c);

#endif
