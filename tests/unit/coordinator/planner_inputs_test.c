/* What the planner is given, against the documents that people are given. */
#include <math.h>

#include "coordinator/links.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/profiles.h"
#include "coordinator/topology.h"
#include "tests/unit/coordinator/core_fixture.h"
#include "transport/stage_bytes.h"

enum { LAYERS = 5 };
static const struct layer_facts layers[LAYERS] = {
    {"emb", "embed", 100000000, 100000000, 0, 4096, 0, 0, 0, 0, 0, 0, 0},
    {"b1", "block", 100000007, 100000000, 1000, 4096, 2.1e8, 0, 0, 0, 0, 0, 0},
    {"b2", "block", 100000014, 100000000, 1000, 4096, 2.1e8, 0, 0, 0, 0, 0, 0},
    {"b3", "block", 100000021, 100000000, 1000, 4096, 2.1e8, 0, 0, 0, 0, 0, 0},
    {"head", "head", 100000028, 100000000, 0, 4, 2.1e8, 0, 0, 0, 0, 0, 0},
};
static const struct model_facts facts = {
    .layers = layers, .n_layers = LAYERS, .vocabulary = 1000, .width = 1024, .context = 4096};

static const char box_node[] =
    "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"k\", \"memory_bytes\": 8e9,"
    " \"bus\": \"b0\", \"idle_w\": 3, \"busy_w\": 20}],"
    " \"buses\": [{\"name\": \"b0\", \"bandwidth_bytes_per_s\": 1e10}],"
    " \"device_link\": {\"bandwidth_bytes_per_s\": 5e9, \"latency_s\": 1e-6}}";
static const char card_node[] =
    "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"slow\", \"memory_bytes\": "
    "6e9}], \"nics\": [{\"name\": \"e0\", \"bandwidth_bytes_per_s\": 125000000}]}";
static const char paced_node[] =
    "{\"name\": \"x\", \"devices\": [{\"name\": \"gpu\", \"kind\": \"P100\", \"memory_bytes\": "
    "16e9}], \"nics\": [{\"bandwidth_bytes_per_s\": 125000000}], \"paced\": {\"as\": \"n%d/g\", "
    "\"profile\": \"abc\", \"links\": [{\"to\": \"n%d/g\", \"bandwidth_bytes_per_s\": 12345678, "
    "\"latency_s\": 3e-5}]}}";

static void join_on(struct fixture *f, int i, const char *machine, const char *node)
{
    char name[8];
    snprintf(name, sizeof name, "a%d", i);
    fixture_invite(f, 60);
    struct message m = {.type = MESSAGE_JOIN, .id = 3};
    m.u.join = (struct message_join){.name = name,
                                     .token = f->token,
                                     .program = "test",
                                     .machine = machine,
                                     .hostname = name,
                                     .node = node,
                                     .data_address = {(const uint8_t *)name, strlen(name)}};
    fixture_say(f, 10 + (uint64_t)i, fixture_key(i), &m);
    fixture_beat(f, 10 + (uint64_t)i, fixture_key(i));
}

/* Two agents of one box, two with measured links, two that are paced. */
static void join_all(struct fixture *f)
{
    char node[600];
    struct err e = {0};
    join_on(f, 0, "box", box_node);
    join_on(f, 1, "box", box_node);
    join_on(f, 2, "m2", card_node);
    join_on(f, 3, "m3", card_node);
    for (int i = 0; i < 2; i++) {
        snprintf(node, sizeof node, paced_node, i, 1 - i);
        join_on(f, 4 + i, i ? "m5" : "m4", node);
    }
    static const char *const rows[] = {
        "[{\"to\": \"a3\", \"bandwidth_bytes_per_s\": 7.5e8, \"latency_s\": 1.5e-5}]",
        "[{\"to\": \"a2\", \"bandwidth_bytes_per_s\": 6.5e8, \"latency_s\": 2.5e-5},"
        " {\"to\": \"a0\", \"bandwidth_bytes_per_s\": 5.5e8, \"latency_s\": 3.5e-5}]"};
    for (int i = 0; i < 2; i++) {
        json_t *row = json_loads(rows[i], 0, NULL);
        assert_int_equal(links_restore(f->core, i ? "a3" : "a2", row, &e), 0);
        json_decref(row);
    }
}

static void slot_open(struct model_slot *slot, struct deployment *d)
{
    *slot = (struct model_slot){.open = true, .facts = facts, .name = "model"};
    snprintf(slot->id, sizeof slot->id, "%064d", 7);
    *d = (struct deployment){.model = slot, .spec = {.options = json_object()}};
}

