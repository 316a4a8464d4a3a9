#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>

#include "agent/discover.h"
#include "agent/nvml.h"
#include "common/cluster.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"

/* Two sockets. Under the first, behind one switch: GPUs at 19:00 and 1b:00, and eth1. Under the
 * second: a GPU at b1:00 and eth0 at root ports of their own, and a GPU at b3:00 that shares a root
 * port with eth2. */
static const char tree[] = "tests/unit/agent/trees/two_sockets.xml";

/* ---- a driver's library of our own ---- */

static const struct {
    unsigned bus, generation_now;
} fake_gpus[] = {
    {0x19, 1}, {0x1b, 5}, {0xb1, 5}, {0xb3, 5}, {0xee, 5}}; /* the last is not in the tree */
enum { FAKE_GPUS = sizeof fake_gpus / sizeof *fake_gpus };

static size_t index_of(void *gpu)
{
    return (size_t)((const char *)gpu - (const char *)fake_gpus) / sizeof *fake_gpus;
}
static int fake_driver(char *text, unsigned size)
{
    return snprintf(text, size, "550.54.15") > 0 ? 0 : 1;
}
static int fake_count(unsigned *n)
{
    *n = FAKE_GPUS;
    return 0;
}
static int fake_by_index(unsigned i, void **gpu)
{
    *gpu = (void *)(uintptr_t)&fake_gpus[i];
    return i < FAKE_GPUS ? 0 : 2;
}
static int fake_name(void *gpu, char *text, unsigned size)
{
    return snprintf(text, size, "NVIDIA H100 80GB HBM3%s", index_of(gpu) == 4 ? " <\"x\">" : "") > 0
               ? 0
               : 1;
}
static int fake_memory(void *gpu, struct nvml_memory *out)
{
    (void)gpu;
    *out = (struct nvml_memory){85899345920ull, 0, 0};
    return 0;
}
static int fake_pci(void *gpu, struct nvml_pci *out)
{
    *out = (struct nvml_pci){.bus = fake_gpus[index_of(gpu)].bus};
    return 0;
}
static int fake_now(void *gpu, unsigned *out)
{
    *out = fake_gpus[index_of(gpu)].generation_now;
    return 0;
}
static int fake_best(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 5;
    return 0;
}
static int fake_width(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 16;
    return 0;
}
static int fake_unknown(void *gpu, unsigned *out)
{
    (void)gpu;
    (void)out;
    return 3;
}
/* The first two are joined. */
static int fake_peers(void *a, void *b, int by, int *status)
{
    *status = by == NVML_P2P_BY_NVLINK && index_of(a) < 2 && index_of(b) < 2 ? NVML_P2P_OK : 1;
    return 0;
}
static int fake_link(void *gpu, unsigned link, int *active)
{
    *active = index_of(gpu) < 2 && link < 12;
    return link < 12 ? 0 : 2;
}

static const struct nvml fake = {.driver_version = fake_driver,
                                 .count = fake_count,
                                 .by_index = fake_by_index,
                                 .name = fake_name,
                                 .memory = fake_memory,
                                 .pci = fake_pci,
                                 .generation_now = fake_now,
                                 .generation_best = fake_best,
                                 .width_now = fake_width,
                                 .width_best = fake_width,
                                 .peer_status = fake_peers,
                                 .link_state = fake_link};

/* ---- the node ---- */

static void net_folder_make(char folder[256])
{
    static const char *const names[] = {"eth0", "eth1", "eth2"};
    test_folder_make(folder);
    for (int i = 0; i < 3; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkdir(path, 0755), 0);
        strcat(path, "/type");
        FILE *f = fopen(path, "w");
        fputs("1\n", f);
        fclose(f);
    }
}

static json_t *node_of(const struct discover_box *given, const char *file, const char *synthetic)
{
    char folder[256], kind[DISCOVER_KIND];
    struct discover_share share = {
        .cores = {0, 1}, .n_cores = 2, .n_threads = 2, .memory_bytes = 1 << 30};
    struct buffer text = {0};
    struct err e = {0};
    net_folder_make(folder);
    struct discover_box box = {
        .tree_file = file, .tree_synthetic = synthetic, .net_folder = folder, .nvml = given->nvml};
    if (discover_node_of(&box, "n", &share, NULL, &text, &kind, &e) < 0)
        fail_msg("%s", e.text);
    json_t *node = json_loads(buffer_cstr(&text), 0, NULL);
    assert_non_null(node);
    buffer_free(&text);
    test_folder_remove(folder);
    return node;
}

