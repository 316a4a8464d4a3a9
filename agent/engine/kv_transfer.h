/* Keys and values of a sequence into a cache and out of it, in the order of the wire: [block][part]
 * [token][kv head][head dim] (agent/backend/backend.h), in the group's number format. */
#ifndef HP_AGENT_ENGINE_KV_TRANSFER_H
#define HP_AGENT_ENGINE_KV_TRANSFER_H

#include "agent/engine/kv_cache.h"

/* HP_ENOENT: no such sequence. HP_EINVAL: the range is not all on this stage, or not settled, or
 * not there any more. HP_EBUSY: it has not been imported itself. HP_EDEVICE. Waits for the stream.
 */
int kv_transfer_export(const struct kv_cache *c, struct stream *stream, uint64_t sequence,
                       const struct kv_range *r, void *out, struct err *e);
/* Into a sequence that was opened with a length: whole pages of it, but for its last tokens. What
 * has come before changes nothing. HP_ENOENT, HP_EINVAL, HP_EDEVICE. Waits for the stream. */
int kv_transfer_import(struct kv_cache *c, struct stream *stream, uint64_t sequence,
                       const struct kv_range *r, const void *data, struct err *e);

#endif
