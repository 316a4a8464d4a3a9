#include "coordinator/gateway/pool_scores.h"

#include <math.h>
#include <stdlib.h>

#include "coordinator/gateway/pool_text.h"

struct pool_scores {
    struct pool_text_request *text; /* NULL: it has ended */
    struct pool_scores **owner;
    struct request_callbacks to;
    uint32_t width; /* scores a token; 0: none are told */
    size_t n;       /* tokens */
    bool tells;     /* it is in a callback, */
    bool left;      /* and was cancelled there */
};

void pool_scores_cancel(struct pool_scores **self)
{
    struct pool_scores *s = *self;
    *self = NULL;
    if (!s)
        return;
    pool_text_cancel(&s->text);
    s->left = true;
    if (!s->tells)
        free(s);
}

/* A token's own probability, then that of the likeliest one. Of a token's rank it is known whether
 * it is the first. */
static struct score *rows_make(const struct pool_scores *s, const struct ndarray *outputs)
{
    const float *own = outputs[0].data, *best = outputs[2].data;
    const int64_t *ids = outputs[1].data;
    struct score *rows = calloc(s->n * s->width, sizeof *rows);
    for (size_t i = 1; rows && i < s->n; i++) {
        struct score *row = rows + (i - 1) * s->width;
        row[0] = (struct score){own[i] < best[i] ? 2 : 1, own[i]};
        if (s->width > 1)
            row[1] = (struct score){(uint32_t)ids[i], best[i]};
    }
    return rows;
}

static bool outputs_fit(const struct pool_scores *s, const struct ndarray *outputs)
{
    for (int i = 0; i < 3; i++)
        if (outputs[i].count != (int64_t)s->n)
            return false;
    for (size_t i = 1; i < s->n; i++)
        if (!isfinite(((const float *)outputs[0].data)[i]))
            return false;
    return true;
}

static void scores_fail(struct pool_scores *s, const struct err *why)
{
    const struct request_callbacks to = s->to;
    *s->owner = NULL;
    free(s);
    to.failed(to.ctx, 0, why, &(struct request_usage){0});
}

/* Whoever hears of the scores may cancel. */
static void scores_tell(struct pool_scores *s, const struct score *rows)
{
    const struct request_callbacks to = s->to;
    const struct request_usage usage = {.prompt_tokens = s->n};
    s->tells = true;
    if (rows)
        to.scores(to.ctx, 0, true, rows, (s->n - 1) * s->width);
    bool left = s->left;
    if (!left)
        *s->owner = NULL;
    free(s);
    if (!left)
        to.finished(to.ctx, 0, REQUEST_LENGTH, &usage);
}

static void on_answered(void *ctx, const struct ndarray *outputs)
{
    struct pool_scores *s = ctx;
    struct err e = {0};
    s->text = NULL;
    bool fits = outputs_fit(s, outputs);
    struct score *rows = fits && s->width ? rows_make(s, outputs) : NULL;
    if (!fits)
        err_set(&e, HP_EBUG, "the model made no numbers of this text");
    else if (s->width && !rows)
        err_no_memory(&e, "the scores of a prompt");
    if (e.code < 0)
        scores_fail(s, &e);
    else
        scores_tell(s, rows);
    free(rows);
}

static void on_failed(void *ctx, const struct err *why)
{
    struct pool_scores *s = ctx;
    s->text = NULL;
    scores_fail(s, why);
}

int pool_scores_open(const struct pool_requests *pools, const struct model *model,
                     const struct request_spec *r, uint64_t waited_ns, struct pool_scores **out,
                     uint32_t *retry_after_s, struct err *e)
{
    if (r->prompt_scores > 1 + POOL_SCORES_TOP)
        return err_set(e, HP_EINVAL, "logprobs: pools know the likeliest token alone: at most %d",
                       POOL_SCORES_TOP);
    struct pool_scores *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "the scores of a prompt");
    *s = (struct pool_scores){
        .owner = out, .to = r->callbacks, .width = r->prompt_scores, .n = r->n_prompt};
    const struct pool_text_ask ask = {.client = r->client,
                                      .name = r->model,
                                      .model = model,
                                      .ids = r->prompt,
                                      .n = r->n_prompt,
                                      .waited_ns = waited_ns,
                                      .ctx = s,
                                      .answered = on_answered,
                                      .failed = on_failed};
    int rc = pool_text_open(pools, &ask, &s->text, retry_after_s, e);
    *out = rc < 0 ? NULL : s;
    if (rc < 0)
        free(s);
    return rc;
}
