/* Agents with several devices: where stages go, what is free where, and what is kept of it. */
#include <stdio.h>

#include "coordinator/deployment_layout.h"
#include "coordinator/placement.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/planner_inputs.h"
#include "tests/unit/coordinator/placement_fixture.h"

/* Two devices, of these kinds and bytes, and a GPU that nothing computes on. */
static void agent_with_two(struct fixture *f, int i, const char *kinds[2], double bytes)
{
    char name[8], node[700];
    snprintf(name, sizeof name, "a%d", i);
    snprintf(node, sizeof node,
             "{\"name\": \"x\", \"devices\": ["
             "{\"name\": \"cpu0\", \"kind\": \"%s\", \"memory_bytes\": %.0f, \"cores\": [0]}, "
             "{\"name\": \"gpu0\", \"kind\": \"g\", \"memory_bytes\": 9e9, \"usable\": false}, "
             "{\"name\": \"cpu1\", \"kind\": \"%s\", \"memory_bytes\": %.0f, \"cores\": [1]}], "
             "\"device_link\": {\"bandwidth_bytes_per_s\": 4e9, \"latency_s\": 2e-5}, "
             "\"nics\": [{\"name\": \"lo\", \"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 1e-4}]}",
             kinds[0], bytes, kinds[1], bytes / 2);
    fixture_invite(f, 60);
    fixture_join(f, 10 + (uint64_t)i, fixture_key(i), name, f->token, node);
    fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
}

static const char *equal[2] = {"k", "k"}, *unequal[2] = {"k", "slow"};

static void ready(struct fixture *f, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        int agent = d->stages[i].agent->name[1] - '0';
        struct message m = {.type = MESSAGE_STAGE_STATE};
        m.u.stage_state = (struct message_stage_state){.deployment = d->id,
                                                       .generation = d->generation,
                                                       .stage = (uint64_t)i,
                                                       .state = "ready",
                                                       .code = "",
                                                       .text = "",
                                                       .hint = ""};
        fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
    }
}

TEST(an_agents_devices_are_devices_of_the_planners_cluster)
{
    struct fixture f;
    struct cluster c = {0};
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    fixture_agent(&f, 1, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a1\"}", NULL);
    assert_int_equal(planner_cluster_make(f.core, d, &c, NULL), 0);
    assert_int_equal(c.n_nodes, 2);
    assert_int_equal(c.n_devices, 3); /* without what is not usable */
    int second = cluster_find_device(&c, "a0/cpu1"), other = cluster_find_device(&c, "a1/cpu");
    assert_int_equal(second, c.nodes[0].first_device + 1);
    struct cluster_wire within = cluster_hop(&c, c.nodes[0].first_device, second),
                        between = cluster_hop(&c, second, other);
    assert_true(within.bandwidth_bytes_per_s == 4e9);
    assert_true(between.bandwidth_bytes_per_s > 0 && between.bandwidth_bytes_per_s < 4e9);
    assert_true(c.devices[second].memory_bytes <= 4e9);
    cluster_free(&c);
    fixture_close(&f);
}

TEST(stages_go_to_the_devices_that_were_named_and_take_memory_there_alone)
{
    struct fixture f;
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    struct deployment *d = deploy(&f, "x", "{\"layers\": \"0-3:a0/cpu1,4-9:a0/cpu0\"}", NULL);
    assert_non_null(d);
    assert_int_equal(d->stages[0].device, 1);
    assert_int_equal(d->stages[1].device, 0);
    const struct message *p = fixture_last(&f, 10, MESSAGE_STAGE_PREPARE);
    assert_int_equal(p->u.stage_prepare.stage, 1);
    assert_int_equal(p->u.stage_prepare.device, 0);
    struct deployment *other = deploy(&f, "y", "{\"agents\": \"a0/cpu1\"}", NULL);
    const struct member *m = member_find(f.core, "a0");
    double large = planner_free_bytes(f.core, other, m, 0),
           small = planner_free_bytes(f.core, other, m, 1);
    assert_true(8e9 - large == d->stages[1].memory_bytes);
    assert_true(4e9 - small == d->stages[0].memory_bytes);
    assert_true(planner_free_bytes(f.core, other, m, 2) == 0); /* there is none */
    fixture_close(&f);
}

TEST(an_agent_by_its_name_is_all_of_its_devices)
{
    struct fixture f;
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    fixture_agent(&f, 1, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a1,a0\"}", NULL);
    assert_int_equal(d->n_stages, 3);
    assert_int_equal(d->stages[1].device, 0);
    assert_int_equal(d->stages[2].device, 1);
    assert_ptr_equal(d->stages[1].agent, d->stages[2].agent);
    fixture_close(&f);
}

TEST(sequences_are_opened_on_each_stage_of_an_agent)
{
    struct fixture f;
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0\"}", NULL);
    ready(&f, d);
    assert_string_equal(state_of(&f, "x"), "serving");
    size_t before = f.n_sent;
    fixture_ask(&f, "greedy", "{\"deployment\": \"x\", \"ids\": [1, 2, 3], \"tokens\": 2}", NULL);
    uint64_t stages = 0;
    for (size_t i = before; i < f.n_sent; i++)
        if (f.sent[i].type == MESSAGE_SEQUENCE_OPEN)
            stages |= UINT64_C(1) << f.sent[i].m.u.sequence_open.stage;
    assert_int_equal(stages, 3);
    fixture_close(&f);
}

