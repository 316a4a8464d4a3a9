/* Requests to an ONNX model, one after the other: the loop takes them and refuses who would be
 * late, one worker at a time reads, computes and writes. */
#ifndef HP_HPCTL_ONNX_JOBS_H
#define HP_HPCTL_ONNX_JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "coordinator/gateway/kserve.h"
#include "hpctl/run_times.h"

struct ndarray;
struct network_engine;
struct onnx_job;

/* All zero but for what its maker sets. The loop's, but for what a run needs. */
struct onnx_jobs {
    /* From its maker: */
    uv_loop_t *loop;
    const struct infer_model *model;
    struct network_engine *engine;
    struct ndarray *outputs;       /* [model->n_outputs], all zero between two runs: the worker's */
    uint64_t most_waiting, slo_ns; /* slo_ns 0: none */
    atomic_bool gives_up;          /* what runs: nobody waits for it any more (the engine looks) */
    /* Its own: */
    struct kserve_statistics statistics;
    uv_work_t work;
    struct onnx_job *running, *first, *last; /* first to last: those that wait */
    uint64_t waiting, waiting_ns;            /* waiting_ns: guessed of those that wait */
    size_t waiting_bytes;
    struct run_times times;
    bool is_stopping;
};

/* Takes the body of an exchange, `json_bytes` of it JSON, and answers it when its turn has come; at
 * once where it is refused (too many wait, or it would be late: 503, 429). */
void onnx_jobs_take(struct onnx_jobs *jobs, struct http_exchange *x, size_t json_bytes);
/* What waits is refused, and nothing is taken any more; what runs goes on until `running` is NULL,
 * for as long as the loop runs. */
void onnx_jobs_stop(struct onnx_jobs *jobs);

#endif
