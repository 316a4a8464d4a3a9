/* Where stages go. */
#include "coordinator/deployment_layout.h"
#include "coordinator/describe.h"
#include "coordinator/links.h"
#include "coordinator/placement.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/profiles.h"
#include "tests/unit/coordinator/placement_fixture.h"
#include "transport/stage_bytes.h"

static void expect_failure(struct fixture *f, const char *options, const char *code,
                           const char *says, const char *hint)
{
    const struct message_answer *a;
    struct deployment *d = deploy(f, "x", options, &a);
    if (d || !a || strcmp(a->code, code) != 0 || !strstr(a->text, says) || !strstr(a->hint, hint))
        fail_msg("%s: %s, \"%s\", \"%s\"", options, a ? a->code : "no answer", a ? a->text : "",
                 a ? a->hint : "");
}

TEST(layers_are_where_they_were_asked_for)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"layers\": \"0-3:a2,4:a0,5-9:a1\"}", NULL);
    assert_non_null(d);
    assert_int_equal(d->n_stages, 3);
    assert_string_equal(d->stages[0].agent->name, "a2");
    assert_int_equal(d->stages[1].first_layer, 4);
    assert_int_equal(d->stages[1].end_layer, 5);
    assert_int_equal(d->stages[2].end_layer, LAYERS);
    d = deploy(&f, "y", "{\"agents\": \"a1,a2\"}", NULL);
    assert_int_equal(d->n_stages, 2);
    assert_string_equal(d->stages[0].agent->name, "a1");
    const struct message *p = fixture_last(&f, 12, MESSAGE_STAGE_PREPARE);
    assert_int_equal(p->u.stage_prepare.end_layer, LAYERS);
    assert_int_equal(p->u.stage_prepare.stage, 1);
    fixture_close(&f);
}

/* The model needs two of the three. */
TEST(of_two_agents_whose_path_is_broken_a_plan_has_one)
{
    static const double memory[] = {1.6e9, 1.5e9, 1.4e9};
    for (int paths = 1; paths <= 2; paths++) {
        struct fixture f;
        fixture_open(&f);
        for (int i = 0; i < 3; i++)
            fixture_agent(&f, i, "k", memory[i]);
        struct member *a0 = member_find(f.core, "a0"), *a1 = member_find(f.core, "a1"),
                      *a2 = member_find(f.core, "a2");
        links_make(a1, a0)->broken_until_ns = UINT64_MAX; /* a1 has less memory, */
        if (paths == 2)
            links_make(a2, a0)->broken_until_ns = UINT64_MAX; /* and a0 two such paths */
        struct deployment *d = deploy(&f, "x", "{\"max_context\": 128}", NULL);
        assert_non_null(d);
        assert_int_equal(d->n_stages, 2);
        assert_null(deployment_stage_of(d, paths == 2 ? a0 : a1));
        fixture_close(&f);
    }
}

/* One that says nothing of what it runs is taken at its word. */
TEST(an_agent_without_the_models_operators_or_formats_gets_no_layers)
{
    static const char *needs[] = {"matmul", "Q4_0", NULL};
    struct fixture f;
    fixture_open(&f);
    facts.needs = needs;
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 8e9);
    json_object_set_new(member_find(f.core, "a1")->node->told, "runs", json_pack("[s]", "matmul"));
    json_object_set_new(member_find(f.core, "a2")->node->told, "runs",
                        json_pack("[ss]", "Q4_0", "matmul"));
    expect_failure(&f, "{\"agents\": \"a0,a1\"}", "unsupported", "agent \"a1\" cannot run \"Q4_0\"",
                   "");
    struct deployment *d = deploy(&f, "y", "{\"agents\": \"a0,a2\"}", NULL);
    assert_int_equal(d->n_stages, 2);
    needs[1] = NULL; /* what the opened file said is the model's own by now */
    assert_string_equal(member_lacks(member_find(f.core, "a1"), d->model->facts.needs), "Q4_0");
    d = deploy(&f, "z", "{}", NULL);
    for (int i = 0; d && i < d->n_stages; i++)
        assert_string_not_equal(d->stages[i].agent->name, "a1");
    facts.needs = NULL;
    fixture_close(&f);
}

