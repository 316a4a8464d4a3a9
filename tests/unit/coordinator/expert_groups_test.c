/* Mixtures whose blocks are larger than any agent. */
#include <math.h>

#include "coordinator/expert_groups.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/profiles.h"
#include "tests/unit/coordinator/placement_fixture.h"

/* Two blocks with 10 MB of attention and 1 GB of eight experts. */
enum { BLOCKS = 2, EXPERTS = 8, PARTS_MOST = BLOCKS * (1 + 16) };
#define EXPERT_BYTES 125000000ull

/* As the model says; groups are made of EXPERTS. */
static int experts_told;

static struct layer_facts mixture_layer(const char *name, const char *class_name, uint64_t bytes,
                                        uint64_t expert_bytes)
{
    return (struct layer_facts){.name = name,
                                .class_name = class_name,
                                .param_bytes = bytes,
                                .elements = bytes,
                                .kept_bytes = bytes,
                                .output_bytes_per_token = 4096,
                                .flops_per_token = 2e8,
                                .expert_bytes = expert_bytes,
                                .experts = expert_bytes ? experts_told : 0,
                                .experts_used = 2};
}

/* As model_heads.c would describe it. */
static const struct model_facts *mixture_facts(uint32_t groups)
{
    static struct layer_facts parted[PARTS_MOST];
    static struct profile_part parts[PARTS_MOST];
    static struct model_facts divided;
    int n = 0;
    divided = facts;
    for (int block = 0; block < BLOCKS; block++) {
        parts[n] = (struct profile_part){2 * block, "attn", 1, 1};
        parted[n++] = mixture_layer("attn", "attn", 10000000, 0);
        for (uint32_t g = 0; g < groups; g++) {
            uint64_t own =
                EXPERT_BYTES * (EXPERTS * (g + 1) / groups - EXPERTS * (uint64_t)g / groups);
            parts[n] = (struct profile_part){2 * block + 1, "moe",
                                             (double)own / (double)(EXPERTS * EXPERT_BYTES),
                                             g + 1 < groups ? 2.5 : 1};
            parted[n++] = mixture_layer("part",
                                        groups == 1 ? "moe"
                                        : g         ? "moe/n"
                                                    : "moe.first/n",
                                        own, own);
        }
    }
    divided.layers = parted;
    divided.n_layers = n;
    divided.parts = groups > 1 ? parts : NULL;
    return &divided;
}

/* The deployment "x" over so many agents of so much memory each, or why there is none. */
static struct deployment *mixture_deploy(struct fixture *f, int agents, double memory_bytes,
                                         const char *options, const struct message_answer **answer)
{
    static struct model_facts whole;
    static struct layer_facts layers_of_whole[PARTS_MOST];
    whole = *mixture_facts(1);
    memcpy(layers_of_whole, whole.layers, (size_t)whole.n_layers * sizeof *layers_of_whole);
    whole.layers = layers_of_whole;
    fixture_open(f);
    f->divided = mixture_facts;
    for (int i = 0; i < agents; i++)
        fixture_agent(f, i, "k", memory_bytes);
    struct buffer blob = {0};
    char arguments[600];
    manifest(&blob);
    f->facts = &whole;
    snprintf(arguments, sizeof arguments, "{\"name\": \"x\", \"options\": %s}", options);
    const struct message_answer *a = fixture_ask(f, "deploy", arguments, &blob);
    buffer_free(&blob);
    if (answer)
        *answer = a;
    return deployment_find(f->core, "x");
}

static int prepare_mixture(void **state)
{
    experts_told = EXPERTS;
    return prepare_facts(state);
}

/* Every stage is told the deployment's numbers. */
static void stages_check(struct fixture *f, const struct deployment *d, double memory_bytes,
                         uint32_t groups)
{
    assert_int_equal(d->model->expert_groups, groups);
    assert_int_equal(d->stages[d->n_stages - 1].end_layer, d->model->facts.n_layers);
    for (int k = 0; k < d->n_stages; k++) {
        assert_true(d->stages[k].memory_bytes <= memory_bytes);
        const struct message *p = fixture_last(
            f, (uint64_t)(10 + atoi(d->stages[k].agent->name + 1)), MESSAGE_STAGE_PREPARE);
        assert_int_equal(p->u.stage_prepare.expert_groups, groups);
        assert_int_equal(p->u.stage_prepare.end_layer, d->stages[k].end_layer);
    }
}

TEST(experts_of_a_block_that_fits_no_agent_are_shared_out)
{
    static const struct {
        int agents;
        double memory_bytes;
        uint32_t groups;
    } cases[] = {{2, 1.2e9, 1}, {4, 0.7e9, 2}, {8, 0.35e9, 4}, {16, 0.2e9, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct deployment *d = mixture_deploy(&f, cases[i].agents, cases[i].memory_bytes,
                                              "{\"max_context\": 128}", NULL);
        assert_non_null(d);
        stages_check(&f, d, cases[i].memory_bytes, cases[i].groups);
        fixture_close(&f);
    }
}

TEST(experts_that_bf16_could_not_count_are_shared_out_too)
{
    struct fixture f;
    experts_told = 512;
    struct deployment *d =
        mixture_deploy(&f, 4, 0.7e9, "{\"max_context\": 128, \"wire\": \"bf16\"}", NULL);
    assert_non_null(d);
    stages_check(&f, d, 0.7e9, 2);
    fixture_close(&f);
}

TEST(layers_that_are_given_are_those_of_the_groups_asked_for)
{
    static const char plan[] =
        "{\"max_context\": 128, \"plan\": {\"format\": \"hp-plan/1\", \"kind\": \"pipeline\", "
        "\"expert_groups\": 4, \"stages\": [{\"device\": \"a0/cpu\", \"layers\": [0, 3]}, "
        "{\"device\": \"a1/cpu\", \"layers\": [3, 5]}, {\"device\": \"a2/cpu\", \"layers\": [5, "
        "8]}, "
        "{\"device\": \"a3/cpu\", \"layers\": [8, 10]}]}}";
    static const char *const options[] = {
        "{\"max_context\": 128, \"expert_groups\": 4, \"layers\": "
        "\"0-2:a0,3-4:a1,5-7:a2,8-9:a3\"}",
        plan};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct fixture f;
        struct deployment *d = mixture_deploy(&f, 4, 0.7e9, options[i], NULL);
        assert_non_null(d);
        stages_check(&f, d, 0.7e9, 4);
        assert_int_equal(d->n_stages, 4);
        assert_int_equal(d->stages[1].first_layer, 3);
        assert_int_equal(json_integer_value(json_object_get(d->plan->document, "expert_groups")),
                         4);
        fixture_close(&f);
    }
}