static const char *text_of(const json_t *node, const char *list, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(node, list), i), key));
}
static json_int_t number_of(const json_t *node, const char *list, size_t i, const char *key)
{
    return json_integer_value(json_object_get(json_array_get(json_object_get(node, list), i), key));
}

/* What the two share, by `near`; NULL: nothing. */
static const char *shared(const json_t *node, const char *key, const char *other,
                          const char *device)
{
    const json_t *o;
    size_t i;
    json_array_foreach(json_object_get(node, "near"), i,
                       o) if (json_object_get(o, key) &&
                              strcmp(json_string_value(json_object_get(o, key)), other) == 0 &&
                              strcmp(json_string_value(json_object_get(o, "device")), device) ==
                                  0) return json_string_value(json_object_get(o, "share"));
    return NULL;
}

TEST(gpus_are_listed_with_what_their_driver_says)
{
    json_t *node = node_of(&(struct discover_box){.nvml = &fake}, tree, NULL);
    assert_int_equal(json_array_size(json_object_get(node, "devices")), 1 + FAKE_GPUS);
    assert_string_equal(text_of(node, "devices", 0, "name"), "cpu");
    assert_string_equal(text_of(node, "devices", 1, "name"), "gpu0");
    assert_string_equal(text_of(node, "devices", 1, "kind"), "NVIDIA-H100-80GB-HBM3");
    assert_string_equal(text_of(node, "devices", 5, "kind"), "NVIDIA-H100-80GB-HBM3-x");
    assert_string_equal(text_of(node, "devices", 1, "pci"), "0000:19:00.0");
    assert_string_equal(text_of(node, "devices", 1, "driver"), "550.54.15");
    assert_int_equal(number_of(node, "devices", 1, "pcie_generation"), 1);
    assert_int_equal(number_of(node, "devices", 1, "pcie_best_generation"), 5);
    assert_int_equal(number_of(node, "devices", 1, "pcie_best_width"), 16);
    assert_int_equal(number_of(node, "devices", 1, "nvlinks"), 12);
    const json_t *peers =
        json_object_get(json_array_get(json_object_get(node, "devices"), 1), "nvlink_peers");
    assert_int_equal(json_array_size(peers), 1);
    assert_string_equal(json_string_value(json_array_get(peers, 0)), "gpu1");
    assert_null(
        json_object_get(json_array_get(json_object_get(node, "devices"), 3), "nvlink_peers"));
    assert_true(json_is_false(
        json_object_get(json_array_get(json_object_get(node, "devices"), 1), "usable")));
    assert_non_null(text_of(node, "devices", 1, "why"));
    json_decref(node);
}

TEST(who_shares_a_switch_a_port_or_a_bridge_is_told)
{
    static const struct {
        const char *key, *other, *device, *share;
    } cases[] = {{"nic", "eth1", "gpu0", "switch"},
                 {"nic", "eth1", "gpu1", "switch"},
                 {"nic", "eth0", "gpu2", "host bridge"},
                 {"nic", "eth2", "gpu3", "root port"},
                 {"nic", "eth0", "gpu0", NULL},
                 {"nic", "eth1", "gpu2", NULL},
                 {"nic", "eth0", "gpu3", "host bridge"},
                 {"other_device", "gpu0", "gpu1", "switch"},
                 {"other_device", "gpu2", "gpu3", "host bridge"},
                 {"other_device", "gpu0", "gpu2", NULL}};
    json_t *node = node_of(&(struct discover_box){.nvml = &fake}, tree, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *share = shared(node, cases[i].key, cases[i].other, cases[i].device);
        if (!share != !cases[i].share || (share && strcmp(share, cases[i].share) != 0))
            fail_msg("%s and %s share %s, not %s", cases[i].other, cases[i].device,
                     share ? share : "nothing", cases[i].share ? cases[i].share : "nothing");
    }
    /* Those behind one root port share a bus; each is as fast as the best of its link. */
    assert_int_equal(json_array_size(json_object_get(node, "buses")), 3);
    assert_string_equal(text_of(node, "devices", 1, "bus"), text_of(node, "devices", 2, "bus"));
    assert_string_not_equal(text_of(node, "devices", 1, "bus"), text_of(node, "devices", 3, "bus"));
    assert_true(json_number_value(json_object_get(json_array_get(json_object_get(node, "buses"), 0),
                                                  "bandwidth_bytes_per_s")) > 6e10);
    assert_int_equal(number_of(node, "devices", 1, "numa_node"), 0);
    assert_int_equal(number_of(node, "devices", 4, "numa_node"), 1);
    assert_int_equal(number_of(node, "nics", 0, "numa_node"), 1);
    const json_t *far =
        json_array_get(json_object_get(json_object_get(node, "numa"), "distances"), 0);
    assert_int_equal(json_integer_value(json_array_get(far, 0)), 10);
    assert_int_equal(json_integer_value(json_array_get(far, 1)), 21);
    json_decref(node);
}