TEST(what_cannot_be_placed_says_why)
{
    static const struct {
        const char *options, *code, *says, *hint;
    } cases[] = {
        {"{\"layers\": \"0-3:a0,5-9:a1\"}", "invalid", "leaves out layer 4", ""},
        {"{\"layers\": \"0-3:a0,3-9:a1\"}", "invalid", "gives layer 3 to two agents", ""},
        {"{\"layers\": \"1-9:a1\"}", "invalid", "leaves out layer 0", ""},
        {"{\"layers\": \"0-3:a0,4-8:a1\"}", "invalid",
         "ends at layer 8; the last layer of this model is 9", ""},
        {"{\"layers\": \"0-3:a0,4-12:a1\"}", "invalid", "names layer 12", ""},
        {"{\"layers\": \"0-3:a0,4-9:a0\"}", "invalid", "named twice", ""},
        {"{\"layers\": \"0-3\"}", "invalid", "is not FIRST-LAST:AGENT", ""},
        {"{\"layers\": \"4-3:a0\"}", "invalid", "is not FIRST-LAST:AGENT", ""},
        {"{\"layers\": \"0-9:a0\", \"agents\": \"a1\"}", "invalid", "twice", ""},
        {"{\"agents\": \"a0,a9\"}", "not_found", "no agent \"a9\"", ""},
        {"{\"agents\": \"a0,,a1\"}", "invalid", "not the name of an agent", ""},
        {"{\"compute\": \"f16\"}", "invalid", "auto or f32", ""},
        {"{\"wire\": \"int8\"}", "invalid", "f32, f16, bf16, q8 or auto", ""},
        {"{\"kv\": \"int4\"}", "invalid", "--kv is \"int4\"; it can be auto, f16, f32 or q8_0", ""},
        {"{\"speculate\": \"maybe\"}", "invalid", "auto, off or lookup", ""},
        {"{\"rebalance\": \"maybe\"}", "invalid", "auto, degraded or off", ""},
        {"{\"rebalance\": \"auto\", \"layers\": \"0-9:a0\"}", "invalid", "leave one of them out",
         ""},
        {"{\"rebalance\": \"auto\", \"prefill\": \"a1\"}", "invalid", "leave one of them out", ""},
        {"{\"prefill_kv\": \"f16\"}", "invalid", "--prefill-kv goes with --prefill", ""},
        {"{\"decode\": \"auto\"}", "invalid", "--decode goes with --prefill", ""},
        {"{\"decode\": \"a1\", \"prefill\": \"a0\"}", "invalid", "the option \"agents\"", ""},
        {"{\"decode\": \"auto\", \"prefill\": \"a0\", \"agents\": \"a1\"}", "invalid",
         "leave one of them out", ""},
        {"{\"ttft\": 0.5}", "invalid", "--ttft is a time from 1ms to 60s", ""},
        {"{\"tpot\": 60001}", "invalid", "--tpot is a time from 1ms to 60s", ""},
        {"{\"tpot\": \"20ms\"}", "invalid", "--tpot is a time from 1ms to 60s", ""},
        {"{\"slice\": -1}", "invalid", "\"slice\" is not a number", ""},
        {"{\"agents\": 3}", "invalid", "\"agents\" is not text", ""},
        {"{\"max_context\": 5000}", "invalid", "more than the model's 4096", ""},
        /* 10 layers of 200 MB and 4096 tokens of 10 kB (64 more for each sequence that may be
         * open): 2.04 GB; a0 has 1 GB, a1 0.5 GB, a2 0.1 GB
         */
        {"{\"max_context\": 4096}", "infeasible", "bytes are missing", "no context fits"},
        {"{}", "infeasible", "weights 2.00 GB", "up to 2003200000 bytes in all"},
        {"{\"layers\": \"0-3:a0,4-9:a1\", \"max_context\": 1024}", "infeasible",
         "layers 4-9 need 1.21 GB on agent \"a1\", which has 500.0 MB free: 707008000 bytes", ""},
    };
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_agent(&f, 1, "k", 5e8);
    fixture_agent(&f, 2, "k", 1e8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_failure(&f, cases[i].options, cases[i].code, cases[i].says, cases[i].hint);
    assert_int_equal(coord_view(f.core).deployments, 0);
    fixture_close(&f);
}

TEST(an_empty_cluster_says_that_no_agent_is_ready)
{
    struct fixture f;
    fixture_open(&f);
    expect_failure(&f, "{}", "infeasible", "no agent is ready", "");
    fixture_close(&f);
}

TEST(the_error_names_a_context_that_would_fit)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.03e9); /* weights 2 GB; 10 kB a token: room for some 3000 */
    expect_failure(&f, "{\"max_context\": 4096}", "infeasible", "bytes are missing",
                   "--max-context 2048");
    fixture_close(&f);
}

