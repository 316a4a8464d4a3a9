/* Embeddings over HTTP, with a core that is full at times. */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/pools/pool_requests.h"
#include "coordinator/work.h"
#include "model/model.h"
#include "tests/test.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

enum { PENDING_MAX = 16, TICK_MS = 1 };

/* A core that gives rows of its own a tick later, and refuses as it is told. */
struct fake {
    struct model *model, *other; /* `other` is deployed once two requests are open; NULL: never */
    struct request_callbacks pending[PENDING_MAX];
    int n_pending, opened;
    int full_at, full_for; /* refuses so many times once so many were opened */
    int refused, refused_idle;
    uint32_t retry_after_s;
    bool fails; /* what waits fails a tick later, for want of time */
    struct coord_work *work;
    bool in_pools; /* these serve the model, and no deployment does */
    bool scores;   /* it gives no rows; their numbers are `score` */
    float score;
    struct pool_call pooled[PENDING_MAX];
    int n_pooled, pools_refuse_at, cancelled;
    struct pool_requests pools;
    uv_loop_t loop;
    uv_timer_t tick;
    struct gateway *gateway;
    struct requests table;
};

static int fake_models(void *ctx, const char *client, struct request_model *out, int max)
{
    (void)ctx, (void)client, (void)out, (void)max;
    return 0;
}

static int fake_find(void *ctx, const char *client, const char *name, struct request_model *out,
                     struct err *e)
{
    struct fake *f = ctx;
    (void)client;
    if (f->in_pools)
        return err_set(e, HP_ENOENT, "there is no model \"%s\"", name);
    *out = (struct request_model){.name = "m",
                                  .state = "serving",
                                  .serving = true,
                                  .context = 64,
                                  .vocabulary = 100,
                                  .retry_after_s = f->retry_after_s,
                                  .model = f->other && f->opened >= 2 ? f->other : f->model};
    return 0;
}

static int fake_open(void *ctx, const struct request_spec *r, uint64_t *id, struct err *e)
{
    struct fake *f = ctx;
    if (f->n_pending == 2 || (f->opened >= f->full_at && f->full_for > 0)) {
        f->full_for -= f->n_pending == 0;
        f->refused++;
        f->refused_idle += f->n_pending == 0;
        return err_set(e, HP_EBUSY, "full");
    }
    assert_true(r->embed || f->fails);
    f->pending[f->n_pending++] = r->callbacks;
    *id = (uint64_t)++f->opened;
    return 0;
}

static void fake_cancel(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage)
{
    struct fake *f = ctx;
    (void)id, (void)satisfied, (void)usage;
    f->n_pending = 0;
}

static int fake_begin(void *ctx, const char *client, uint32_t *retry_after_s, struct err *e)
{
    (void)ctx, (void)client, (void)retry_after_s, (void)e;
    return 0;
}

static int fake_keys(void *ctx)
{
    (void)ctx;
    return 0;
}

static int fake_work(void *ctx, const struct model *model, struct coord_work *w, struct err *e)
{
    struct fake *f = ctx;
    (void)model, (void)e;
    assert_null(f->work);
    f->work = w;
    return 0;
}

/* ---- pools ---- */

static int pools_text(void *ctx, const char *client, const char *name, struct pool_text *out,
                      struct err *e)
{
    struct fake *f = ctx;
    (void)client;
    if (strcmp(name, "m") != 0)
        return err_set(e, HP_ENOENT, "pools serve no language model \"%s\"", name);
    *out = (struct pool_text){.model = f->model, .longest = 4, .rows = !f->scores};
    return 0;
}

/* Each is a batch of one text with its mask. */
static int pools_infer(void *ctx, const struct pool_call *call, uint64_t *id,
                       uint32_t *retry_after_s, struct err *e)
{
    struct fake *f = ctx;
    const struct ndarray *ids = &call->inputs[0], *mask = &call->inputs[1];
    (void)e, (void)retry_after_s;
    assert_true(ids->type == ND_I64 && ids->n_dims == 2 && ids->dims[0] == 1);
    assert_true(ndarray_same_shape(ids, mask) && ndarray_i64(mask, 0) == 1);
    assert_int_equal(ndarray_i64(ids, 0), f->n_pooled + 1);
    f->pooled[f->n_pooled++] = *call;
    *id = (uint64_t)f->n_pooled;
    return 0;
}

