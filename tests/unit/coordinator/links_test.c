#include <stdio.h>

#include "common/log.h"
#include "coordinator/link_probes.h"
#include "tests/unit/coordinator/core_fixture.h"

enum { AGENTS = 3 };

static int setup(void **state)
{
    static struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < AGENTS; i++)
        fixture_agent(&f, i, "toy", 1e9);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

/* The last probe that any agent was told, and who that is (-1: nobody since message `since`). */
static const struct message *told(const struct fixture *f, size_t since, const char *role,
                                  int *agent)
{
    *agent = -1;
    for (size_t i = f->n_sent; i-- > since;)
        if (f->sent[i].type == MESSAGE_LINK_PROBE &&
            strcmp(f->sent[i].m.u.link_probe.role, role) == 0) {
            *agent = (int)f->sent[i].peer - 10;
            return &f->sent[i].m;
        }
    return NULL;
}

static void result(struct fixture *f, int agent, uint64_t id, double bandwidth, const char *code)
{
    struct message m = {.type = MESSAGE_LINK_RESULT, .id = id};
    m.u.link_result = (struct message_link_result){.latency_s = bandwidth > 0 ? 1e-4 : 0,
                                                   .bandwidth_bytes_per_s = bandwidth,
                                                   .code = code,
                                                   .text = code[0] ? "no" : ""};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
}

static void beat_all(struct fixture *f)
{
    for (int i = 0; i < AGENTS; i++)
        fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
}

/* Lets `ticks` of 100 ms pass and answers every probe. How many there were. */
static int measure_for(struct fixture *f, int ticks, double bandwidth)
{
    int n = 0;
    for (int tick = 0; tick < ticks; tick++) {
        size_t before = f->n_sent;
        int far, near, none;
        beat_all(f);
        fixture_pass_ms(f, 100);
        const struct message *echo = told(f, before, "echo", &far);
        if (!echo)
            continue;
        uint64_t id = echo->id;
        assert_null(told(f, before, "measure", &none));
        before = f->n_sent;
        result(f, far, id, 0, "");
        const struct message *measure = told(f, before, "measure", &near);
        assert_non_null(measure);
        assert_int_not_equal(near, far);
        assert_int_equal(measure->id, id);
        before = f->n_sent;
        result(f, near, id, bandwidth, "");
        assert_non_null(told(f, before, "end", &none));
        n++;
    }
    return n;
}

static int measure_all(struct fixture *f, double bandwidth)
{
    return measure_for(f, 60, bandwidth);
}

static json_t *links_now(struct fixture *f)
{
    const struct message_answer *a = fixture_ask(f, "topo", "{}", NULL);
    json_t *o = json_loads(a->result, 0, NULL), *links = json_incref(json_object_get(o, "links"));
    json_decref(o);
    return links;
}

static void every_pair_is_measured_once_and_again_after_minutes(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(measure_all(f, 5e8), AGENTS * (AGENTS - 1));
    assert_int_equal(measure_all(f, 5e8), 0);
    json_t *links = links_now(f);
    assert_int_equal(json_array_size(links), AGENTS * (AGENTS - 1));
    assert_true(json_number_value(
                    json_object_get(json_array_get(links, 0), "bandwidth_bytes_per_s")) == 5e8);
    assert_true(json_number_value(json_object_get(json_array_get(links, 0), "latency_s")) == 1e-4);
    assert_true(json_integer_value(json_object_get(json_array_get(links, 0), "measured_s")) >=
                1000);
    json_decref(links);
    fixture_jump_ms(f, LINKS_REFRESH_MS - 2000);
    beat_all(f);
    assert_int_equal(measure_all(f, 7e8), AGENTS * (AGENTS - 1));
}

static void agents_that_do_not_answer_are_left_alone_for_a_while(void **state)
{
    struct fixture *f = *state;
    int far, none, asked = 0, ended = 0;
    for (int i = 1; i < 200 && !ended; i++) {
        beat_all(f);
        fixture_pass_ms(f, 100);
        asked = !asked && told(f, 0, "echo", &far) ? i : asked;
        ended = told(f, 0, "end", &none) ? i : 0;
    }
    assert_true(asked > 0);
    assert_int_equal(ended - asked, LINKS_ANSWER_MS / 100);
    uint64_t id = told(f, 0, "echo", &far)->id;
    result(f, far, id, 0, "link");
    result(f, far, 0, 1e9, "");
    json_t *links = links_now(f);
    assert_int_equal(json_array_size(links), 0);
    json_decref(links);
}