TEST(without_a_context_the_largest_half_that_fits_is_taken)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.03e9);
    struct deployment *d = deploy(&f, "x", "{}", NULL);
    assert_non_null(d);
    assert_int_equal(d->context, 2048);
    assert_int_equal(d->kv_tokens, 2048);
    assert_int_equal(d->max_sequences, 4); /* short ones share it */
    fixture_close(&f);
}

TEST(as_many_sequences_are_open_as_asked_for_or_as_memory_is_good_for)
{
    static const struct {
        const char *options;
        uint64_t kv_tokens, max_sequences;
    } cases[] = {
        {"{\"max_context\": 4096}", 8 * 4096, 32},
        {"{\"max_context\": 256}", 8 * 256, 8},
        {"{\"max_context\": 256, \"max_sequences\": 64}", 64 * 256, 64},
        {"{\"max_context\": 4096, \"max_sequences\": 1}", 4096, 1},
    };
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[4] = {'d', (char)('0' + i), 0};
        struct deployment *d = deploy(&f, name, cases[i].options, NULL);
        assert_non_null(d);
        assert_int_equal(d->kv_tokens, cases[i].kv_tokens);
        assert_int_equal(d->max_sequences, cases[i].max_sequences);
        double kv = (double)(cases[i].kv_tokens + 64 * cases[i].max_sequences) * LAYERS *
                    1000; /* a step more for each */
        assert_true(d->stages[0].memory_bytes >= LAYERS * 2e8 + kv);
        char gone[40];
        snprintf(gone, sizeof gone, "{\"name\": \"%s\"}", name);
        fixture_ask(&f, "undeploy", gone, NULL);
        fixture_beat(&f, 10, fixture_key(0));
    }
    expect_failure(&f, "{\"max_sequences\": 257}", "invalid",
                   "--max-sequences 257 is more than 256", "");
    fixture_close(&f);
}

/* Weights 2 GB and 10 kB a token in f16: 3000 tokens of it fit, and 3000 / 17 * 32 in 8 bits. */
TEST(keys_and_values_in_8_bits_leave_room_for_more_of_them)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.03e9);
    expect_failure(&f, "{\"max_context\": 4096, \"kv\": \"f16\"}", "infeasible",
                   "bytes are missing", "--max-context 2048");
    expect_failure(&f, "{\"max_context\": 4096, \"kv\": \"f32\"}", "infeasible",
                   "bytes are missing", "--max-context 1024");
    struct deployment *d = deploy(&f, "x", "{\"max_context\": 4096, \"kv\": \"q8_0\"}", NULL);
    assert_non_null(d);
    json_t *told = describe_deployment(d, true);
    assert_string_equal(json_string_value(json_object_get(told, "kv")), "q8_0");
    assert_string_equal(json_string_value(json_object_get(json_object_get(told, "plan"), "kv")),
                        "q8_0");
    json_decref(told);
    fixture_close(&f);
}

TEST(heads_that_are_no_whole_blocks_are_not_kept_in_8_bits)
{
    struct fixture f;
    fixture_open(&f);
    facts.odd_head = 80;
    fixture_agent(&f, 0, "k", 8e9);
    expect_failure(&f, "{\"kv\": \"q8_0\"}", "unsupported", "keys have 80 elements", "--kv f16");
    assert_non_null(deploy(&f, "x", "{\"kv\": \"f16\"}", NULL));
    facts.odd_head = 0;
    fixture_close(&f);
}

TEST(a_weight_goes_to_each_stage_and_is_a_number_above_nothing)
{
    static const char *const bad[] = {"0", "-1", "1e9", "\"3\"", "[]"};
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    assert_non_null(deploy(&f, "a", "{}", NULL));
    assert_true(fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare.weight == 1);
    assert_non_null(deploy(&f, "b", "{\"weight\": 2.5}", NULL));
    assert_true(fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare.weight == 2.5);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char options[40];
        snprintf(options, sizeof options, "{\"weight\": %s}", bad[i]);
        expect_failure(&f, options, "invalid", "--weight", "");
    }
    fixture_close(&f);
}