static void pools_cancel(void *ctx, uint64_t id)
{
    struct fake *f = ctx;
    assert_non_null(f->pooled[id - 1].ctx);
    f->pooled[id - 1].ctx = NULL;
    f->cancelled++;
}

/* Of each token `score`; the likeliest is token 7 with -0.25. */
static struct ndarray *scores_make(const struct fake *f, int64_t n)
{
    static const enum ndarray_type types[] = {ND_F32, ND_I64, ND_F32};
    const int64_t dims[] = {1, n};
    struct ndarray *outputs = calloc(3, sizeof *outputs);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ndarray_make(&outputs[i], types[i], 2, dims, UINT64_MAX, NULL), 0);
        for (int64_t k = 0; k < n; k++)
            ndarray_set_f64(&outputs[i], k, i == 0 ? (double)f->score : i == 1 ? 7 : -0.25);
    }
    return outputs;
}

/* All at once, or, from one on, too late. */
static void pools_answer(struct fake *f)
{
    for (int i = 0; i < f->n_pooled; i++) {
        struct pool_call c = f->pooled[i];
        const int64_t dims[] = {1, model_config(f->model)->width};
        struct ndarray *outputs = c.ctx ? calloc(1, sizeof *outputs) : NULL;
        f->pooled[i].ctx = NULL;
        if (!outputs)
            continue;
        if (i == f->pools_refuse_at) {
            free(outputs);
            c.failed(c.ctx, &(struct err){.code = HP_ETIMEOUT,
                                          .text = "too late: it would be done "
                                                  "in 9 ms"});
            continue;
        }
        if (f->scores) {
            free(outputs);
            c.answered(c.ctx, scores_make(f, c.inputs[0].dims[1]), NULL);
            continue;
        }
        assert_int_equal(ndarray_make(outputs, ND_F32, 2, dims, UINT64_MAX, NULL), 0);
        ndarray_set_f64(outputs, 0, 2);
        c.answered(c.ctx, outputs, NULL);
    }
    f->n_pooled = 0;
}

static void on_tick(uv_timer_t *timer)
{
    struct fake *f = timer->data;
    struct coord_work *w = f->work;
    float *row = calloc((size_t)model_config(f->model)->width, sizeof *row);
    assert_non_null(row);
    row[0] = 2;
    f->work = NULL;
    if (w) {
        w->run(w);
        w->done(w, false);
    } else if (f->n_pooled > 0) {
        pools_answer(f);
    } else if (f->n_pending > 0 && f->fails) {
        struct request_callbacks c = f->pending[--f->n_pending];
        f->retry_after_s = 7; /* more of others wait by now */
        c.failed(c.ctx, 1, &(struct err){.code = HP_EBUSY, .text = "late"},
                 &(struct request_usage){0});
    } else if (f->n_pending > 0) {
        struct request_callbacks c = f->pending[--f->n_pending];
        c.row(c.ctx, 1, row, (size_t)model_config(f->model)->width);
        c.finished(c.ctx, 1, REQUEST_STOP, &(struct request_usage){0});
    }
    free(row);
}

static int pools_models(void *ctx, const char *client,
                        const struct infer_model *out[POOL_MAX_MODELS])
{
    (void)ctx, (void)client, (void)out;
    return 0;
}

static void fake_start(struct fake *f)
{
    struct err e = {0};
    *f = (struct fake){.full_at = 1 << 20, .retry_after_s = 1, .pools_refuse_at = -1};
    f->pools = (struct pool_requests){.ctx = f,
                                      .models = pools_models,
                                      .text = pools_text,
                                      .infer = pools_infer,
                                      .cancel = pools_cancel};
    if (access(demo_model, R_OK) != 0)
        skip();
    if (model_open(demo_model, &f->model, &e) < 0)
        fail_msg("%s", e.text);
    f->table = (struct requests){.ctx = f,
                                 .models = fake_models,
                                 .find = fake_find,
                                 .begin = fake_begin,
                                 .open = fake_open,
                                 .cancel = fake_cancel,
                                 .api_keys = fake_keys,
                                 .work = fake_work};
    uv_loop_init(&f->loop);
    uv_timer_init(&f->loop, &f->tick);
    f->tick.data = f;
    uv_timer_start(&f->tick, on_tick, TICK_MS, TICK_MS);
    struct gateway_config config = {.listen = "127.0.0.1:0", .pools = &f->pools};
    if (gateway_start(&f->loop, &config, &f->table, &f->gateway, &e) < 0)
        fail_msg("%s", e.text);
}

