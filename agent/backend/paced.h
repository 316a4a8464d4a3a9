/* A device that this agent stands for: what a profile says of its speed, a cluster file of its
 * links and memory. The cpu backend computes; this says how long that should have taken, and when
 * what it made would have arrived, so that a cluster on one box behaves like another one.
 *
 * Layers are matched by index: a toy model with as many layers stands in for the profile's, and one
 * of its sequences for `batch` of them.
 *
 * Time here is arithmetic on nanoseconds of a monotonic clock that the caller reads (virtual in
 * tests): nothing sleeps. A host that is busy gets round to things late; a device's queue would not
 * have. So a batch is reckoned to start when its input was there and the device was free, and a hop
 * when the batch was due, as long as the host is no later than PACED_CREDIT_NS: what exceeds that
 * is passed on. Nothing is ever done before its time.
 *
 * Immutable once open (clocks and links are the caller's): any thread. */
#ifndef HP_AGENT_BACKEND_PACED_H
#define HP_AGENT_BACKEND_PACED_H

#include <stdint.h>

#include "common/batch.h"
#include "common/bytes.h"
#include "common/cluster.h"
#include "common/profile_parts.h"
#include "common/status.h"

#define PACED_CREDIT_NS UINT64_C(50000000)

struct paced;

/* Stands for device `as` ("node/device") of a cluster file with the times of a profile. HP_ENOENT:
 * no such device, or the profile has no times for its kind. */
int paced_open(const char *cluster_file, const char *profile_file, const char *as,
               struct paced **out, struct err *e);
void paced_close(struct paced **p);

const char *paced_as(const struct paced *p);
const char *paced_kind(const struct paced *p);
double paced_memory_bytes(const struct paced *p);
int paced_layers(const struct paced *p);
/* The profile is of a network of fixed shape: it says nothing of sequences. */
bool paced_is_fixed(const struct paced *p);

/* Appends a node of hp-cluster/1 called `name` with that one device, and beside it "paced": {"as",
 * "profile" (digest), "links": [{"to", ...}]}: its hops to all other devices of the file. */
int paced_node(const struct paced *p, const char *name, struct buffer *json, struct err *e);
/* Appends what a profiler would answer: the tables of the kind, and of the profile "layers",
 * "batch" and "pace" (digest). */
int paced_tables(const struct paced *p, struct buffer *json, struct err *e);

/* Appends what a measurement of a network would answer: hp-profile/1 with the times of this kind
 * alone, and beside them "pace" (digest). Of a profile that has lengths, those of the first of the
 * network's free sizes that is one of them, or of the longest. HP_EUNSUPPORTED: the profile is of a
 * sequence model. */
int paced_network_profile(const struct paced *p, const uint64_t *sizes, int n, struct buffer *json,
                          struct err *e);

/* ---- layers ---- */

/* The profile's layers in parts, as those of a model whose experts are in groups: for `layers` of
 * what follows (NULL there: the profile's own). HP_EINVAL: a part is of a layer that the profile
 * has not, HP_ENOMEM. */
int paced_divide(const struct paced *p, const struct profile_part *parts, int n,
                 struct profile *out, struct err *e);

/* ---- bytes: a limit by the profile's, not the toy's ---- */

/* What layers [first, end) hold with room for `kv_tokens` tokens of sequences that each stand for
 * `batch` of the profile's (0: its own). */
double paced_stage_bytes(const struct paced *p, const struct profile *layers, int first, int end,
                         double kv_tokens, double batch);

/* ---- seconds ---- */

/* A batch through layers [first, end): slices one after the other, decode tokens of several
 * sequences together. */
double paced_batch_seconds(const struct paced *p, const struct profile *layers, int first, int end,
                           double batch, const struct batch_run *runs, uint32_t n);

/* The hop to another device of the file. HP_ENOENT, HP_ELINK (no path). */
int paced_hop(const struct paced *p, const char *to, struct cluster_wire *out, struct err *e);
/* Seconds on the wire of what layer `end` - 1 gives for so many tokens; of that many sampled ones
 * on their way back. */
double paced_hop_seconds(const struct paced *p, const struct cluster_wire *wire, int end,
                         uint32_t tokens, double batch);
/* Of what a share of a network gives for so many samples: `sample_bytes` each, or, where that is
 * not known (0), the bytes that there are. */
double paced_share_seconds(const struct cluster_wire *wire, uint64_t sample_bytes, uint32_t samples,
                           uint64_t bytes);
double paced_token_seconds(const struct paced *p, const struct cluster_wire *wire, uint32_t tokens,
                           double batch);

/* ---- queues: a device, a link ---- */

struct paced_queue {
    uint64_t free_ns;
};
/* When work that was there at `ready_ns` and came to be done at `now_ns` is reckoned to begin; when
 * it is due, `seconds` later, until which the queue is taken. */
uint64_t paced_queue_begin(const struct paced_queue *q, uint64_t ready_ns, uint64_t now_ns);
uint64_t paced_queue_take(struct paced_queue *q, uint64_t ready_ns, uint64_t now_ns,
                          double seconds);
/* The moment that a stamp from another process means: the stamp, unless the host was later than the
 * credit or the clocks are not the same. */
uint64_t paced_stamp(uint64_t stamp_ns, uint64_t now_ns);

#endif
