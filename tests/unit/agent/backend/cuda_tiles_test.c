/* Attention in tiles on the stand-in as GPUs of each generation do it: Turing, which has no
 * asynchronous copies, those with less shared memory, and Hopper, whose warpgroups multiply what
 * lies in shared memory. */
#include "tests/unit/agent/backend/cuda_attention_fixture.h"

/* One turn and several, tiles that are full and not, pages that nobody sees, all at edges of
 * pages and tiles and beside them. */
static const struct cuda_attention_case shapes[] = {
    {{.heads = 2, .kv_heads = 1, .head_dim = 64}, KV_F16, 0, 16, 0},
    {{.heads = 1, .kv_heads = 1, .head_dim = 64}, KV_F16, 384, 128, 0},
    {{.heads = 2, .kv_heads = 2, .head_dim = 64, .window = 30}, KV_F16, 250, 70, 0},
    {{.heads = 2, .kv_heads = 1, .head_dim = 64, .window = 3, .cap = 2}, KV_Q8_0, 66, 66, 0.5f},
    {{.heads = 1, .kv_heads = 1, .head_dim = 64, .whole = true}, KV_F16, 0, 140, 0},
    {{.heads = 1, .kv_heads = 1, .head_dim = 96, .scale = 2}, KV_F16, 60, 137, -4},
    {{.heads = 1, .kv_heads = 1, .head_dim = 128}, KV_F16, 400, 63, 0},
    {{.heads = 1, .kv_heads = 1, .head_dim = 128, .window = 200}, KV_F16, 255, 65, 1},
    {{.heads = 2, .kv_heads = 1, .head_dim = 128, .cap = 3}, KV_Q8_0, 129, 129, 0},
    {{.heads = 1, .kv_heads = 1, .head_dim = 256, .window = 100}, KV_F16, 190, 66, 1},
    {{.heads = 1, .kv_heads = 1, .head_dim = 256, .cap = 5}, KV_Q8_0, 3, 66, 0},
};

static void shapes_compare(const char *settings)
{
    void (*restart)(void) = NULL;
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    setenv("CUDA_ON_CPU", settings, 1);
    restart();
    cuda_attention_compare(shapes, sizeof shapes / sizeof *shapes);
}

TEST(tiles_of_turing_are_those_of_the_reference)
{
    shapes_compare("capability=75");
}

TEST(tiles_of_gpus_with_less_shared_memory_are_those_of_the_reference)
{
    shapes_compare("capability=86");
}

TEST(tiles_of_hopper_are_those_of_the_reference)
{
    shapes_compare("capability=90");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_of_turing_are_those_of_the_reference),
        cmocka_unit_test(tiles_of_gpus_with_less_shared_memory_are_those_of_the_reference),
        cmocka_unit_test(tiles_of_hopper_are_those_of_the_reference),
    };
    return cmocka_run_group_tests_name("cuda_tiles", tests, NULL, NULL);
}
