/* What a browser is shown of the core, with failing allocations. */
#include "tests/unit/coordinator/deployment_fixture.h"
#include "tests/unit/faults.h"

static struct fixture f;
static int asked, told, planned;

static void plan_told(void *ctx, const char *json, size_t n, const struct err *why)
{
    int *status = ctx;
    told++;
    planned += json && n > 0 && !why;
    *status = why ? why->code : 0;
}

static int looks(void *ctx)
{
    static const struct {
        enum request_document which;
        const char *name;
    } documents[] = {{DOCUMENT_CLUSTER, ""},
                     {DOCUMENT_TOPOLOGY, ""},
                     {DOCUMENT_AGENT, "a0"},
                     {DOCUMENT_DEPLOYMENT, "d"}};
    struct requests r;
    int rc = 0, status = 0;
    (void)ctx;
    coord_requests(f.core, &r);
    for (size_t i = 0; rc == 0 && i < sizeof documents / sizeof *documents; i++) {
        struct buffer out = {0};
        struct err e = {0};
        rc = r.document(r.ctx, documents[i].which, documents[i].name, &out, &e);
        buffer_free(&out);
    }
    struct request_what_if w = {"d", "a1,a2", plan_told, &status};
    rc = rc < 0 ? rc : r.what_if(r.ctx, &w, NULL);
    asked += rc == 0;
    fixture_settle(&f);
    return told != asked ? HP_EBUG : rc < 0 ? rc : status;
}

TEST(documents_and_plans_bear_every_failing_allocation)
{
    log_set_level(LOG_ERROR);
    serving(&f);
    assert_int_equal(looks(NULL), 0);
    assert_int_equal(planned, 1);
    faults_each("documents and a plan over other boxes", looks, NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_and_plans_bear_every_failing_allocation)};
    return cmocka_run_group_tests_name("documents faults", tests, NULL, NULL);
}