TEST(layers_have_one_copy_or_two)
{
    static const char *const bad[] = {"0", "3", "1.5", "\"2\"", "-1"};
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    assert_int_equal(deploy(&f, "a", "{}", NULL)->spec.copies, 1);
    assert_int_equal(deploy(&f, "b", "{\"copies\": 2.0}", NULL)->spec.copies, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char options[40];
        snprintf(options, sizeof options, "{\"copies\": %s}", bad[i]);
        expect_failure(&f, options, "invalid", "--copies", "");
    }
    fixture_close(&f);
}

TEST(f32_needs_twice_the_room_of_bf16)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.5e9);
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    fixture_ask(&f, "undeploy", "{\"name\": \"x\"}", NULL);
    fixture_pass_ms(&f, DEPLOYMENT_STOP_MS / 2);
    fixture_beat(&f, 10, fixture_key(0)); /* it holds no stage any more */
    expect_failure(&f, "{\"compute\": \"f32\", \"max_context\": 512}", "infeasible",
                   "weights 4.00 GB", "");
    fixture_close(&f);
}

/* The same call that an agent's executor makes. */
static void expect_bytes_as_agents_count_them(bool beside_a_paced_one)
{
    static const char paced[] =
        "{\"name\": \"x\", \"devices\": [{\"name\": \"gpu\", \"kind\": \"P\", \"memory_bytes\": "
        "16e9}], \"paced\": {\"as\": \"n/gpu\", \"profile\": \"abc\", \"links\": []}}";
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        fixture_agent(&f, i, "k", 8e9);
    if (beside_a_paced_one) {
        fixture_invite(&f, 60);
        fixture_join(&f, 13, fixture_key(3), "a3", f.token, paced);
        fixture_beat(&f, 13, fixture_key(3));
    }
    struct deployment *d =
        deploy(&f, "x", "{\"layers\": \"0-3:a0,4-6:a1,7-9:a2\", \"max_context\": 512}", NULL);
    assert_non_null(d);
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        struct stage_shape shape = {.last = i == 2,
                                    .max_batch_tokens = d->max_batch_tokens,
                                    .max_sequences = d->max_sequences,
                                    .row.width = facts.width,
                                    .vocabulary = facts.vocabulary,
                                    .wire = FRAME_F32};
        double n = s->end_layer - s->first_layer,
               own = n * 2e8 + n * 1000 * (double)(d->kv_tokens + 64 * d->max_sequences),
               beside = (double)stage_beside_bytes(&shape) +
                        facts.workspace_bytes_per_token * (double)d->max_batch_tokens;
        assert_true(beside > 0);
        if (s->memory_bytes < own + beside - 1 || s->memory_bytes > own + beside + 1)
            fail_msg("stage %d: %.0f bytes planned, %.0f + %.0f held", i, s->memory_bytes, own,
                     beside);
    }
    fixture_close(&f);
}

TEST(what_stages_hold_for_each_other_is_planned_as_agents_count_it)
{
    expect_bytes_as_agents_count_them(false);
    expect_bytes_as_agents_count_them(true);
}

TEST(memory_of_other_deployments_is_not_given_twice)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 3e9);
    struct deployment *first = deploy(&f, "first", "{\"max_context\": 512}", NULL);
    assert_non_null(first);
    expect_failure(&f, "{\"max_context\": 512}", "infeasible", "bytes are missing", "");
    fixture_agent(&f, 1, "k", 3e9);
    struct deployment *d = deploy(&f, "x", "{\"max_context\": 512}", NULL);
    assert_non_null(d);
    const struct deployment_stage *shared = deployment_stage_of(d, member_find(f.core, "a0"));
    assert_true(first->stages[0].memory_bytes + (shared ? shared->memory_bytes : 0) <= 3e9);
    fixture_close(&f);
}

