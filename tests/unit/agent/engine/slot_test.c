/* What a slot does by itself, before anybody gives it a batch. */
#include "agent/backend/backend.h"
#include "agent/engine/slot.h"
#include "common/log.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/small_graph.h"

/* A model with a table of five positions is warmed up by five tokens, not by sixteen. */
TEST(a_model_with_few_positions_is_warmed_up_within_them)
{
    struct device_config d = {.backend = "plain", .memory_bytes = 1 << 26};
    struct device *device;
    struct model *demo;
    struct err e = {0};
    struct slot *s = NULL;
    const struct slot_table *t = slot_table_of(SLOT_STAGE);
    log_set_level(LOG_ERROR);
    assert_int_equal(device_open(&d, &device, NULL), 0);
    assert_int_equal(model_open("examples/demo-model/demo-q8_0.gguf", &demo, NULL), 0);
    struct small_graph *g = small_placed_make(model_config(demo)->vocabulary, 5);
    for (uint32_t batch = 4; batch <= 64; batch *= 4) {
        struct slot_config c = {.graph = &g->graph,
                                .stage = {.model = demo,
                                          .end_layer = g->graph.n_layers,
                                          .device = device,
                                          .compute = COMPUTE_F32,
                                          .kv_tokens = 64,
                                          .max_sequences = 2,
                                          .max_batch_tokens = batch}};
        assert_int_equal(t->load(&c, &s, &e), 0);
        int rc = t->warm(s, &e);
        assert_string_equal(e.text, "");
        assert_int_equal(rc, 0);
        t->unload(&s);
    }
    small_graph_free(&g);
    model_close(&demo);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_with_few_positions_is_warmed_up_within_them),
    };
    return cmocka_run_group_tests_name("slot", tests, NULL, NULL);
}