TEST(devices_of_stages_outlive_a_restart)
{
    struct fixture f;
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    ready(&f, deploy(&f, "x", "{\"layers\": \"0-3:a0/cpu1,4-9:a0/cpu0\"}", NULL));
    fixture_restart(&f);
    const struct deployment *d = deployment_find(f.core, "x");
    assert_int_equal(d->n_stages, 2);
    assert_int_equal(d->stages[0].device, 1);
    assert_int_equal(d->stages[1].device, 0);
    struct stage_layout *l = deployment_layout(d);
    assert_true(deployment_layout_usable(f.core, l) == false); /* its agent is not here yet */
    fixture_join(&f, 10, fixture_key(0), "a0", "", fixture_node("k", 8e9));
    fixture_beat(&f, 10, fixture_key(0));
    assert_int_equal(member_device_count(member_find(f.core, "a0")), 1);
    assert_false(deployment_layout_usable(f.core, l)); /* it has one device now */
    stage_layout_release(&l);
    fixture_close(&f);
}

/* What an agent holds of an older generation goes once the new one serves, though it has a stage of
 * that as well. */
TEST(stages_of_an_older_generation_are_unloaded_from_an_agent_that_stays)
{
    struct fixture f;
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0\"}", NULL);
    ready(&f, d);
    d->generation = 3; /* as if it had been wired anew */
    struct message_held_stage held[] = {
        {.deployment = d->id, .generation = 2, .stage = 1, .device = 1, .state = "ready"},
        {.deployment = d->id, .generation = 3, .stage = 0, .device = 0, .state = "ready"},
        {.deployment = d->id, .generation = 3, .stage = 1, .device = 1, .state = "ready"}};
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.held = (struct pack_list){held + 1, 2};
    fixture_say(&f, 10, fixture_key(0), &m);
    assert_null(fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD));
    m.u.heartbeat.held = (struct pack_list){held, 3};
    fixture_say(&f, 10, fixture_key(0), &m);
    assert_int_equal(fixture_last(&f, 10, MESSAGE_STAGE_UNLOAD)->u.stage_unload.generation, 2);
    assert_string_equal(state_of(&f, "x"), "serving");
    fixture_close(&f);
}

TEST(each_kind_of_device_is_measured_where_it_is)
{
    struct fixture f;
    struct placement_device unmeasured[4];
    fixture_open(&f);
    agent_with_two(&f, 0, unequal, 8e9);
    agent_with_two(&f, 1, equal, 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0\"}", NULL);
    assert_int_equal(placement_unmeasured(f.core, d, unmeasured, 4), 2);
    assert_int_equal(unmeasured[0].device, 0);
    assert_string_equal(unmeasured[1].agent->name, "a0");
    assert_int_equal(unmeasured[1].device, 1);
    fixture_close(&f);
}

TEST(heartbeats_say_what_is_free_on_each_device)
{
    struct fixture f;
    static const struct message_device_state devices[] = {{5}, {6}};
    fixture_open(&f);
    agent_with_two(&f, 0, equal, 8e9);
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.devices = (struct pack_list){(void *)(uintptr_t)devices, 2};
    fixture_say(&f, 10, fixture_key(0), &m);
    const struct message_answer *a = fixture_ask(&f, "node.describe", "{\"name\": \"a0\"}", NULL);
    json_t *node = json_loads(a->result, 0, NULL), *list = json_object_get(node, "devices");
    assert_int_equal(json_array_size(list), 2);
    const json_t *second = json_array_get(list, 1);
    assert_string_equal(json_string_value(json_object_get(second, "id")), "a0/cpu1");
    assert_int_equal(json_integer_value(json_object_get(second, "memory_free_bytes")), 6);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(second, "cores"), 0)), 1);
    json_decref(node);
    fixture_close(&f);
}

TEST(a_node_of_more_devices_than_there_may_be_does_not_join)
{
    struct fixture f;
    struct buffer node = {0};
    fixture_open(&f);
    fixture_invite(&f, 60);
    buffer_printf(&node, "{\"name\": \"x\", \"devices\": [");
    for (int i = 0; i <= MESSAGE_MAX_DEVICES; i++)
        buffer_printf(&node, "%s{\"name\": \"c%d\", \"kind\": \"k\", \"memory_bytes\": 1}",
                      i ? ", " : "", i);
    buffer_printf(&node, "]}");
    fixture_join(&f, 10, fixture_key(0), "a0", f.token, buffer_cstr(&node));
    assert_non_null(strstr(fixture_last(&f, 10, MESSAGE_REFUSED)->u.refused.text,
                           "has 65 devices; 64 are the limit"));
    buffer_free(&node);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agents_devices_are_devices_of_the_planners_cluster),
        cmocka_unit_test(stages_go_to_the_devices_that_were_named_and_take_memory_there_alone),
        cmocka_unit_test(an_agent_by_its_name_is_all_of_its_devices),
        cmocka_unit_test(sequences_are_opened_on_each_stage_of_an_agent),
        cmocka_unit_test(devices_of_stages_outlive_a_restart),
        cmocka_unit_test(stages_of_an_older_generation_are_unloaded_from_an_agent_that_stays),
        cmocka_unit_test(each_kind_of_device_is_measured_where_it_is),
        cmocka_unit_test(heartbeats_say_what_is_free_on_each_device),
        cmocka_unit_test(a_node_of_more_devices_than_there_may_be_does_not_join),
    };
    return cmocka_run_group_tests_name("devices of agents", tests, prepare_facts, NULL);
}
