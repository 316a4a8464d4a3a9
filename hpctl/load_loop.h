/* The loop of a load: transfers that are sent when they are due, however many are open, until all
 * have ended, the patience is over or Ctrl-C. Sockets and timers are curl's, waited for by epoll: a
 * turn costs as much as happens in it. One at a time in a program. */
#ifndef HP_HPCTL_LOAD_LOOP_H
#define HP_HPCTL_LOAD_LOOP_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* What a load does in the loop; all with its `ctx`. */
struct load_work {
    /* Seconds after the start at which the next request is to be sent; INFINITY: none is left. */
    double (*due_s)(void *ctx, double now_s);
    int (*send)(void *ctx, struct err *e); /* sends it */
    /* A transfer is over: the one whose CURLOPT_PRIVATE that is. */
    void (*over)(void *transfer, CURLcode code);
    int (*turn)(void *ctx, struct err *e); /* once in a turn; may be NULL */
    void *ctx;
    double last_s; /* when waiting ends once none is left to be sent */
    /* Four times a second, may be NULL: seconds since the start, how many are open. */
    void (*progress)(void *ctx, double now_s, size_t open);
    void *progress_ctx;
};

struct load_loop {
    CURLM *multi;
    size_t n_open; /* transfers that are to end; the caller counts them */
    uint64_t start_ns;
    int epoll, timer;
    double curl_due_s; /* curl wants to be called then; INFINITY: no */
};

/* HP_ENOMEM, HP_EIO. Whatever comes, it is to be closed. */
int load_loop_open(struct load_loop *l, size_t most_open, struct err *e);
void load_loop_close(struct load_loop *l);
/* Seconds since load_loop_run began. */
double load_loop_now_s(const struct load_loop *l);
/* Until it is over; *interrupted: by Ctrl-C. What `send` and `turn` return ends it. */
int load_loop_run(struct load_loop *l, const struct load_work *w, bool *interrupted, struct err *e);

#endif
