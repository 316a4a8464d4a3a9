/* The KServe v2 protocol over HTTP: paths and answers; what runs the models is a table of
 * functions. What it answers is {"error": "TEXT"} where something is wrong. On the loop's thread.
 *
 *     GET  /v2, /v2/health/live, /v2/health/ready
 *     GET  /v2/models/NAME[/versions/1], .../ready, .../stats;  /v2/models/stats
 *     POST /v2/models/NAME[/versions/1]/infer
 *     POST /v2/repository/index
 */
#ifndef HP_COORDINATOR_GATEWAY_KSERVE_H
#define HP_COORDINATOR_GATEWAY_KSERVE_H

#include "coordinator/gateway/http.h"
#include "coordinator/gateway/infer.h"

#define KSERVE_SERVER_NAME "hodgepodge"

enum { KSERVE_MAX_MODELS = 64, KSERVE_BODY_BYTES = 65536 /* of requests other than infer */ };

struct kserve_count {
    uint64_t count, ns;
};

struct kserve_statistics {
    struct kserve_count success, fail, queue, input, compute, output;
    uint64_t inferences; /* samples of a batch count each */
    uint64_t executions; /* batches; 0: one a success */
    uint64_t last_ms;    /* Unix time of the last request; 0: none */
};

struct kserve_backend {
    void *ctx;
    /* Models that `client` (requests.h) may use; `out` has room for KSERVE_MAX_MODELS. Returns how
     * many. */
    int (*models)(void *ctx, const char *client, const struct infer_model **out);
    /* HP_EDENIED: this one is not for it. NULL: all are for everybody. */
    int (*may_use)(void *ctx, const char *client, const char *model, struct err *e);
    /* 0; else why it cannot be asked now. NULL: all are ready. */
    int (*ready)(void *ctx, const struct infer_model *m, struct err *e);
    struct kserve_statistics (*statistics)(void *ctx, const struct infer_model *m);
    /* Answers now or later, with kserve_error or what infer_answer_write writes; the body is there
     * to be taken, `json_bytes` as infer_request_read takes it, `client` valid during the call. */
    void (*infer)(void *ctx, struct http_exchange *x, const struct infer_model *m,
                  const char *client, size_t json_bytes);
};

/* At the headers: how many bytes the body may have; 0: it was answered with why it is refused. */
uint64_t kserve_begin(const struct kserve_backend *k, struct http_exchange *x,
                      const struct http_request *r, const char *client);
/* The whole request. */
void kserve_request(const struct kserve_backend *k, struct http_exchange *x,
                    const struct http_request *r, const char *client);

/* The model of that name among those that the client may use; NULL: there is none, */
const struct infer_model *kserve_model_find(const struct kserve_backend *k, const char *client,
                                            const char *name);
/* and HP_ENOENT with the nearest name. */
int kserve_model_missing(const struct kserve_backend *k, const char *client, const char *name,
                         struct err *e);

/* 0; else why the model cannot be asked now, */
int kserve_model_ready(const struct kserve_backend *k, const struct infer_model *m, struct err *e);
/* and how many of all models cannot, whoever may use them; names are not told. HP_EBUSY. */
int kserve_server_ready(const struct kserve_backend *k, struct err *e);

/* Answers with {"error": text}. */
void kserve_error(struct http_exchange *x, int http_status, const char *text);
/* The same with the status of an error code; `retry_after_s` is said where it passes (429, 503). */
void kserve_fail(struct http_exchange *x, const struct err *e, uint32_t retry_after_s);
/* What infer_answer_write wrote, which is taken or freed. */
void kserve_answer(struct http_exchange *x, struct buffer *answer, size_t json_bytes);

#endif