static void fake_stop(struct fake *f)
{
    gateway_stop(&f->gateway);
    uv_close((uv_handle_t *)&f->tick, NULL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    model_close(&f->model);
}

/* The status of the reply, whose bytes are left in `out`. */
static int ask_at(struct fake *f, const char *path, const char *body, char *out, size_t size)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)gateway_port(f->gateway)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char request[1024];
    int fd = socket(AF_INET, SOCK_STREAM, 0), status = 0;
    size_t got = 0;
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    int n = snprintf(request, sizeof request,
                     "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     path, strlen(body), body);
    assert_int_equal(send(fd, request, (size_t)n, 0), n);
    uint64_t until = env_now_ns(&env_real) + 20000000000ULL;
    for (ssize_t more = -1; more != 0 && env_now_ns(&env_real) < until;) {
        uv_run(&f->loop, UV_RUN_ONCE);
        more = recv(fd, out + got, size - 1 - got, MSG_DONTWAIT);
        got += more > 0 ? (size_t)more : 0;
    }
    out[got] = '\0';
    close(fd);
    assert_int_equal(sscanf(out, "HTTP/1.1 %d", &status), 1);
    return status;
}

static int ask(struct fake *f, const char *body, char *out, size_t size)
{
    return ask_at(f, "/v1/embeddings", body, out, size);
}

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

static const char five[] = "{\"model\": \"m\", \"input\": [[1], [2], [3], [4], [5]]}";
static char reply[1 << 20];

TEST(a_queue_that_fills_in_the_middle_is_waited_for)
{
    struct fake f;
    fake_start(&f);
    f.full_at = 2; /* then three refusals while nothing of the request is in the core */
    f.full_for = 3;
    int status = ask(&f, five, reply, sizeof reply);
    if (status != 200)
        fail_msg("%s", reply);
    assert_int_equal(count_of(reply, "\"object\":\"embedding\""), 5);
    assert_int_equal(count_of(reply, "[1,0,"), 5); /* of length 1 */
    assert_int_equal(f.opened, 5);
    assert_true(f.refused_idle >= 3 && f.refused > f.refused_idle);
    fake_stop(&f);
}

TEST(a_queue_that_is_full_from_the_first_refuses_at_once)
{
    struct fake f;
    fake_start(&f);
    f.full_at = 0;
    f.full_for = 1000;
    assert_int_equal(ask(&f, five, reply, sizeof reply), 429);
    assert_int_equal(f.refused, 1);
    fake_stop(&f);
}

TEST(a_model_that_changes_in_the_middle_ends_the_request)
{
    struct fake f;
    struct model *other;
    fake_start(&f);
    assert_int_equal(model_open_text(demo_model, &other, NULL), 0);
    f.other = other;
    assert_int_equal(ask(&f, five, reply, sizeof reply), 503);
    assert_non_null(strstr(reply, "deployed anew"));
    assert_int_equal(f.opened, 2);
    fake_stop(&f);
    model_close(&other);
}

TEST(who_is_refused_after_waiting_is_told_when_to_come_as_it_is_then)
{
    struct fake f;
    fake_start(&f);
    f.fails = true;
    assert_int_equal(ask_at(&f, "/v1/completions",
                            "{\"model\": \"m\", \"prompt\": [1, 2], \"stream\": true}", reply,
                            sizeof reply),
                     429);
    assert_non_null(strstr(reply, "Retry-After: 7\r\n"));
    fake_stop(&f);
}

TEST(what_is_no_input_is_told_what_is)
{
    struct fake f;
    fake_start(&f);
    assert_int_equal(ask(&f, "{\"model\": \"m\", \"input\": {\"a\": 1}}", reply, sizeof reply),
                     400);
    assert_non_null(strstr(reply, "must be a text, token ids, or a list of these"));
    fake_stop(&f);
}