TEST(groups_that_were_asked_for_are_not_divided_further)
{
    static const struct {
        const char *options, *says;
    } cases[] = {
        {"{\"max_context\": 128, \"expert_groups\": 2}", "no cut between layers fits each of them"},
        {"{\"max_context\": 128, \"expert_groups\": 1}", "no cut between layers fits each of them"},
        {"{\"max_context\": 128, \"expert_groups\": 9}", "this model's blocks have 8 experts"},
        {"{\"max_context\": 128, \"expert_groups\": 17}", "--expert-groups 17 is more than 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        const struct message_answer *a;
        assert_null(mixture_deploy(&f, 8, 0.35e9, cases[i].options, &a));
        if (!strstr(a->text, cases[i].says))
            fail_msg("%zu: %s, \"%s\"", i, a->code, a->text);
        fixture_close(&f);
    }
}

TEST(a_coordinator_that_starts_again_numbers_layers_as_before)
{
    struct fixture f;
    struct deployment *d = mixture_deploy(&f, 4, 0.7e9, "{\"max_context\": 128}", NULL);
    assert_non_null(d);
    int n = d->n_stages, end = d->stages[0].end_layer;
    fixture_restart(&f);
    d = deployment_find(f.core, "x");
    assert_non_null(d);
    assert_int_equal(d->model->expert_groups, 2);
    assert_true(d->model->open);
    assert_int_equal(d->n_stages, n);
    assert_int_equal(d->stages[0].end_layer, end);
    fixture_close(&f);
}

TEST(where_no_division_helps_the_model_is_whole_and_it_is_said_why)
{
    static const struct {
        int agents;
        double memory_bytes;
        const char *options, *says;
    } cases[] = {
        {4, 0.3e9, "{\"max_context\": 128}", "bytes are missing"},
        {20, 0.12e9, "{\"max_context\": 128}", "no cut between layers fits each of them"},
        {4, 0.7e9, "{\"max_context\": 128, \"layers\": \"0-1:a0,2-3:a1\"}", "layers 0-1 need"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        const struct message_answer *a;
        assert_null(
            mixture_deploy(&f, cases[i].agents, cases[i].memory_bytes, cases[i].options, &a));
        if (strcmp(a->code, "infeasible") != 0 || !strstr(a->text, cases[i].says))
            fail_msg("%zu: %s, \"%s\"", i, a->code, a->text);
        assert_int_equal(f.core->n_models, 0); /* divided ones are closed with it */
        fixture_close(&f);
    }
}

/* By what was measured of whole blocks, and its part of them. */
TEST(a_part_of_a_block_takes_its_part_of_the_blocks_time)
{
    struct fixture f;
    struct planner_inputs *in = NULL;
    struct err e = {0};
    json_t *tables = json_loads("{\"moe\": {\"slice\": [1, 16], \"prefix\": [0],"
                                " \"seconds\": [[0.004], [0.008]]}}",
                                0, NULL);
    struct deployment *d = mixture_deploy(&f, 4, 0.7e9, "{\"max_context\": 128}", NULL);
    assert_non_null(d);
    assert_int_equal(profiles_set(f.core, d->model->id, "k", "auto", tables, &e), 0);
    assert_int_equal(planner_inputs_get(f.core, d, &in, &e), 0);
    for (int i = 0; i < in->profile.n_classes; i++) {
        const struct profile_table *t = &in->profile.tables[i];
        if (strncmp(in->profile.classes[i], "moe", 3) == 0)
            assert_true(fabs(t->seconds[0] - 0.002) < 1e-9 && fabs(t->seconds[1] - 0.004) < 1e-9);
    }
    planner_inputs_release(&in);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(experts_of_a_block_that_fits_no_agent_are_shared_out,
                               prepare_mixture),
        cmocka_unit_test_setup(experts_that_bf16_could_not_count_are_shared_out_too,
                               prepare_mixture),
        cmocka_unit_test_setup(layers_that_are_given_are_those_of_the_groups_asked_for,
                               prepare_mixture),
        cmocka_unit_test_setup(groups_that_were_asked_for_are_not_divided_further, prepare_mixture),
        cmocka_unit_test_setup(a_coordinator_that_starts_again_numbers_layers_as_before,
                               prepare_mixture),
        cmocka_unit_test_setup(where_no_division_helps_the_model_is_whole_and_it_is_said_why,
                               prepare_mixture),
        cmocka_unit_test_setup(a_part_of_a_block_takes_its_part_of_the_blocks_time,
                               prepare_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
