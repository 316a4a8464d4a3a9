/* What `hpctl top` makes of two looks at a cluster. */
#include <math.h>
#include <string.h>

#include "hpctl/shown.h"
#include "hpctl/top_figures.h"
#include "tests/test.h"

#define assert_near(a, b) assert_true(fabs((a) - (b)) < 1e-9)

/* One deployment over two agents, of which the first has two devices. */
static json_t *look(int generation, double output, double busy, double sent)
{
    json_t *l = json_pack(
        "{s:[{s:s, s:i, s:s, s:i, s:f, s:f, s:i, s:i, s:{s:i, s:i, s:i, s:i}, s:[{s:s, s:s, s:f}, "
        "{s:s, s:s, s:f}]}], s:[{s:s, s:s, s:[{}, {}], s:f, s:f, s:f, s:f, s:[{s:s, s:i, s:i}]}, "
        "{s:s, s:s, "
        "s:[{}], s:[]}]}",
        "deployments", "name", "m", "id", 1, "state", "serving", "generation", generation,
        "output_tokens", output, "prompt_tokens", 10 * output, "sequences_active", 3,
        "sequences_waiting", 2, "prefix_cache", "pages", 200, "pages_own", 20, "pages_shared", 30,
        "pages_cached", 100, "stages", "agent", "a0", "device", "cpu", "busy_s", busy, "agent",
        "a1", "device", "cpu", "busy_s", 2 * busy, "agents", "name", "a0", "state", "ready",
        "devices", "memory_bytes", 8e9, "memory_free_bytes", 6e9, "data_sent_bytes", sent,
        "data_received_bytes", 0.0, "stages", "deployment", "m", "first_layer", 0, "last_layer", 5,
        "name", "a1", "state", "lost", "devices", "stages");
    assert_non_null(l);
    return l;
}

static const json_t *row_of(const json_t *figures, const char *rows, size_t i)
{
    return json_array_get(json_object_get(figures, rows), i);
}

TEST(rates_are_what_grew_between_two_looks)
{
    json_t *before = look(1, 100, 1, 1000), *now = look(1, 180, 1.5, 5000),
           *figures = top_figures(before, now, 2);
    const json_t *m = row_of(figures, "deployments", 0), *a0 = row_of(figures, "agents", 0),
                 *a1 = row_of(figures, "agents", 1);
    assert_near(number_member(m, "tokens_per_s"), 40);
    assert_near(number_member(m, "prompt_tokens_per_s"), 400);
    assert_near(number_member(m, "kv_share"), 0.25);
    assert_near(number_member(m, "cached_share"), 0.5);
    assert_near(number_member(a0, "busy_share"), 0.125); /* half a second of two devices' two */
    assert_near(number_member(a1, "busy_share"), 0.5);
    assert_near(number_member(a0, "memory_used_bytes"), 2e9);
    assert_near(number_member(a0, "sent_bytes_per_s"), 2000);
    assert_string_equal(string_member(a0, "stages"), "m 0-5");
    struct buffer out = {0};
    struct err e = {0};
    assert_int_equal(top_figures_write(figures, &out, &e), 0);
    assert_non_null(
        strstr(buffer_cstr(&out), "40 tokens/s, 3 requests run, 2 wait; 1 of 2 agents"));
    assert_non_null(strstr(buffer_cstr(&out), "[#####-----]  50 %"));
    buffer_free(&out);
    json_decref(figures);
    json_decref(before);
    json_decref(now);
}

/* Counters fall where somebody began anew, and grow from nothing where somebody came. */
TEST(what_began_anew_has_no_rate)
{
    json_t *before = look(1, 100, 5, 1000), *now = look(2, 50, 6, 10),
           *figures = top_figures(before, now, 1);
    assert_near(number_member(row_of(figures, "deployments", 0), "tokens_per_s"), 0);
    assert_near(number_member(row_of(figures, "agents", 0), "busy_share"), 0);
    assert_near(number_member(row_of(figures, "agents", 0), "sent_bytes_per_s"), 0);
    json_decref(figures);
    figures = top_figures(NULL, now, 0);
    assert_near(number_member(row_of(figures, "deployments", 0), "tokens_per_s"), 0);
    assert_near(number_member(row_of(figures, "agents", 1), "busy_share"), 0);
    json_decref(figures);
    json_decref(before);
    json_decref(now);
}

TEST(stages_have_their_links_beside_them)
{
    json_t *before = look(1, 100, 1, 1000), *now = look(1, 180, 1.5, 5000);
    json_object_set_new(now, "topology",
                        json_pack("{s:[{s:s, s:s, s:f, s:f}, {s:s, s:s, s:f, s:f, s:f}]}", "links",
                                  "from", "a0/cpu", "to", "a1/cpu", "bandwidth_bytes_per_s", 1e9,
                                  "latency_s", 1e-4, "from", "a1/cpu", "to", "a0/cpu",
                                  "bandwidth_bytes_per_s", 2e6, "latency_s", 2e-3, "loss", 0.01));
    json_t *figures = top_figures(before, now, 2);
    const json_t *first = row_of(figures, "stages", 0), *last = row_of(figures, "stages", 1);
    assert_int_equal(json_array_size(json_object_get(figures, "stages")), 2);
    assert_near(number_member(first, "busy_share"), 0.25);
    assert_near(number_member(first, "bandwidth_bytes_per_s"), 1e9);
    assert_near(number_member(last, "bandwidth_bytes_per_s"), 2e6); /* tokens go back */
    struct buffer out = {0};
    struct err e = {0};
    assert_int_equal(top_figures_write(figures, &out, &e), 0);
    assert_non_null(strstr(buffer_cstr(&out), shown_rate(1e9).s));
    assert_non_null(strstr(buffer_cstr(&out), ", loses 1 %"));
    buffer_free(&out);
    json_decref(figures);
    json_decref(before);
    json_decref(now);
}

TEST(an_empty_cluster_says_what_to_do)
{
    json_t *now = json_pack("{s:[], s:[]}", "deployments", "agents"),
           *figures = top_figures(now, now, 1);
    struct buffer out = {0};
    struct err e = {0};
    assert_int_equal(top_figures_write(figures, &out, &e), 0);
    assert_non_null(strstr(buffer_cstr(&out), "hpctl deploy"));
    assert_non_null(strstr(buffer_cstr(&out), "hpctl node token create"));
    buffer_free(&out);
    json_decref(figures);
    json_decref(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_what_grew_between_two_looks),
        cmocka_unit_test(what_began_anew_has_no_rate),
        cmocka_unit_test(stages_have_their_links_beside_them),
        cmocka_unit_test(an_empty_cluster_says_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