TEST(texts_of_a_model_that_pools_serve_are_requests_to_these)
{
    struct fake f;
    fake_start(&f);
    f.in_pools = true;
    int status = ask(&f, five, reply, sizeof reply);
    if (status != 200)
        fail_msg("%s", reply);
    assert_int_equal(count_of(reply, "[1,0,"), 5);
    assert_int_equal(f.opened, 0);
    fake_stop(&f);
}

TEST(where_one_text_would_be_late_the_others_are_given_up)
{
    struct fake f;
    fake_start(&f);
    f.in_pools = true;
    f.pools_refuse_at = 1;
    assert_int_equal(ask(&f, five, reply, sizeof reply), 429);
    assert_non_null(strstr(reply, "would be done in 9 ms"));
    assert_int_equal(f.cancelled, 3);
    fake_stop(&f);
}

TEST(a_text_is_no_longer_than_pools_were_planned_for)
{
    struct fake f;
    fake_start(&f);
    f.in_pools = true;
    static const char long_one[] = "{\"model\": \"m\", \"input\": [[1, 2, 3, 4, 5]]}";
    assert_int_equal(ask(&f, long_one, reply, sizeof reply), 400);
    assert_non_null(strstr(reply, "maximum context length is 4"));
    assert_int_equal(ask(&f, "{\"model\": \"n\", \"input\": [1]}", reply, sizeof reply), 404);
    fake_stop(&f);
}

static const char scored[] = "{\"model\": \"m\", \"prompt\": [1, 2, 3], \"echo\": true, "
                             "\"max_tokens\": 0, \"logprobs\": 1}";

TEST(a_prompt_is_scored_by_pools_and_nothing_is_written)
{
    struct fake f;
    fake_start(&f);
    f.in_pools = f.scores = true;
    f.score = -1.5F;
    int status = ask_at(&f, "/v1/completions", scored, reply, sizeof reply);
    if (status != 200)
        fail_msg("%s", reply);
    assert_non_null(strstr(reply, "\"token_logprobs\":[null,-1.5,-1.5]"));
    assert_int_equal(count_of(reply, ":-0.25"), 2);
    assert_non_null(strstr(reply, "\"completion_tokens\":0"));
    assert_int_equal(f.opened, 0);
    static const char answer[] = "{\"model\": \"m\", \"prompt\": [1, 2, 3]}";
    assert_int_equal(ask_at(&f, "/v1/completions", answer, reply, sizeof reply), 400);
    assert_non_null(strstr(reply, "hpctl deploy"));
    fake_stop(&f);
}

TEST(scores_that_are_no_numbers_or_too_late_are_told_so)
{
    struct fake f;
    fake_start(&f);
    f.in_pools = f.scores = true;
    f.score = NAN;
    assert_int_equal(ask_at(&f, "/v1/completions", scored, reply, sizeof reply), 500);
    f.pools_refuse_at = 0;
    assert_int_equal(ask_at(&f, "/v1/completions", scored, reply, sizeof reply), 429);
    assert_non_null(strstr(reply, "would be done in 9 ms"));
    fake_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_that_fills_in_the_middle_is_waited_for),
        cmocka_unit_test(a_queue_that_is_full_from_the_first_refuses_at_once),
        cmocka_unit_test(a_model_that_changes_in_the_middle_ends_the_request),
        cmocka_unit_test(who_is_refused_after_waiting_is_told_when_to_come_as_it_is_then),
        cmocka_unit_test(what_is_no_input_is_told_what_is),
        cmocka_unit_test(texts_of_a_model_that_pools_serve_are_requests_to_these),
        cmocka_unit_test(where_one_text_would_be_late_the_others_are_given_up),
        cmocka_unit_test(a_text_is_no_longer_than_pools_were_planned_for),
        cmocka_unit_test(a_prompt_is_scored_by_pools_and_nothing_is_written),
        cmocka_unit_test(scores_that_are_no_numbers_or_too_late_are_told_so),
    };
    return cmocka_run_group_tests_name("embeddings", tests, NULL, NULL);
}