TEST(gpus_without_the_library_are_told_from_pci_alone)
{
    json_t *node = node_of(&(struct discover_box){.nvml = NULL}, tree, NULL);
    assert_int_equal(json_array_size(json_object_get(node, "devices")), 5);
    assert_non_null(strstr(text_of(node, "devices", 1, "why"), "libnvidia-ml"));
    assert_string_equal(shared(node, "nic", "eth2", "gpu3"), "root port");
    json_decref(node);
}

TEST(planners_skip_what_nothing_computes_on)
{
    json_t *node = node_of(&(struct discover_box){.nvml = &fake}, tree, NULL);
    json_t *root = json_pack("{s:s, s:[O]}", "format", "hp-cluster/1", "nodes", node);
    struct json_at at = {.file = "node", .value = root};
    struct cluster c = {0};
    struct err e = {0};
    if (cluster_from_json(&at, &c, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(c.n_devices, 1);
    assert_string_equal(c.devices[0].id, "n/cpu");
    cluster_free(&c);
    json_decref(root);
    json_decref(node);
}

TEST(boxes_without_gpus_have_none)
{
    static const char *const trees[] = {"node:1 core:2 pu:1", "node:2 core:4 pu:2",
                                        "package:2 l3:2 core:4 pu:1"};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        json_t *node = node_of(&(struct discover_box){.nvml = NULL}, NULL, trees[i]);
        assert_int_equal(json_array_size(json_object_get(node, "devices")), 1);
        assert_null(json_object_get(node, "near"));
        assert_null(json_object_get(node, "buses"));
        assert_int_equal(json_object_get(node, "numa") != NULL, i == 1);
        json_decref(node);
    }
}

TEST(functions_that_fail_leave_out_what_they_would_have_said)
{
    struct nvml poor = fake;
    poor.generation_now = poor.generation_best = poor.width_best = fake_unknown;
    poor.peer_status = NULL;
    poor.link_state = NULL;
    json_t *node = node_of(&(struct discover_box){.nvml = &poor}, tree, NULL);
    assert_int_equal(json_array_size(json_object_get(node, "devices")), 1 + FAKE_GPUS);
    assert_null(
        json_object_get(json_array_get(json_object_get(node, "devices"), 1), "pcie_generation"));
    assert_null(
        json_object_get(json_array_get(json_object_get(node, "devices"), 1), "nvlink_peers"));
    /* hwloc's link speed stands in. */
    assert_true(json_number_value(json_object_get(json_array_get(json_object_get(node, "buses"), 0),
                                                  "bandwidth_bytes_per_s")) > 6e10);
    json_decref(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_listed_with_what_their_driver_says),
        cmocka_unit_test(who_shares_a_switch_a_port_or_a_bridge_is_told),
        cmocka_unit_test(gpus_without_the_library_are_told_from_pci_alone),
        cmocka_unit_test(planners_skip_what_nothing_computes_on),
        cmocka_unit_test(boxes_without_gpus_have_none),
        cmocka_unit_test(functions_that_fail_leave_out_what_they_would_have_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
