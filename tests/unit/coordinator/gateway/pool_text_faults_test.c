/* Texts and scores by pools with failing allocations: whoever asked hears one end, whatever lacks
 * memory, and none after it has left. The test plays the pools. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/pool_scores.h"
#include "coordinator/gateway/pool_text.h"
#include "model/text_network.h"
#include "tests/unit/faults.h"

enum { TOKENS = 3 };

static char handle; /* of the model, which nobody looks into */

struct pools_played {
    struct pool_requests pools;
    struct pool_call call; /* under way */
    bool rows, asked;
    int answers, failures, scores;
    struct pool_scores *leaves; /* cancelled when its scores are told */
};

static int on_text(void *ctx, const char *client, const char *name, struct pool_text *out,
                   struct err *e)
{
    const struct pools_played *p = ctx;
    (void)client, (void)name, (void)e;
    *out =
        (struct pool_text){.model = (struct model *)(void *)&handle, .longest = 8, .rows = p->rows};
    return 0;
}

static int on_infer(void *ctx, const struct pool_call *call, uint64_t *id, uint32_t *retry_after_s,
                    struct err *e)
{
    struct pools_played *p = ctx;
    (void)retry_after_s, (void)e;
    p->call = *call;
    p->asked = true;
    *id = 7;
    return 0;
}

static void on_cancel(void *ctx, uint64_t id)
{
    struct pools_played *p = ctx;
    assert_int_equal(id, 7);
    p->asked = false;
}

static struct pools_played played_make(bool rows)
{
    return (struct pools_played){
        .rows = rows, .pools = {.text = on_text, .infer = on_infer, .cancel = on_cancel}};
}

/* What the pools make of it, or that they lack memory themselves. */
static void outcome_tell(struct pools_played *p)
{
    int n = p->rows ? TEXT_OUTPUTS_ROW : TEXT_OUTPUTS_SCORES, rc = 0;
    struct ndarray *outputs = calloc((size_t)n, sizeof *outputs);
    struct err e = {0};
    assert_true(p->asked);
    p->asked = false;
    for (int i = 0; outputs && i < n && rc == 0; i++)
        rc = ndarray_make(&outputs[i], i == 1 ? ND_I64 : ND_F32, 2, (int64_t[]){1, TOKENS},
                          UINT64_MAX, &e);
    if (outputs && rc == 0) {
        p->call.answered(p->call.ctx, outputs, NULL);
        return;
    }
    for (int i = 0; outputs && i < n; i++)
        ndarray_free(&outputs[i]);
    free(outputs);
    err_no_memory(&e, "outputs");
    p->call.failed(p->call.ctx, &e);
}

static void text_answered(void *ctx, const struct ndarray *outputs)
{
    struct pools_played *p = ctx;
    assert_int_equal(outputs[0].count, TOKENS);
    p->answers++;
}

static void any_failed(void *ctx, const struct err *why)
{
    struct pools_played *p = ctx;
    assert_true(why->code < 0);
    p->failures++;
}

static int text_asked(bool rows, bool leaves)
{
    static const uint32_t ids[TOKENS] = {5, 6, 7};
    struct pools_played p = played_make(rows);
    struct pool_text_request *r = NULL;
    struct err e = {0};
    uint32_t retry_after_s = 0;
    p.pools.ctx = &p;
    const struct pool_text_ask ask = {.name = "m",
                                      .model = (const struct model *)(const void *)&handle,
                                      .ids = ids,
                                      .n = TOKENS,
                                      .ctx = &p,
                                      .answered = text_answered,
                                      .failed = any_failed};
    int rc = pool_text_open(&p.pools, &ask, &r, &retry_after_s, &e);
    if (rc < 0)
        return p.asked ? HP_EBUG : rc;
    for (int i = 0; i < TOKENS; i++)
        if (((const int64_t *)p.call.inputs[0].data)[i] != ids[i] ||
            ((const int64_t *)p.call.inputs[1].data)[i] != 1)
            rc = HP_EBUG;
    if (leaves)
        pool_text_cancel(&r);
    else
        outcome_tell(&p);
    if (p.answers + p.failures != !leaves)
        return HP_EBUG;
    return rc < 0 || p.failures == 0 ? rc : HP_ENOMEM;
}

static int texts_asked(void *ctx)
{
    (void)ctx;
    for (int i = 0; i < 4; i++) {
        int rc = text_asked(i & 1, i & 2);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- scores ---- */

static void on_scores(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                      size_t n)
{
    struct pools_played *p = ctx;
    (void)request;
    assert_true(of_prompt && scores && n == 2 * (TOKENS - 1));
    p->scores++;
    if (p->leaves)
        pool_scores_cancel(&p->leaves);
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct pools_played *p = ctx;
    (void)request, (void)finish;
    assert_int_equal(usage->prompt_tokens, TOKENS);
    p->answers++;
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    (void)request, (void)usage;
    any_failed(ctx, why);
}

enum leaving { STAYS, LEAVES_BEFORE, LEAVES_WITHIN };

static int scores_asked(enum leaving how)
{
    static const uint32_t ids[TOKENS] = {5, 6, 7};
    struct pools_played p = played_make(false);
    struct err e = {0};
    uint32_t retry_after_s = 0;
    struct pool_scores *s = NULL, **owner = how == LEAVES_WITHIN ? &p.leaves : &s;
    p.pools.ctx = &p;
    const struct request_spec spec = {
        .model = "m",
        .prompt = ids,
        .n_prompt = TOKENS,
        .prompt_scores = 2,
        .callbacks = {
            .ctx = &p, .finished = on_finished, .failed = on_failed, .scores = on_scores}};
    int rc = pool_scores_open(&p.pools, (const struct model *)(const void *)&handle, &spec, 0,
                              owner, &retry_after_s, &e);
    if (rc < 0)
        return p.asked || *owner ? HP_EBUG : rc;
    if (how == LEAVES_BEFORE)
        pool_scores_cancel(&s);
    else
        outcome_tell(&p);
    if (s || p.leaves)
        return HP_EBUG;
    int ends = p.answers + p.failures, left = how == LEAVES_WITHIN && p.scores ? 1 : 0;
    if (ends + left != (how == LEAVES_BEFORE ? 0 : 1))
        return HP_EBUG;
    return p.failures ? HP_ENOMEM : 0;
}

static int all_scores_asked(void *ctx)
{
    (void)ctx;
    for (int how = STAYS; how <= LEAVES_WITHIN; how++) {
        int rc = scores_asked((enum leaving)how);
        if (rc < 0)
            return rc;
    }
    return 0;
}

TEST(texts_bear_every_failing_allocation)
{
    faults_each("texts by pools", texts_asked, NULL);
}

TEST(scores_bear_every_failing_allocation)
{
    faults_each("scores by pools", all_scores_asked, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_bear_every_failing_allocation),
                                       cmocka_unit_test(scores_bear_every_failing_allocation)};
    return cmocka_run_group_tests_name("pool_text_faults", tests, NULL, NULL);
}
