#include "agent/share_queue.h"

#include <string.h>

int share_queue_put(struct share_queue *q, const struct share_batch *b, struct err *e)
{
    uint64_t bytes = b->header.payload_bytes;
    size_t at = q->n;
    if (q->n == SHARE_QUEUE_BATCHES)
        return err_set(e, HP_EBUSY, "%d batches wait for this share already", SHARE_QUEUE_BATCHES);
    if (q->n > 0 && (q->bytes > q->limit_bytes || bytes > q->limit_bytes - q->bytes))
        return err_set(e, HP_EBUSY, "batches of %llu bytes wait for this share already",
                       (unsigned long long)q->bytes);
    while (at > 0 && q->batches[at - 1].start_ns > b->start_ns)
        at--;
    memmove(&q->batches[at + 1], &q->batches[at], (q->n - at) * sizeof *q->batches);
    q->batches[at] = *b;
    q->n++;
    q->bytes += bytes;
    return 0;
}

uint64_t share_queue_due_ns(const struct share_queue *q)
{
    return q->n ? q->batches[0].start_ns : UINT64_MAX;
}

bool share_queue_take(struct share_queue *q, uint64_t now_ns, struct share_batch *out)
{
    if (share_queue_due_ns(q) > now_ns)
        return false;
    *out = q->batches[0];
    q->bytes -= out->header.payload_bytes;
    memmove(&q->batches[0], &q->batches[1], --q->n * sizeof *q->batches);
    return true;
}