/* Of a layer, with one token and with 512. */
static void kind_takes(struct fixture *f, const char *kind, double one_s, double many_s)
{
    static const char table[] =
        "{\"attn\": {\"slice\": [1, 512], \"prefix\": [0], \"seconds\": [[%g], [%g]]}, \"mlp\": "
        "{\"slice\": [1, 512], \"prefix\": [0], \"seconds\": [[%g], [%g]]}}";
    struct buffer blob = {0};
    char hex[DIGEST_HEX], text[300];
    manifest(&blob);
    struct digest id = manifest_id(blob.data, blob.size);
    digest_hex(&id, hex);
    buffer_free(&blob);
    snprintf(text, sizeof text, table, one_s, many_s, one_s, many_s);
    profiles_set(f->core, hex, kind, "auto", json_loads(text, 0, NULL), NULL);
}

static const json_t *apart_of(const struct deployment *d)
{
    return json_object_get(d->plan->document, "apart");
}

/* What one reads for the other, and what is said where neither does. */
TEST(who_reads_prompts_and_who_answers_is_the_planners_where_it_is_asked)
{
    static const uint32_t before[LAYERS + 1][MODEL_KV_GROUPS];
    struct fixture f;
    fixture_open(&f);
    facts.kv_before = before;
    fixture_agent(&f, 0, "slow", 8e9);
    fixture_agent(&f, 1, "fast", 8e9);
    kind_takes(&f, "slow", 4e-3, 0.3);
    kind_takes(&f, "fast", 4e-3, 0.1);
    struct deployment *d = deploy(&f, "x", "{\"prefill\": \"auto\", \"max_context\": 1024}", NULL);
    assert_string_equal(deployment_readers(d), "a1");
    assert_int_equal(d->n_stages, 1);
    assert_string_equal(d->stages[0].agent->name, "a0");
    assert_non_null(strstr(json_string_value(json_object_get(apart_of(d), "why")), "apart: "));
    fixture_ask(&f, "undeploy", "{\"name\": \"x\"}", NULL);
    d = deploy(&f, "y", "{\"prefill\": \"auto\", \"agents\": \"a1,a0\", \"max_context\": 512}",
               NULL);
    assert_string_equal(deployment_readers(d), "");
    assert_true(json_is_false(json_object_get(apart_of(d), "chosen")));
    assert_null(deployment_partner(f.core, d));
    d = deploy(&f, "z", "{\"prefill\": \"a1\", \"decode\": \"auto\", \"max_context\": 512}", NULL);
    assert_string_equal(deployment_readers(d), "a1");
    assert_int_equal(d->n_stages, 1);
    assert_string_equal(d->stages[0].agent->name, "a0");
    facts.kv_before = NULL;
    fixture_close(&f);
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    d = deploy(&f, "v", "{\"prefill\": \"auto\", \"max_context\": 512}", NULL);
    assert_non_null(strstr(json_string_value(json_object_get(apart_of(d), "why")), "handed over"));
    fixture_close(&f);
}

TEST(a_faster_device_gets_more_layers)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "slow", 2e9);
    fixture_agent(&f, 1, "fast", 2e9);
    kind_takes(&f, "slow", 4e-3, 0.4);
    kind_takes(&f, "fast", 1e-3, 0.1);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 1024}", NULL);
    assert_non_null(d);
    assert_true(d->stages[0].end_layer >= 1 &&
                d->stages[0].end_layer <= 3); /* the balance is at 2 of 10 */
    fixture_close(&f);
}

/* A short prompt is one slice here, which the faster device does best nearly alone; a long one has
 * four, and then shares of the work count. */
TEST(layers_are_good_for_long_prompts_too_where_the_context_has_them)
{
    static const struct {
        const char *options;
        int first_ends;
    } cases[] = {{"{\"agents\": \"a0,a1\", \"max_context\": 512}", 9},
                 {"{\"agents\": \"a0,a1\", \"max_context\": 4096}", 6},
                 {"{\"layers\": \"0-8:a0,9:a1\", \"max_context\": 4096}", 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        fixture_open(&f);
        fixture_agent(&f, 0, "fast", 8e9);
        fixture_agent(&f, 1, "slow", 8e9);
        kind_takes(&f, "fast", 0.02, 0.1);
        kind_takes(&f, "slow", 0.03, 0.15);
        struct deployment *d = deploy(&f, "x", cases[i].options, NULL);
        assert_non_null(d);
        assert_int_equal(d->n_stages, 2);
        assert_int_equal(d->stages[0].end_layer, cases[i].first_ends);
        fixture_close(&f);
    }
}

/* Every stage of a deployment is loaded, and its agents hear each other. */
static void serve(struct fixture *f, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        int agent = d->stages[i].agent->name[1] - '0';
        struct message ready = {.type = MESSAGE_STAGE_STATE};
        ready.u.stage_state = (struct message_stage_state){.deployment = d->id,
                                                           .generation = d->generation,
                                                           .stage = (uint64_t)i,
                                                           .state = "ready",
                                                           .code = "",
                                                           .text = ""};
        fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &ready);
    }
    assert_int_equal(d->state, DEPLOYMENT_SERVING);
}

