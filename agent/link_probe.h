/* What to send over a link to know it: small frames one after the other for the latency, then
 * larger ones, a few at once, for the bandwidth, about a tenth of a second in all. Decides alone:
 * whoever has the link sends what this says and tells when each echo came. */
#ifndef HP_AGENT_LINK_PROBE_H
#define HP_AGENT_LINK_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LINK_PROBE_SMALL = 18, /* frames without payload; the first 3 open the way and do not count */
    LINK_PROBE_WARM = 3,
    LINK_PROBE_TRIAL_BYTES = 64 << 10, /* tells how large the others should be */
    LINK_PROBE_MOST_BYTES = 4 << 20,
    LINK_PROBE_FRAME_MS = 8,   /* what one of the others should take */
    LINK_PROBE_FLOOD_MS = 100, /* how long they are sent */
    LINK_PROBE_FLOOD_FRAMES = 400,
    LINK_PROBE_WINDOW = 3,      /* on their way at once */
    LINK_PROBE_LIMIT_MS = 5000, /* no echo of all that within: it is given up */
};

enum link_probe_phase { LINK_PROBE_LATENCY, LINK_PROBE_TRIAL, LINK_PROBE_FLOOD, LINK_PROBE_DONE };

struct link_probe {
    enum link_probe_phase phase;
    uint64_t begun_ns, sent_ns; /* of the probe; of the one frame of LATENCY and TRIAL */
    uint64_t round_ns[LINK_PROBE_SMALL];
    uint32_t n_rounds, sent, echoed; /* frames; their numbers count from 0 */
    uint32_t flood_first;            /* number of the first frame of FLOOD */
    size_t bytes;                    /* of each frame of FLOOD */
    uint64_t flood_ns, first_echo_ns, last_echo_ns;
};

/* `count` frames of `bytes` payload each, numbered from `number` on. */
struct link_probe_send {
    uint32_t number, count;
    size_t bytes;
};

struct link_probe_send link_probe_begin(struct link_probe *p, uint64_t now_ns);
/* The echo of frame `number` is there: what to send now (count 0: nothing). Numbers that were not
 * sent change nothing. */
struct link_probe_send link_probe_echo(struct link_probe *p, uint32_t number, uint64_t now_ns);
static inline bool link_probe_done(const struct link_probe *p)
{
    return p->phase == LINK_PROBE_DONE;
}
/* Of a probe that is done: half the median round trip, and bytes a second between the first and the
 * last echo of the large frames, but no more than all of them over all the time since they began to
 * leave. */
double link_probe_latency_s(const struct link_probe *p);
double link_probe_bandwidth(const struct link_probe *p);

#endif