static void assert_same(double a, double b)
{
    assert_true(a >= b && a <= b);
}

static void assert_same_wire(struct cluster_wire a, struct cluster_wire b)
{
    assert_same(a.bandwidth_bytes_per_s, b.bandwidth_bytes_per_s);
    assert_same(a.latency_s, b.latency_s);
}

static void assert_same_cluster(const struct cluster *a, const struct cluster *b)
{
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_devices, b->n_devices);
    assert_int_equal(a->n_links, b->n_links);
    assert_int_equal(a->n_pools, b->n_pools);
    for (int i = 0; i < a->n_nodes; i++) {
        assert_string_equal(a->nodes[i].name, b->nodes[i].name);
        assert_int_equal(a->nodes[i].first_device, b->nodes[i].first_device);
        assert_int_equal(a->nodes[i].n_buses, b->nodes[i].n_buses);
        assert_int_equal(a->nodes[i].n_nics, b->nodes[i].n_nics);
        assert_same_wire(a->nodes[i].nics[0].wire, b->nodes[i].nics[0].wire);
        assert_int_equal(a->nodes[i].has_device_link, b->nodes[i].has_device_link);
        assert_same_wire(a->nodes[i].device_link, b->nodes[i].device_link);
    }
    for (int i = 0; i < a->n_devices; i++) {
        assert_string_equal(a->devices[i].id, b->devices[i].id);
        assert_string_equal(a->devices[i].kind, b->devices[i].kind);
        assert_int_equal(a->devices[i].node, b->devices[i].node);
        assert_int_equal(a->devices[i].bus, b->devices[i].bus);
        assert_same(a->devices[i].memory_bytes, b->devices[i].memory_bytes);
        assert_same(a->devices[i].busy_w, b->devices[i].busy_w);
    }
    for (int i = 0; i < a->n_links; i++) {
        assert_int_equal(a->links[i].from, b->links[i].from);
        assert_int_equal(a->links[i].to, b->links[i].to);
        assert_same_wire(a->links[i].wire, b->links[i].wire);
        assert_int_equal(a->links[i].reverse_only_implied, b->links[i].reverse_only_implied);
    }
    for (int i = 0; i < a->n_pools; i++) {
        assert_string_equal(a->pools[i].kind, b->pools[i].kind);
        assert_int_equal(a->pools[i].count, b->pools[i].count);
    }
}

TEST(the_cluster_is_what_topo_tells_people)
{
    struct fixture f;
    struct model_slot slot;
    struct deployment d;
    struct planner_inputs *in = NULL;
    struct cluster told = {0};
    struct err e = {0};
    fixture_open(&f);
    join_all(&f);
    slot_open(&slot, &d);
    json_t *document = topology_document(f.core);
    struct json_at at = {.file = "topo", .value = document};
    assert_int_equal(cluster_from_json(&at, &told, &e), 0);
    assert_int_equal(planner_inputs_get(f.core, &d, &in, &e), 0);
    assert_int_equal(in->cluster.n_links, 1 + 2 + 1 + 2);
    assert_same_cluster(&in->cluster, &told);
    planner_inputs_release(&in);
    planner_inputs_release(&d.inputs);
    cluster_free(&told);
    json_decref(document);
    json_decref(d.spec.options);
    fixture_close(&f);
}

/* An agent whose pool is small pays for frames on their way to it with its stages' memory. */
TEST(frames_on_their_way_are_planned_with_where_pools_are_small)
{
    static const char node[] =
        "{\"name\": \"x\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"k\", "
        "\"memory_bytes\": 6e9}], \"pool_bytes\": %d}";
    enum { AGENTS = 3 };
    const int pools[AGENTS] = {1 << 30, 1 << 20, 0};
    struct fixture f;
    struct model_slot slot;
    struct deployment d;
    struct planner_inputs *in = NULL;
    struct err e = {0};
    char text[200];
    fixture_open(&f);
    for (int i = 0; i < AGENTS; i++) {
        snprintf(text, sizeof text, node, pools[i]);
        join_on(&f, i, "box", text);
    }
    slot_open(&slot, &d);
    assert_int_equal(planner_inputs_get(f.core, &d, &in, &e), 0);
    uint64_t inputs = stage_inputs_bytes(AGENTS, deployment_spec_batch_tokens(&d.spec, &facts),
                                         (struct frame_row){facts.width, 0}, in->wire),
             more = stage_receiving_bytes(inputs, 1 << 20);
    double room[AGENTS], work[AGENTS];
    for (int i = 0; i < AGENTS; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        int k = planner_inputs_device(in, name, 0);
        room[i] = in->cluster.devices[k].memory_bytes;
        work[i] = in->workspace_bytes[k];
    }
    assert_true(more > inputs);
    assert_same(work[1] - work[0], (double)more);
    assert_same(room[0] - room[1], (double)more);
    assert_same(room[0], room[2]); /* it told nothing of its pool */
    planner_inputs_release(&in);
    planner_inputs_release(&d.inputs);
    json_decref(d.spec.options);
    fixture_close(&f);
}