static void undeploy(struct fixture *f, struct deployment *d)
{
    int n = d->n_stages, agents[8];
    uint64_t id = d->id, generation = d->generation;
    for (int i = 0; i < n; i++)
        agents[i] = d->stages[i].agent->name[1] - '0';
    fixture_ask(f, "undeploy", "{\"name\": \"x\"}", NULL);
    for (int i = 0; i < n; i++) {
        struct message gone = {.type = MESSAGE_STAGE_STATE};
        gone.u.stage_state = (struct message_stage_state){.deployment = id,
                                                          .generation = generation,
                                                          .stage = (uint64_t)i,
                                                          .state = "unloaded",
                                                          .code = "",
                                                          .text = ""};
        fixture_say(f, 10 + (uint64_t)agents[i], fixture_key(agents[i]), &gone);
    }
    fixture_pass_ms(f, 200);
    assert_null(deployment_find(f->core, "x"));
}

TEST(a_model_goes_back_to_where_its_weights_lie)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 1.4e9); /* neither holds all of it */
    struct deployment *d = deploy(&f, "x", "{\"max_context\": 256}", NULL);
    assert_int_equal(d->n_stages, 2);
    char first[8], second[8], options[100];
    snprintf(first, sizeof first, "%s", d->stages[0].agent->name);
    snprintf(second, sizeof second, "%s", d->stages[1].agent->name);
    serve(&f, d);
    undeploy(&f, d);
    /* The other way round, as fast: once it has served so, it stays so, also over a restart. */
    snprintf(options, sizeof options, "{\"max_context\": 256, \"agents\": \"%s,%s\"}", second,
             first);
    d = deploy(&f, "x", options, NULL);
    serve(&f, d);
    undeploy(&f, d);
    fixture_restart(&f);
    for (int i = 0; i < 2; i++) {
        fixture_join(&f, 10 + (uint64_t)i, fixture_key(i), "", "", fixture_node("k", 1.4e9));
        fixture_beat(&f, 10 + (uint64_t)i, fixture_key(i));
    }
    d = deploy(&f, "x", "{\"max_context\": 256}", NULL);
    assert_int_equal(d->n_stages, 2);
    assert_string_equal(d->stages[0].agent->name, second);
    assert_string_equal(d->stages[1].agent->name, first);
    fixture_close(&f);
}

/* Its weights lie as short prompts like it, which long ones would suffer from. */
TEST(a_model_does_not_go_back_to_where_long_prompts_take_longer)
{
    static const char *options[] = {"{\"max_context\": 512, \"max_sequences\": 1}",
                                    "{\"max_context\": 2048, \"max_sequences\": 1}"};
    int fast_has[2]; /* layers */
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1.99e9);
    fixture_agent(&f, 1, "slow", 1.99e9);
    kind_takes(&f, "fast", 0.02, 0.1);
    kind_takes(&f, "slow", 0.03, 0.15);
    for (int i = 0; i < 2; i++) {
        struct deployment *d = deploy(&f, "x", options[i], NULL);
        assert_non_null(d);
        assert_int_equal(d->n_stages, 2);
        const struct deployment_stage *fast = deployment_stage_of(d, member_find(f.core, "a0"));
        fast_has[i] = fast->end_layer - fast->first_layer;
        serve(&f, d);
        undeploy(&f, d);
    }
    assert_true(fast_has[1] < fast_has[0]);
    fixture_close(&f);
}

