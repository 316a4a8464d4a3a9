/* What the two kinds of data endpoint share: tokens, buffers, counters. Only data*.c includes this. */
#ifndef HP_TRANSPORT_DATA_INT_H
#define HP_TRANSPORT_DATA_INT_H

#include "transport/data.h"

#include <pthread.h>

enum { DATA_MAX_TOKENS = 4096, DATA_SIZE_CLASSES = 32, DATA_MIN_CLASS = 10 };

/* A pooled buffer with its link in a free list. The public part comes first. */
struct pooled_buffer {
    struct data_buffer public;
    struct pooled_buffer *next;
    int size_class;
};

struct data_ops {
    void (*close)(struct data_endpoint *d);
    int (*connect)(struct data_endpoint *d, const uint8_t *address, size_t size, struct data_link **out, struct err *e);
    void (*disconnect)(struct data_link *link);
    void (*post)(struct data_link *link, const struct frame_header *h, struct data_buffer *payload, data_done_fn done, void *done_ctx);
    /* Buffers came back while somebody waited for room. */
    void (*room)(struct data_endpoint *d);
};

struct data_endpoint {
    const struct data_ops *ops;
    struct data_callbacks callbacks;
    uint8_t *address;
    size_t address_size;

    pthread_mutex_t lock; /* guards all below */
    uint64_t tokens[DATA_MAX_TOKENS];
    int n_tokens;
    struct pooled_buffer *free_buffers[DATA_SIZE_CLASSES];
    uint64_t limit_bytes, cached_bytes;
    bool wants_room;
    struct data_stats stats;
};

struct data_link {
    struct data_endpoint *endpoint;
};

/* Base of an endpoint; the kinds embed it as their first member. */
void data_base_init(struct data_endpoint *d, const struct data_ops *ops, const struct data_config *c);
void data_base_fini(struct data_endpoint *d);
/* Decodes and judges a received header: 0 when its frame may pass; counts it otherwise. */
int data_admit(struct data_endpoint *d, const uint8_t *bytes, size_t size, uint64_t payload_bytes, struct frame_header *out);
/* A buffer for a received payload, up to twice the limit when `over` (small frames are not worth losing). */
struct data_buffer *data_receive_buffer(struct data_endpoint *d, size_t bytes, bool over);
void data_count_received(struct data_endpoint *d, uint64_t bytes);
void data_count_sent(struct data_endpoint *d, uint64_t bytes);
void data_count_full(struct data_endpoint *d);

#endif
