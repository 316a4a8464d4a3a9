#include <math.h>
#include <stdint.h>

#include "agent/link_probe.h"
#include "tests/test.h"

/* A link that takes `latency_ns` each way and carries frames one after the other at `bytes_per_s`.
 */
struct probe_wire {
    double latency_ns, bytes_per_s;
    double free_ns;
};

static double echo_at(struct probe_wire *w, double now, size_t bytes)
{
    double start = w->free_ns > now ? w->free_ns : now;
    w->free_ns = start + (double)bytes / w->bytes_per_s * 1e9;
    return w->free_ns + 2 * w->latency_ns;
}

/* The seconds that a whole probe took. */
static double run(struct link_probe *p, struct probe_wire w, uint64_t *bytes)
{
    double due[LINK_PROBE_FLOOD_FRAMES + LINK_PROBE_SMALL + 8], now = 1e9;
    uint32_t head = 0, tail = 0;
    struct link_probe_send s = link_probe_begin(p, (uint64_t)now);
    *bytes = 0;
    for (;;) {
        for (uint32_t i = 0; i < s.count; i++) {
            assert_int_equal(s.number + i, tail);
            due[tail++] = echo_at(&w, now, s.bytes);
            *bytes += s.bytes;
        }
        if (head == tail)
            return (now - 1e9) * 1e-9;
        now = due[head];
        s = link_probe_echo(p, head++, (uint64_t)now);
    }
}

TEST(links_are_measured_whatever_their_speed)
{
    static const struct {
        double latency_s, bytes_per_s, most_s;
    } cases[] = {{1e-5, 5e9, 0.25},
                 {1e-4, 1.25e8, 0.25},
                 {3e-2, 1.25e6, 2.5},
                 {2e-3, 1.25e9, 0.3},
                 {1e-6, 2e10, 0.25}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct link_probe p;
        uint64_t bytes;
        double seconds =
            run(&p, (struct probe_wire){cases[i].latency_s * 1e9, cases[i].bytes_per_s, 0}, &bytes);
        assert_true(link_probe_done(&p));
        assert_true(fabs(link_probe_latency_s(&p) / cases[i].latency_s - 1) < 0.01);
        assert_true(fabs(link_probe_bandwidth(&p) / cases[i].bytes_per_s - 1) < 0.05 ||
                    cases[i].latency_s > 1e-3);
        assert_true(link_probe_bandwidth(&p) <= 1.05 * cases[i].bytes_per_s);
        assert_true(seconds < cases[i].most_s);
        assert_true(bytes <= (uint64_t)(LINK_PROBE_FLOOD_FRAMES + 1) * LINK_PROBE_MOST_BYTES);
    }
}

TEST(echoes_that_nobody_asked_for_change_nothing)
{
    struct link_probe p;
    struct link_probe_send s = link_probe_begin(&p, 1000);
    assert_int_equal(s.count, 1);
    assert_int_equal(link_probe_echo(&p, 5, 2000).count, 0);
    assert_int_equal(p.n_rounds, 0);
    assert_int_equal(link_probe_echo(&p, 0, 2000).count, 1);
    assert_int_equal(p.n_rounds, 1);
}

/* A network that stalls and then delivers all at once. */
TEST(echoes_in_a_burst_after_a_stall_make_no_link_fast)
{
    struct link_probe p;
    uint64_t now = 1000000000;
    uint32_t echoed = 0;
    struct link_probe_send s = link_probe_begin(&p, now);
    while (p.phase != LINK_PROBE_FLOOD)
        s = link_probe_echo(&p, echoed++, now += 200000);
    now += 3000000000;
    for (uint32_t i = 0; i < LINK_PROBE_WINDOW; i++)
        link_probe_echo(&p, echoed++, now += 1000);
    assert_true(link_probe_done(&p) || echoed >= p.sent);
    assert_true(link_probe_bandwidth(&p) <= 1.1 * (double)(LINK_PROBE_WINDOW * p.bytes) / 3.0);
    (void)s;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(echoes_in_a_burst_after_a_stall_make_no_link_fast),
        cmocka_unit_test(links_are_measured_whatever_their_speed),
        cmocka_unit_test(echoes_that_nobody_asked_for_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