TEST(neighbours_are_those_with_the_fast_measured_link)
{
    /* Any two of three have room enough; what was measured between them decides which two. */
    for (int slow = 0; slow < 3; slow++) {
        struct fixture f;
        struct err e = {0};
        fixture_open(&f);
        for (int i = 0; i < 3; i++)
            fixture_agent(&f, i, "k", 1.6e9);
        for (int i = 0; i < 3; i++) {
            char from[8], one[8], other[8];
            snprintf(from, sizeof from, "a%d", i);
            snprintf(one, sizeof one, "a%d", (i + 1) % 3);
            snprintf(other, sizeof other, "a%d", (i + 2) % 3);
            json_t *row =
                json_pack("[{s:s, s:f, s:f}, {s:s, s:f, s:f}]", "to", one, "bandwidth_bytes_per_s",
                          i == slow || (i + 1) % 3 == slow ? 1e4 : 1e9, "latency_s", 1e-4, "to",
                          other, "bandwidth_bytes_per_s",
                          i == slow || (i + 2) % 3 == slow ? 1e4 : 1e9, "latency_s", 1e-4);
            assert_int_equal(links_restore(f.core, from, row, &e), 0);
            json_decref(row);
        }
        struct deployment *d = deploy(&f, "x", "{}", NULL);
        assert_non_null(d);
        assert_int_equal(d->n_stages, 2);
        for (int i = 0; i < 2; i++)
            assert_int_not_equal(d->stages[i].agent->name[1] - '0', slow);
        fixture_close(&f);
    }
}

/* Two agents whose links bring so many bytes a second. */
static void two_linked(struct fixture *f, double bytes_per_s)
{
    struct err e = {0};
    fixture_open(f);
    for (int i = 0; i < 2; i++) {
        json_t *row = json_pack("[{s:s, s:f, s:f}]", "to", i ? "a0" : "a1", "bandwidth_bytes_per_s",
                                bytes_per_s, "latency_s", 1e-4);
        fixture_agent(f, i, "k", 1.6e9);
        assert_int_equal(links_restore(f->core, i ? "a1" : "a0", row, &e), 0);
        json_decref(row);
    }
}

TEST(activations_cross_as_was_asked_or_as_the_plan_needs_it)
{
    static const struct {
        const char *options, *wire, *why;
        double bytes_per_s;
    } cases[] = {
        {"{}", "f32", "asked", 1e5},
        {"{\"wire\": \"bf16\"}", "bf16", "asked", 1e9},
        {"{\"wire\": \"f16\"}", "f16", "asked", 1e9},
        {"{\"wire\": \"q8\"}", "q8", "asked", 1e9},
        {"{\"wire\": \"auto\"}", "f32", "no link takes longer", 1e10},
        /* 4 kB a token: the link takes longer */
        {"{\"wire\": \"auto\"}", "f16", "as f32 the link from ", 6e4},
        {"{\"wire\": \"auto\"}", "q8", "as q8 the link from ", 1e4},
    };
    static struct message_value value = {"x", 1024, false};
    static struct pack_list borders[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        borders[i] = (struct pack_list){&value, i + 1 < LAYERS};
    facts.borders = borders;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        two_linked(&f, cases[i].bytes_per_s);
        struct deployment *d = deploy(&f, "x", cases[i].options, NULL);
        assert_non_null(d);
        assert_int_equal(d->n_stages, 2);
        const struct message_stage_prepare *p[2] = {
            &fixture_last(&f, 10, MESSAGE_STAGE_PREPARE)->u.stage_prepare,
            &fixture_last(&f, 11, MESSAGE_STAGE_PREPARE)->u.stage_prepare};
        int first = p[1]->stage == 0;
        assert_string_equal(p[0]->wire, cases[i].wire);
        assert_string_equal(p[1]->wire, cases[i].wire);
        assert_string_equal(json_string_value(json_object_get(d->plan->document, "wire")),
                            cases[i].wire);
        const char *why = json_string_value(json_object_get(d->plan->document, "wire_why"));
        if (!strstr(why, cases[i].why))
            fail_msg("case %zu: %s", i, why);
        assert_non_null(json_string_value(json_object_get(d->plan->document, "wire_costs")));
        assert_int_equal(p[first]->enters.count, 0);
        assert_int_equal(p[first]->crosses.count, 1);
        assert_int_equal(p[!first]->enters.count, 1);
        assert_int_equal(p[!first]->crosses.count, 0);
        const struct message_value *v = p[!first]->enters.items;
        assert_string_equal(v->name, "x");
        assert_int_equal(v->width, 1024);
        struct stage_layout *layout = deployment_layout(d);
        json_t *record = stage_layout_to_json(layout);
        assert_string_equal(json_string_value(json_object_get(record, "wire")), cases[i].wire);
        json_decref(record);
        stage_layout_release(&layout);
        fixture_close(&f);
    }
    facts.borders = NULL;
}

