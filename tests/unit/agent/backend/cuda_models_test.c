/* Whole models on the cuda backend, in stages: their logits and tokens are those of the plain one.
 */
#include "agent/engine/local.h"
#include "model/model.h"
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { MODEL_LOGITS = 2, MODEL_TOKENS = 2, MODEL_PATH = 512 };

/* Logits of a prompt in slices through several stages, and what follows it. */
static void model_run(struct device *d, struct model *m, enum stage_compute compute, float *logits,
                      uint32_t *tokens)
{
    static const uint32_t prompt[] = {1, 40, 52, 9, 77, 31, 5, 18, 60, 91};
    enum { PROMPT = sizeof prompt / sizeof *prompt };
    const struct local_config c = {
        .model = m, .device = d, .n_stages = 2, .slice = 9, .compute = compute, .max_tokens = 64};
    struct local_chain *chain;
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        if (local_chain_open(&c, &chain, &e) < 0)
            fail_msg("%s", e.text);
        int rc = i ? local_chain_greedy(chain, prompt, PROMPT, tokens, MODEL_TOKENS, &e)
                   : local_chain_run(chain, prompt, PROMPT, MODEL_LOGITS, logits, &e);
        if (rc < 0)
            fail_msg("%s", e.text);
        local_chain_close(&chain);
    }
}

/* Float32 throughout: to rounding. As the backend chooses (integers, bf16, KV in f16): nearly. */
static void model_compare(const char *path, bool as_it_chooses)
{
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(0)};
    struct model *m;
    struct err e = {0};
    uint32_t tokens[2][MODEL_TOKENS];
    float *logits[2], greatest = 0;
    if (model_open(path, &m, &e) < 0)
        fail_msg("%s", e.text);
    size_t n = MODEL_LOGITS * graph_head_width(model_graph(m));
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (int k = 0; k < 2; k++) {
        logits[k] = calloc(n, sizeof **logits);
        model_run(devices[k], m, COMPUTE_F32, logits[k], tokens[k]);
    }
    for (size_t i = 0; i < n; i++)
        greatest = fmaxf(greatest, fabsf(logits[1][i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(logits[0][i] - logits[1][i]) <= 1e-5f * greatest))
            fail_msg("%s: logit %zu is %g instead of %g", path, i, (double)logits[0][i],
                     (double)logits[1][i]);
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    if (as_it_chooses)
        model_run(devices[0], m, COMPUTE_AUTO, logits[0], tokens[0]);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(logits[0][i] - logits[1][i]) <= 0.05f * greatest))
            fail_msg("%s: logit %zu is %g instead of about %g", path, i, (double)logits[0][i],
                     (double)logits[1][i]);
    for (int k = 0; k < 2; k++) {
        free(logits[k]);
        device_close(&devices[k]);
    }
    model_close(&m);
}

TEST(a_model_in_stages_gives_the_tokens_of_the_reference)
{
    model_compare("examples/demo-model/demo-q8_0.gguf", true);
}

/* Small ones of random weights, where they are: mixtures of experts, windows, soft caps, sinks,
 * heads with matrices of their own. */
TEST(golden_models_of_each_family_give_the_tokens_of_the_reference)
{
    static const char *const families[] = {
        "deepseek2/model-f32", "gemma2/model-f32",    "gemma3/model-f32",  "gpt_oss/model-mxfp4",
        "gpt_oss/model-bf16",  "granite/model-f32",   "mixtral/model-f32", "phi3/model-f32",
        "qwen2_moe/model-f32", "qwen3_moe/model-f32",
    };
    const char *folder = getenv("HP_GOLDEN_FAMILIES");
    char path[MODEL_PATH];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        snprintf(path, sizeof path, "%s/%s.gguf", folder ? folder : "../shared/golden-families",
                 families[i]);
        if (access(path, R_OK) == 0)
            model_compare(path, false);
    }
}

/* A prompt and then each of its tokens by itself, `lost`: when the GPU falls off the bus in one of
 * these steps; 0: never. What the last step came to. */
enum { STEPS = 9 };
static int steps_run(struct model *m, uint32_t n_prompt, float *logits, int lost_step,
                     uint64_t lost, struct err *e)
{
    void (*lose)(uint64_t after) = NULL;
    uint32_t prompt[20];
    struct device *d = cuda_open(0);
    const struct local_config c = {.model = m, .device = d, .n_stages = 1, .max_tokens = 64};
    struct local_chain *chain;
    size_t width = graph_head_width(model_graph(m));
    *(void **)&lose = standin_symbol("cuda_on_cpu_lose");
    for (uint32_t i = 0; i < 20; i++)
        prompt[i] = 3 + i * 7 % 90;
    if (local_chain_open(&c, &chain, e) < 0)
        fail_msg("%s", e->text);
    int rc = local_chain_run(chain, prompt, n_prompt, 1, logits, e);
    for (int i = 0; i < STEPS && rc == 0; i++) {
        if (lost && i == lost_step)
            lose(lost);
        rc = local_chain_run(chain, &prompt[i], 1, 1, logits + (size_t)i * width, e);
    }
    local_chain_close(&chain);
    device_close(&d);
    return rc;
}

/* The first step is put on the stream as it is, the second one is kept, all others are one launch:
 * of the layers and of the head, also while it is found out which way their products go. */
TEST(a_step_of_a_model_is_started_as_one)
{
    void (*restart)(void) = NULL;
    uint64_t (*launches)(void) = NULL;
    struct model *m;
    struct err e = {0};
    float *logits[2];
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&launches = standin_symbol("cuda_on_cpu_graph_launches");
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    size_t n = STEPS * graph_head_width(model_graph(m));
    for (int kept = 0; kept < 2; kept++) {
        setenv("CUDA_ON_CPU", kept ? "graphs=1" : "graphs=0", 1);
        restart();
        uint64_t before = launches();
        logits[kept] = calloc(n, sizeof **logits);
        if (steps_run(m, 16, logits[kept], 0, 0, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(launches() - before, kept ? STEPS - 1 : 0);
    }
    assert_memory_equal(logits[0], logits[1], n * sizeof *logits[0]);
    unsetenv("CUDA_ON_CPU");
    restart();
    free(logits[0]), free(logits[1]);
    model_close(&m);
}

/* While steps are kept, while they are made ready, and while they run as one. */
TEST(a_gpu_that_is_lost_while_steps_are_kept_is_an_error)
{
    static const uint64_t calls[] = {1, 7, 40};
    void (*restart)(void) = NULL;
    struct model *m;
    struct err e = {0};
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    float *logits = calloc(STEPS * graph_head_width(model_graph(m)), sizeof *logits);
    for (int step = 1; step < 3; step++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            struct err lost = {0};
            assert_int_equal(steps_run(m, 1, logits, step, calls[i], &lost), HP_EDEVICE);
            if (!strstr(lost.text, "illegal memory access"))
                fail_msg("step %d, call %zu: %s", step, i, lost.text);
            restart();
        }
    free(logits);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_in_stages_gives_the_tokens_of_the_reference),
        cmocka_unit_test(golden_models_of_each_family_give_the_tokens_of_the_reference),
        cmocka_unit_test(a_step_of_a_model_is_started_as_one),
        cmocka_unit_test(a_gpu_that_is_lost_while_steps_are_kept_is_an_error),
    };
    return cmocka_run_group_tests_name("cuda_models", tests, NULL, NULL);
}