static void what_was_measured_outlives_a_restart(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 4e8);
    fixture_restart(f);
    json_t *links = links_now(f);
    assert_int_equal(json_array_size(links), AGENTS * (AGENTS - 1));
    json_decref(links);
}

static void agents_that_come_back_are_measured_again_and_removed_ones_forgotten(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 4e8);
    fixture_jump_ms(f, COORD_LOST_MS);
    fixture_beat(f, 10, fixture_key(0));
    fixture_beat(f, 11, fixture_key(1));
    fixture_pass_ms(f, 1);
    fixture_join(f, 12, fixture_key(2), "a2", "", fixture_node("toy", 1e9));
    fixture_beat(f, 12, fixture_key(2));
    assert_int_equal(measure_all(f, 4e8), 4);
    fixture_ask(f, "node.drain", "{\"name\": \"a2\"}", NULL);
    const struct message_answer *a = fixture_ask(f, "node.rm", "{\"name\": \"a2\"}", NULL);
    assert_true(!a->code[0] || strcmp(a->code, "ok") == 0);
    json_t *links = links_now(f);
    assert_int_equal(json_array_size(links), 2);
    json_decref(links);
}

static void paced_agents_keep_their_given_links(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < AGENTS; i++) {
        char node[500];
        snprintf(node, sizeof node, "%.*s, \"paced\": {\"as\": \"p/gpu%d\", \"links\": []}}",
                 (int)strlen(fixture_node("toy", 1e9)) - 1, fixture_node("toy", 1e9), i);
        fixture_join(f, 10 + (uint64_t)i, fixture_key(i), "", "", node);
    }
    assert_int_equal(measure_all(f, 4e8), 0);
}

static double speed_of_first(struct fixture *f)
{
    json_t *links = links_now(f);
    double speed =
        json_number_value(json_object_get(json_array_get(links, 0), "bandwidth_bytes_per_s"));
    json_decref(links);
    return speed;
}

static void no_link_is_faster_than_its_cards(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 2.4e10); /* the fixture's cards do 1e9 */
    assert_true(speed_of_first(f) == 1e9);
}

static void a_result_that_differs_much_is_believed_when_it_comes_twice(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 8e8);
    fixture_ask(f, "topo", "{\"measure\": true}", NULL);
    assert_int_equal(measure_for(f, 8, 3e6), AGENTS * (AGENTS - 1));
    assert_true(speed_of_first(f) == 8e8);
    assert_int_equal(measure_all(f, 7.9e8), AGENTS * (AGENTS - 1));
    assert_true(speed_of_first(f) == 7.9e8);
    fixture_ask(f, "topo", "{\"measure\": true}", NULL);
    assert_int_equal(measure_all(f, 3e6), 2 * AGENTS * (AGENTS - 1));
    assert_true(speed_of_first(f) == 3e6);
}

static size_t doubted_now(struct fixture *f)
{
    const struct message_answer *a = fixture_ask(f, "topo", "{}", NULL);
    json_t *o = json_loads(a->result, 0, NULL);
    const json_t *first = json_array_get(json_object_get(o, "doubted"), 0);
    size_t n = json_array_size(json_object_get(o, "doubted"));
    assert_true(!n || json_number_value(json_object_get(first, "measured_bytes_per_s")) == 3e6);
    assert_true(!n || json_number_value(json_object_get(first, "bandwidth_bytes_per_s")) == 8e8);
    json_decref(o);
    return n;
}

/* Answers for hpctl that are no progress, from message `since` on. */
static int answers_since(const struct fixture *f, size_t since)
{
    int n = 0;
    for (size_t i = since; i < f->n_sent; i++)
        n += f->sent[i].peer == ADMIN && f->sent[i].m.type == MESSAGE_ANSWER &&
             !f->sent[i].m.u.answer.more;
    return n;
}