TEST(rows_that_are_no_whole_blocks_do_not_cross_as_q8)
{
    static struct message_value values[] = {{"x", 1024, false},
                                            {"y", 96, false}}; /* 32 divides both */
    static struct pack_list borders[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        borders[i] = (struct pack_list){values, i + 1 < LAYERS ? 2 : 0};
    facts.borders = borders;
    for (int asked = 0; asked < 2; asked++) {
        struct fixture f;
        two_linked(&f, 1e4);
        struct deployment *d =
            deploy(&f, "x", asked ? "{\"wire\": \"q8\"}" : "{\"wire\": \"auto\"}", NULL);
        if (asked)
            assert_true(!d || d->n_stages == 0);
        else
            assert_string_equal(json_string_value(json_object_get(d->plan->document, "wire")),
                                "f16");
        if (asked && d)
            assert_non_null(strstr(d->why.text, "no multiple of"));
        fixture_close(&f);
    }
    facts.borders = NULL;
}

/* What is exact crosses as float32, and has room as that. */
TEST(exact_numbers_keep_no_rows_from_crossing_as_q8)
{
    static struct message_value values[] = {{"x", 1024, false}, {"route", 6, true}};
    static struct pack_list borders[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        borders[i] = (struct pack_list){values, i + 1 < LAYERS ? 2 : 0};
    facts.borders = borders;
    for (int asked = 0; asked < 2; asked++) {
        struct fixture f;
        two_linked(&f, 1e4);
        struct deployment *d =
            deploy(&f, "x", asked ? "{\"wire\": \"q8\"}" : "{\"wire\": \"auto\"}", NULL);
        assert_non_null(d);
        assert_string_equal(json_string_value(json_object_get(d->plan->document, "wire")), "q8");
        struct frame_row row = planner_border_row(&d->model->facts);
        assert_int_equal(row.width, 1030);
        assert_int_equal(row.exact, 6);
        fixture_close(&f);
    }
    facts.borders = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_goes_back_to_where_its_weights_lie),
        cmocka_unit_test(a_model_does_not_go_back_to_where_long_prompts_take_longer),
        cmocka_unit_test(neighbours_are_those_with_the_fast_measured_link),
        cmocka_unit_test(layers_are_where_they_were_asked_for),
        cmocka_unit_test(activations_cross_as_was_asked_or_as_the_plan_needs_it),
        cmocka_unit_test(rows_that_are_no_whole_blocks_do_not_cross_as_q8),
        cmocka_unit_test(exact_numbers_keep_no_rows_from_crossing_as_q8),
        cmocka_unit_test(of_two_agents_whose_path_is_broken_a_plan_has_one),
        cmocka_unit_test(an_agent_without_the_models_operators_or_formats_gets_no_layers),
        cmocka_unit_test(what_cannot_be_placed_says_why),
        cmocka_unit_test(an_empty_cluster_says_that_no_agent_is_ready),
        cmocka_unit_test(the_error_names_a_context_that_would_fit),
        cmocka_unit_test(without_a_context_the_largest_half_that_fits_is_taken),
        cmocka_unit_test(as_many_sequences_are_open_as_asked_for_or_as_memory_is_good_for),
        cmocka_unit_test(keys_and_values_in_8_bits_leave_room_for_more_of_them),
        cmocka_unit_test(heads_that_are_no_whole_blocks_are_not_kept_in_8_bits),
        cmocka_unit_test(a_weight_goes_to_each_stage_and_is_a_number_above_nothing),
        cmocka_unit_test(layers_have_one_copy_or_two),
        cmocka_unit_test(f32_needs_twice_the_room_of_bf16),
        cmocka_unit_test(what_stages_hold_for_each_other_is_planned_as_agents_count_it),
        cmocka_unit_test(memory_of_other_deployments_is_not_given_twice),
        cmocka_unit_test(who_reads_prompts_and_who_answers_is_the_planners_where_it_is_asked),
        cmocka_unit_test(a_faster_device_gets_more_layers),
        cmocka_unit_test(layers_are_good_for_long_prompts_too_where_the_context_has_them),
    };
    return cmocka_run_group_tests(tests, prepare_facts, NULL);
}
