/* What a slot holds bears that any of its allocations fails: loaded, warmed, run and unloaded
 * through its table. */
#include "agent/engine/slot.h"
#include "common/log.h"
#include "tests/unit/agent/engine/small_graph.h"
#include "tests/unit/faults.h"

static struct device *device;
static struct small_graph *small;
static struct model *demo;

static int slot_used(const struct slot_config *c, enum slot_kind kind, const struct slot_batch *b)
{
    const struct slot_table *t = slot_table_of(kind);
    struct slot *s = NULL;
    struct err e = {0};
    uint64_t before = device->backend->memory_free(device);
    int rc = t->load(c, &s, &e);
    if (rc < 0)
        return s ? HP_EBUG : rc;
    rc = t->warm(s, &e);
    if (rc == 0 && kind == SLOT_STAGE)
        rc = t->state_open(s, 1, 8, 8, 0, 0, &e);
    rc = rc < 0 ? rc : t->submit(s, b, &e);
    rc = rc < 0 ? rc : t->complete(s, &e);
    t->unload(&s);
    return rc == 0 && device->backend->memory_free(device) != before ? HP_EBUG : rc;
}

static int graph_used(void *ctx)
{
    static float pixels[FIXED_ROWS * FIXED_IN], beside[FIXED_ROWS * FIXED_OUT],
        result[FIXED_ROWS * FIXED_OUT];
    static const struct fixed_value in[] = {{"pixels", DTYPE_F32, pixels, sizeof pixels},
                                            {"beside", DTYPE_F32, beside, sizeof beside}},
                                    out = {FIXED_RESULT, DTYPE_F32, result, sizeof result};
    struct slot_config c = {
        .graph = &small->graph,
        .stage = {.end_layer = small->graph.n_layers, .device = device, .compute = COMPUTE_F32}};
    struct slot_batch b = {.inputs = in, .n_inputs = 2, .outputs = &out, .n_outputs = 1};
    (void)ctx;
    return slot_used(&c, SLOT_GRAPH, &b);
}

/* One layer in the middle, so that it is quick. */
static int stage_used(void *ctx)
{
    static float rows[1 << 12];
    struct batch_run run = {.sequence = 1, .n_tokens = 2};
    struct slot_config c = {.stage = {.model = demo,
                                      .first_layer = 2,
                                      .end_layer = 3,
                                      .device = device,
                                      .kv_tokens = 64,
                                      .max_sequences = 2,
                                      .max_batch_tokens = 4}};
    struct slot_batch b = {.runs = &run, .n_runs = 1, .input = rows, .output = rows + (1 << 11)};
    (void)ctx;
    assert(2 * graph_border_width(model_graph(demo), 2) <= 1 << 11);
    return slot_used(&c, SLOT_STAGE, &b);
}

TEST(slots_bear_failing_allocations)
{
    struct device_config c = {.backend = "plain", .memory_bytes = 1 << 26};
    log_set_level(LOG_ERROR);
    assert_int_equal(device_open(&c, &device, NULL), 0);
    assert_int_equal(model_open("examples/demo-model/demo-q8_0.gguf", &demo, NULL), 0);
    small = small_fixed_make(3);
    faults_each("graph", graph_used, NULL);
    faults_each("stage", stage_used, NULL);
    small_graph_free(&small);
    model_close(&demo);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots_bear_failing_allocations)};
    return cmocka_run_group_tests_name("slot_faults", tests, NULL, NULL);
}