static void who_asks_for_a_measurement_gets_no_old_value_without_a_word(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 8e8);
    fixture_ask(f, "topo", "{\"measure\": true}", NULL);
    size_t before = f->n_sent;
    measure_for(f, 20, 3e6);
    assert_int_equal(answers_since(f, before), 0);
    assert_int_equal(doubted_now(f), AGENTS * (AGENTS - 1));
    before = f->n_sent;
    measure_for(f, 60, 3e6);
    assert_int_equal(answers_since(f, before), 1);
    assert_true(speed_of_first(f) == 3e6);
    /* A network that is never the same is not waited for without end. */
    fixture_ask(f, "topo", "{\"measure\": true}", NULL);
    before = f->n_sent;
    for (int i = 0; i < 15; i++)
        measure_for(f, 10, i % 2 ? 9e8 : 1.5e7 * (i + 1) * (i + 1));
    assert_int_equal(answers_since(f, before), 1);
}

static void links_are_measured_when_asked_for(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 5e8);
    assert_null(fixture_ask(f, "topo", "{\"measure\": true}", NULL));
    size_t before = f->n_sent;
    assert_int_equal(measure_all(f, 6e8), AGENTS * (AGENTS - 1));
    int parts = 0, answers = 0;
    for (size_t i = before; i < f->n_sent; i++)
        if (f->sent[i].peer == ADMIN && f->sent[i].m.type == MESSAGE_ANSWER) {
            parts += f->sent[i].m.u.answer.more;
            answers += !f->sent[i].m.u.answer.more;
        }
    assert_int_equal(parts, AGENTS * (AGENTS - 1));
    assert_int_equal(answers, 1);
    assert_true(speed_of_first(f) == 6e8);
}

/* ---- what is lost on its way ---- */

/* One agent tells what it sent to another in all. */
static void losses(struct fixture *f, int from, int to, uint64_t segments, uint64_t lost)
{
    uint8_t key[KEY_BYTES];
    struct message m = {.type = MESSAGE_LOSSES};
    struct message_loss row = {{key, sizeof key}, segments, lost};
    assert_int_equal(key_decode(fixture_key(to), key, NULL), 0);
    m.u.losses.losses = (struct pack_list){&row, 1};
    fixture_say(f, 10 + (uint64_t)from, fixture_key(from), &m);
}

/* Of the link between two devices: a figure of it, 0 where it has none. */
static double link_figure(struct fixture *f, const char *from, const char *to, const char *figure)
{
    json_t *links = links_now(f);
    const json_t *l;
    size_t i;
    double found = -1;
    json_array_foreach(links, i,
                       l) if (strcmp(json_string_value(json_object_get(l, "from")), from) == 0 &&
                              strcmp(json_string_value(json_object_get(l, "to")), to) == 0) found =
        json_number_value(json_object_get(l, figure));
    json_decref(links);
    return found;
}

static double loss_of_first(struct fixture *f)
{
    return link_figure(f, "a0/cpu", "a1/cpu", "loss");
}

static void a_link_that_loses_again_and_again_is_named_and_planned_with(void **state)
{
    struct fixture *f = *state;
    measure_all(f, 5e8);
    double quick_s = link_figure(f, "a0/cpu", "a1/cpu", "latency_s");
    losses(f, 0, 1, 5000, 40); /* before anybody counted */
    for (uint64_t i = 1; i < 3; i++)
        losses(f, 0, 1, 5000 + 100 * i, 40 + 3 * i);
    assert_true(loss_of_first(f) == 0);
    losses(f, 0, 1, 5300, 49);
    assert_true(loss_of_first(f) == 0.03);
    assert_true(link_figure(f, "a1/cpu", "a0/cpu", "loss") == 0);
    double late_s = link_figure(f, "a0/cpu", "a1/cpu", "latency_s") - quick_s;
    assert_true(late_s > 0.005 && late_s < 0.007); /* 3 % of 0.2 s */
    assert_true(link_figure(f, "a0/cpu", "a1/cpu", "bandwidth_bytes_per_s") < 6e7);
    /* Measured soon, and again after half a minute. */
    assert_int_equal(measure_all(f, 5e8), 1);
    fixture_jump_ms(f, LINKS_RETRY_MS);
    assert_int_equal(measure_all(f, 5e8), 1);
    /* It is over. */
    losses(f, 0, 1, 5600, 49);
    assert_true(loss_of_first(f) == 0.03);
    losses(f, 0, 1, 5800, 49);
    assert_true(loss_of_first(f) == 0);
    assert_true(link_figure(f, "a0/cpu", "a1/cpu", "latency_s") == quick_s);
}