static void measure(struct fixture *f, const struct model_slot *slot, const char *kind,
                    const char *tables)
{
    struct err e = {0};
    json_t *read = json_loads(tables, 0, NULL);
    assert_non_null(read);
    assert_int_equal(profiles_set(f->core, slot->id, kind, "auto", read, &e), 0);
}

static const struct profile_table *table_of(const struct profile *p, const char *kind,
                                            const char *class_name)
{
    int k = profile_find_kind(p, kind), i = 0;
    assert_true(k >= 0);
    while (strcmp(p->classes[i], class_name) != 0)
        i++;
    return profile_table_of(p, k, i);
}

TEST(what_was_measured_is_planned_with_and_the_rest_is_guessed)
{
    struct fixture f;
    struct model_slot slot;
    struct deployment d;
    struct planner_inputs *in = NULL;
    struct err e = {0};
    fixture_open(&f);
    join_on(&f, 0, "box", box_node);
    join_on(&f, 2, "m2", card_node);
    slot_open(&slot, &d);
    measure(&f, &slot, "k",
            "{\"block\": {\"slice\": [1, 64], \"prefix\": [0, 1024], \"seconds\": [[0.001, 0.0011],"
            " [0.01, 0.012]], \"step\": 12}, \"useful_slice\": {\"tokens\": 48}}");
    assert_int_equal(planner_inputs_get(f.core, &d, &in, &e), 0);
    const struct profile *p = &in->profile;
    assert_int_equal(p->n_layers, LAYERS);
    assert_int_equal(p->n_classes, 3);
    assert_int_equal(p->n_kinds, 2);
    assert_same(p->useful_slice_tokens, 48);
    assert_same(table_of(p, "k", "block")->seconds[3], 0.012);
    assert_int_equal(table_of(p, "k", "block")->step, 12);
    assert_int_equal(table_of(p, "k", "embed")->step, 0);
    /* Launch, then the slower of arithmetic and reading the weights. */
    assert_true(fabs(table_of(p, "k", "embed")->seconds[0] - (2e-5 + 1e8 / 1e10)) < 1e-9);
    assert_int_equal(table_of(p, "slow", "block")->n_x, 6);
    assert_same(p->layers[1].param_bytes, 200000000); /* packed as bf16 */
    planner_inputs_release(&in);
    planner_inputs_release(&d.inputs);
    json_decref(d.spec.options);
    fixture_close(&f);
}

/* Of 64 experts of 1 MB a token takes 4, so that a step of decode reads 4 MB, and a slice nearly
 * all. */
TEST(an_unmeasured_mixture_reads_the_experts_that_a_slice_wakes)
{
    struct fixture f;
    struct model_slot slot;
    struct deployment d;
    struct planner_inputs *in = NULL;
    struct err e = {0};
    struct layer_facts mixture[LAYERS];
    memcpy(mixture, layers, sizeof layers);
    mixture[3] = (struct layer_facts){.name = "b3",
                                      .class_name = "moe",
                                      .param_bytes = 65000000,
                                      .elements = 65000000,
                                      .output_bytes_per_token = 4096,
                                      .expert_bytes = 64000000,
                                      .experts = 64,
                                      .experts_used = 4};
    fixture_open(&f);
    join_on(&f, 2, "m2", card_node);
    slot_open(&slot, &d);
    slot.facts.layers = mixture;
    assert_int_equal(planner_inputs_get(f.core, &d, &in, &e), 0);
    const struct profile_table *t = table_of(&in->profile, "slow", "moe");
    assert_true(fabs(profile_table_at(t, 1, 0) - (2e-5 + 5e6 / 1e10)) < 1e-8);
    double sixteen = 1e6 + 64e6 * (1 - pow(60.0 / 64, 16));
    assert_true(fabs(profile_table_at(t, 16, 0) - (2e-5 + sixteen / 1e10)) < 1e-8);
    assert_true(profile_table_at(t, 512, 0) > 0.99 * (2e-5 + 65e6 / 1e10));
    assert_true(profile_table_at(t, 512, 0) < 2e-5 + 65e6 / 1e10);
    /* All of it is kept all the same. */
    assert_same(in->profile.layers[3].param_bytes, 130000000);
    planner_inputs_release(&in);
    planner_inputs_release(&d.inputs);
    json_decref(d.spec.options);
    fixture_close(&f);
}

