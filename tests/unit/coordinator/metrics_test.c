/* What a gateway shows of the coordinator. */
#include "coordinator/requests.h"
#include "tests/unit/coordinator/stream_fixture.h"

struct metrics_seen {
    double opened, finished, serving;
};

static void see(void *out, const char *name, const char *type, const char *help, const char *labels,
                double value)
{
    struct metrics_seen *s = out;
    assert_true(*help && (strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0));
    if (strcmp(name, "hp_sequences_opened_total") == 0)
        s->opened = value;
    if (strcmp(name, "hp_sequences_finished_total") == 0)
        s->finished = value;
    if (strcmp(name, "hp_deployment_serving") == 0 && strcmp(labels, "deployment=\"d\"") == 0)
        s->serving = value;
}

TEST(figures_tell_what_happened)
{
    struct fixture f;
    struct request_stream s;
    struct requests r;
    struct metrics_seen seen = {0};
    struct deployment *d = serving(&f);
    static const uint32_t ids[] = {11};
    open_stream(&f, &s, 10, 1);
    tokens(&f, 0, 1, d->active->id, 0, ids, 1, "length");
    coord_requests(f.core, &r);
    r.metrics(r.ctx, see, &seen);
    assert_true(seen.opened > 0.5 && seen.finished > 0.5 && seen.serving > 0.5);
    assert_int_equal(s.finish, REQUEST_LENGTH);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_tell_what_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