/* A measurement may fail for as long as the link is bad. */
static void a_way_that_nobody_measured_is_named_and_planned_with_as_well(void **state)
{
    struct fixture *f = *state;
    for (int back = 0; back < 2; back++) { /* measured is the way back, or neither */
        struct member *from = f->core->members[back], *to = f->core->members[2];
        if (back) {
            struct member_link *l = links_make(to, from);
            l->bandwidth_bytes_per_s = 5e8;
            l->latency_s = 2e-4;
        }
        links_make(from, to)->late_s = 0.05;
        links_make(from, to)->loss = 0.03;
        const char *id = from->node->cluster.devices[0].id;
        double late_s = link_figure(f, id, "a2/cpu", "latency_s") - (back ? 2e-4 : 2e-5);
        assert_true(link_figure(f, id, "a2/cpu", "late_s") == 0.05);
        assert_true(link_figure(f, id, "a2/cpu", "loss") == 0.03);
        assert_true(late_s > 0.0559 && late_s < 0.0562); /* 3 % of 0.2 s beside */
        links_make(from, to)->late_s = links_make(from, to)->loss = 0;
        assert_true(link_figure(f, id, "a2/cpu", "late_s") == -1);
    }
}

static void a_burst_and_a_long_way_with_few_losses_are_no_news(void **state)
{
    struct fixture *f = *state;
    uint64_t segments = 1, lost = 0;
    measure_all(f, 5e8);
    losses(f, 0, 1, segments, lost);
    losses(f, 0, 1, segments += 300, lost += 60); /* at once */
    losses(f, 0, 1, segments += 300, lost += 60);
    losses(f, 0, 1, segments += 900, lost);
    assert_true(loss_of_first(f) == 0);
    for (int i = 0; i < 20; i++) /* one of 500 */
        losses(f, 0, 1, segments += 500, ++lost);
    assert_true(loss_of_first(f) == 0);
    /* Counts of another process begin anew; of itself, of nobody and of nothing there are none. */
    losses(f, 0, 1, 100, 50);
    losses(f, 0, 1, 200, 0);
    losses(f, 0, 0, 1000, 500);
    losses(f, 0, 9, 1000, 500);
    losses(f, 0, 1, 0, 500);
    assert_true(loss_of_first(f) == 0);
}

static void line_count(void *ctx, const char *line)
{
    *(int *)ctx += strstr(line, " link_lossy ") || strstr(line, " link_sound ");
}

/* What an agent tells may be made up: its links are bad and good again as fast as it talks. */
static void losses_that_come_and_go_do_not_fill_the_log(void **state)
{
    struct fixture *f = *state;
    uint64_t segments = 1000, lost = 0;
    int lines = 0;
    measure_all(f, 5e8);
    losses(f, 0, 1, segments, lost);
    log_set_level(LOG_INFO);
    log_set_sink(line_count, &lines);
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < 3; k++)
            losses(f, 0, 1, segments += 100, lost += 10);
        assert_true(loss_of_first(f) == 0.1);
        losses(f, 0, 1, segments += 500, lost);
        assert_true(loss_of_first(f) == 0);
    }
    log_set_sink(NULL, NULL);
    log_set_level(LOG_ERROR);
    assert_in_range(lines, 1, 2 * LOG_LIMIT_LINES * 3); /* at most 3 of these spans have begun */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(losses_that_come_and_go_do_not_fill_the_log, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_link_is_faster_than_its_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(a_result_that_differs_much_is_believed_when_it_comes_twice,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(who_asks_for_a_measurement_gets_no_old_value_without_a_word,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(links_are_measured_when_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(every_pair_is_measured_once_and_again_after_minutes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(agents_that_do_not_answer_are_left_alone_for_a_while, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_measured_outlives_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(
            agents_that_come_back_are_measured_again_and_removed_ones_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(paced_agents_keep_their_given_links, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_that_loses_again_and_again_is_named_and_planned_with,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_way_that_nobody_measured_is_named_and_planned_with_as_well, setup, teardown),
        cmocka_unit_test_setup_teardown(a_burst_and_a_long_way_with_few_losses_are_no_news, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
