/* What the files of the shell share. Only coordinator*.c include this.
 *
 *     coordinator.c            opening, listening, closing
 *     coordinator_actions.c    does what the core says
 *     coordinator_data.c       frames of pools, out and in
 *     coordinator_models.c     opens models, on other threads
 *     coordinator_work.c       runs the core's work, on other threads */
#ifndef HP_COORDINATOR_COORDINATOR_INT_H
#define HP_COORDINATOR_COORDINATOR_INT_H

#include "common/log_ring.h"
#include "coordinator/coordinator.h"
#include "coordinator/core.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/store/store.h"
#include "transport/keys.h"

enum { SHELL_PATH_BYTES = 2048, SHELL_ADDRESS_BYTES = 128 };

struct coordinator_data;
struct open_model;

struct coordinator {
    uv_loop_t *loop;
    char dir[SHELL_PATH_BYTES], models_dir[SHELL_PATH_BYTES + 16];
    char control_address[SHELL_ADDRESS_BYTES], http_address[SHELL_ADDRESS_BYTES],
        http_wanted[SHELL_ADDRESS_BYTES];
    char grpc_address[SHELL_ADDRESS_BYTES], grpc_wanted[SHELL_ADDRESS_BYTES];
    struct gateway_config gateway_config;
    struct key_pair own, admin;
    struct store *store; /* until the queue has it */
    struct store_queue *queue;
    struct coord *core;
    struct control *control;
    struct gateway *gateway;
    struct requests requests;
    struct pool_requests pool_requests;
    struct open_model *models;
    struct log_ring *log;
    uv_timer_t tick;
    uv_async_t wake; /* the store has written something, or the gateway has asked for something */
    int handles;     /* of these, still to be closed */
    uint64_t gateway_tried_ns;
    uint64_t not_sent, not_sent_told_ns; /* messages since the last line in the log */
    struct coordinator_data *data;       /* NULL: none was needed yet */
    /* When the scheduler of pools wants to be asked again: a timer of nanoseconds, since a loop's
     * milliseconds are too many for some deadlines. */
    uv_poll_t pools;
    int pools_timer;
    int64_t pools_at; /* that it is set to; INT64_MAX: it is not */
    int jobs;         /* models being opened and work being done on other threads */
    void (*job_ended)(struct coordinator *c); /* a job on another thread is over */
    bool settling, closing;
};

/* Takes and does what the core says, until it says nothing more. */
void coordinator_settle(struct coordinator *c);
/* Makes the timer by which the scheduler of pools is asked again. HP_EIO: nothing is left to close.
 */
int coordinator_pools_timer_start(struct coordinator *c, struct err *e);

/* Opens a model's heads on another thread; the core hears of it. Closing frees them once no work
 * uses them. */
void coordinator_model_open(struct coordinator *c, const struct coord_action *a);
void coordinator_model_close(struct coordinator *c, const char *id);
void coordinator_models_free(struct coordinator *c);
/* Runs a piece of work on another thread; the core gets it back on the loop. */
void coordinator_work_start(struct coordinator *c, struct coord_work *w);

/* ---- the data endpoint; until it is opened the others do nothing ---- */

/* As coord_config.data_open says; `ctx` is the coordinator. */
int coordinator_data_open(void *ctx, struct pack_span agent, struct pack_span *own, struct err *e);
/* Sends a frame, which it takes, or keeps it until there is a buffer; the core hears of what is
 * lost. */
void coordinator_data_post(struct coordinator *c, struct coord_frame *f);
/* Gives the core what has come in, lets in who may send now, and sends what waited. */
void coordinator_data_run(struct coordinator *c);
void coordinator_data_close(struct coordinator *c);

#endif