TEST(layers_of_a_paced_profile_stand_where_the_models_do)
{
    struct fixture f;
    struct model_slot slot;
    struct deployment d;
    struct planner_inputs *in = NULL;
    struct err e = {0};
    fixture_open(&f);
    join_all(&f);
    slot_open(&slot, &d);
    measure(&f, &slot, "P100",
            "{\"lstm\": {\"slice\": [1, 512], \"prefix\": [0], \"seconds\": [[0.002], [0.2]]},"
            " \"batch\": 6, \"layers\": ["
            "{\"name\": \"l0\", \"class\": \"lstm\", \"param_bytes\": 5e8,"
            " \"state_bytes_per_token\": 11, \"output_bytes_per_token\": 8192},"
            "{\"class\": \"lstm\", \"resident_bytes\": 5e8, \"output_bytes_per_token\": 8192},"
            "{\"class\": \"lstm\", \"output_bytes_per_token\": 8192},"
            "{\"class\": \"lstm\", \"output_bytes_per_token\": 8192},"
            "{\"class\": \"lstm\", \"output_bytes_per_token\": 8192}]}");
    assert_int_equal(planner_inputs_get(f.core, &d, &in, &e), 0);
    assert_same(in->profile.batch, 6);
    assert_same(in->stands_for, 6);
    assert_int_equal(in->profile.n_classes, 1);
    assert_string_equal(in->profile.classes[0], "lstm");
    assert_string_equal(in->profile.layers[0].name, "l0");
    assert_same(in->profile.layers[0].param_bytes, 5e8);
    assert_same(in->state_bytes_per_token[0], 66); /* of as many sequences as it stands for */
    assert_same(in->resident_bytes[1], 5e8);
    planner_inputs_release(&in);
    planner_inputs_release(&d.inputs);
    json_decref(d.spec.options);
    fixture_close(&f);
}

TEST(scratch_of_kernels_is_planned_with_at_the_next_larger_batch_that_was_told)
{
    static const struct {
        const char *tables;
        double bytes;
    } cases[] = {
        {"{\"scratch\": {\"tokens\": [1, 512, 800], \"bytes\": [5, 7e6, 8e6]}}", 8e6},
        {"{\"scratch\": {\"tokens\": [1, 700, 800], \"bytes\": [5, 7e6, 8e6]}}", 7e6},
        {"{\"scratch\": {\"tokens\": [1, 350], \"bytes\": [5, 4e6]}}",
         8e6}, /* beyond all of them */
        {"{}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct model_slot slot;
        struct deployment d;
        struct planner_inputs *in = NULL;
        struct err e = {0};
        fixture_open(&f);
        join_on(&f, 0, "box", box_node);
        join_on(&f, 2, "m2", card_node);
        slot_open(&slot, &d);
        d.spec.slice = 700;
        measure(&f, &slot, "k", cases[i].tables);
        assert_int_equal(planner_inputs_get(f.core, &d, &in, &e), 0);
        int box = planner_inputs_device(in, "a0", 0), card = planner_inputs_device(in, "a2", 0);
        assert_same(in->workspace_bytes[box] - in->workspace_bytes[card], cases[i].bytes);
        assert_same(in->cluster.devices[card].memory_bytes - in->cluster.devices[box].memory_bytes,
                    cases[i].bytes - 2e9);
        planner_inputs_release(&in);
        planner_inputs_release(&d.inputs);
        json_decref(d.spec.options);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cluster_is_what_topo_tells_people),
        cmocka_unit_test(what_was_measured_is_planned_with_and_the_rest_is_guessed),
        cmocka_unit_test(scratch_of_kernels_is_planned_with_at_the_next_larger_batch_that_was_told),
        cmocka_unit_test(frames_on_their_way_are_planned_with_where_pools_are_small),
        cmocka_unit_test(an_unmeasured_mixture_reads_the_experts_that_a_slice_wakes),
        cmocka_unit_test(layers_of_a_paced_profile_stand_where_the_models_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
