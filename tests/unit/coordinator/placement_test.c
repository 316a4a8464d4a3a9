#include "coordinator/placement.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/slices.h"
#include "tests/unit/coordinator/core_fixture.h"

/* Ten layers: 100 MB of weights each (200 MB once packed as bf16), 1000 bytes of KV a token. */
enum { LAYERS = 10 };
static struct core_layer layers[LAYERS];
static struct core_model facts = {.architecture = "test",
                                  .layers = layers,
                                  .n_layers = LAYERS,
                                  .vocabulary = 1000,
                                  .width = 1024,
                                  .context = 4096};

static int prepare_facts(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (struct core_layer){.name = "layer",
                                        .class_name = i % 2 ? "attn" : "mlp",
                                        .param_bytes = 100000000,
                                        .elements = 100000000,
                                        .state_bytes_per_token = 1000,
                                        .output_bytes_per_token = 4096,
                                        .flops_per_token = 2e8};
    return 0;
}

static void manifest(struct buffer *out)
{
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .heads = {&first, 1}};
    manifest_encode(&m, out);
}

/* Deploys with these options; the deployment while it is there, else NULL and the answer's error.
 */
static struct deployment *deploy(struct fixture *f, const char *name, const char *options,
                                 const struct message_answer **answer)
{
    char arguments[400];
    struct buffer blob = {0};
    manifest(&blob);
    f->facts = &facts;
    snprintf(arguments, sizeof arguments, "{\"name\": \"%s\", \"options\": %s}", name, options);
    const struct message_answer *a = fixture_ask(f, "deploy", arguments, &blob);
    buffer_free(&blob);
    if (answer)
        *answer = a;
    return deployment_find(f->core, name);
}

static void expect_failure(struct fixture *f, const char *options, const char *code,
                           const char *says, const char *hint)
{
    const struct message_answer *a;
    struct deployment *d = deploy(f, "x", options, &a);
    if (d || !a || strcmp(a->code, code) != 0 || !strstr(a->text, says) || !strstr(a->hint, hint))
        fail_msg("%s: %s, \"%s\", \"%s\"", options, a ? a->code : "no answer", a ? a->text : "",
                 a ? a->hint : "");
}

static void layers_are_where_they_were_asked_for(void **state)
{
    (void)state;
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

static void what_cannot_be_placed_says_why(void **state)
{
    (void)state;
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
        {"{\"slice\": -1}", "invalid", "\"slice\" is not a number", ""},
        {"{\"agents\": 3}", "invalid", "\"agents\" is not text", ""},
        {"{\"max_context\": 5000}", "invalid", "more than the model's 4096", ""},
        /* 10 layers of 200 MB and 4096 tokens of 10 kB: 2.04 GB; a0 has 1 GB, a1 0.5 GB, a2 0.1 GB
         */
        {"{\"max_context\": 4096}", "infeasible", "bytes are missing", "no context fits"},
        {"{}", "infeasible", "weights 2.00 GB", "up to 2002560000 bytes in all"},
        {"{\"layers\": \"0-3:a0,4-9:a1\", \"max_context\": 1024}", "infeasible",
         "layers 4-9 need 1.21 GB on agent \"a1\", which has 500.0 MB free: 706144000 bytes", ""},
    };
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 1e9);
    fixture_agent(&f, 1, "k", 5e8);
    fixture_agent(&f, 2, "k", 1e8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_failure(&f, cases[i].options, cases[i].code, cases[i].says, cases[i].hint);
    assert_int_equal(core_view(f.core).deployments, 0);
    fixture_close(&f);
}

static void an_empty_cluster_says_that_no_agent_is_ready(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    expect_failure(&f, "{}", "infeasible", "no agent is ready", "");
    fixture_close(&f);
}

static void the_error_names_a_context_that_would_fit(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.03e9); /* weights 2 GB; 10 kB a token: room for some 3000 */
    expect_failure(&f, "{\"max_context\": 4096}", "infeasible", "bytes are missing",
                   "--max-context 2048");
    fixture_close(&f);
}

static void without_a_context_the_largest_half_that_fits_is_taken(void **state)
{
    (void)state;
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

static void as_many_sequences_are_open_as_asked_for_or_as_memory_is_good_for(void **state)
{
    (void)state;
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

static void f32_needs_twice_the_room_of_bf16(void **state)
{
    (void)state;
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

static void memory_of_other_deployments_is_not_given_twice(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 3e9);
    struct deployment *first = deploy(&f, "first", "{\"max_context\": 512}", NULL);
    assert_non_null(first);
    expect_failure(&f, "{\"max_context\": 512}", "infeasible", "bytes are missing", "");
    fixture_agent(&f, 1, "k", 3e9);
    struct deployment *d = deploy(&f, "x", "{\"max_context\": 512}", NULL);
    assert_non_null(d);
    const struct deployment_stage *shared = stages_of_member(d, member_find(f.core, "a0"));
    assert_true(first->stages[0].memory_bytes + (shared ? shared->memory_bytes : 0) <= 3e9);
    fixture_close(&f);
}

static void a_faster_device_gets_more_layers(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "slow", 2e9);
    fixture_agent(&f, 1, "fast", 2e9);
    struct buffer blob = {0};
    manifest(&blob);
    struct digest id = manifest_id(blob.data, blob.size);
    char hex[DIGEST_HEX];
    digest_hex(&id, hex);
    buffer_free(&blob);
    static const char table[] =
        "{\"attn\": {\"slice\": [1, 512], \"prefix\": [0], \"seconds\": [[%g], [%g]]}, \"mlp\": "
        "{\"slice\": [1, 512], \"prefix\": [0], \"seconds\": [[%g], [%g]]}}";
    char slow[300], fast[300];
    snprintf(slow, sizeof slow, table, 4e-3, 0.4, 4e-3, 0.4);
    snprintf(fast, sizeof fast, table, 1e-3, 0.1, 1e-3, 0.1);
    core_profile_set(f.core, hex, "slow", "auto", json_loads(slow, 0, NULL), NULL);
    core_profile_set(f.core, hex, "fast", "auto", json_loads(fast, 0, NULL), NULL);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 1024}", NULL);
    assert_non_null(d);
    assert_true(d->stages[0].end_layer >= 1 &&
                d->stages[0].end_layer <= 3); /* the balance is at 2 of 10 */
    fixture_close(&f);
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

static void a_model_goes_back_to_where_its_weights_lie(void **state)
{
    (void)state;
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

static void slices_add_up_for_every_length(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    fixture_agent(&f, 1, "k", 8e9);
    static const char *const options[] = {
        "{\"agents\": \"a0,a1\"}", "{\"agents\": \"a0,a1\", \"slice\": 7}", "{\"agents\": \"a0\"}"};
    for (int k = 0; k < 3; k++) {
        char name[4] = {'d', (char)('0' + k), 0};
        struct deployment *d = deploy(&f, name, options[k], NULL);
        assert_non_null(d);
        for (uint32_t n = 1; n < 1500; n += n < 300 ? 1 : 97) {
            uint32_t slices[1500], sum = 0;
            int count = slices_cut(d, n, slices);
            for (int i = 0; i < count; i++) {
                assert_true(slices[i] > 0 && slices[i] <= (k == 1 ? 7 : DEPLOYMENT_BATCH_TOKENS));
                sum += slices[i];
            }
            assert_int_equal(sum, n);
        }
        assert_true(k != 0 || slices_ready(d, 1500));
    }
    fixture_close(&f);
}

static void neighbours_are_those_with_the_fast_measured_link(void **state)
{
    (void)state;
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

static const char *state_of(struct fixture *f, const char *name)
{
    static char word[32];
    const struct message_answer *a = fixture_ask(f, "deployment.ls", "{}", NULL);
    json_t *result = a ? json_loads(a->result, 0, NULL) : NULL, *row;
    size_t i;
    snprintf(word, sizeof word, "nothing");
    json_array_foreach(json_is_array(result) ? result : json_object_get(result, "deployments"), i,
                       row) if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
        snprintf(word, sizeof word, "%s", json_string_value(json_object_get(row, "state")));
    json_decref(result);
    return word;
}

static void a_plan_is_made_elsewhere_and_holds_nobody_up(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    f.holds_work = true;
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    assert_string_equal(state_of(&f, "x"), "planning");
    assert_int_equal(f.n_held_work, 1);
    fixture_pass_ms(&f, 1000);
    fixture_beat(&f, 10, fixture_key(0));
    fixture_beat(&f, 11, fixture_key(1));
    assert_int_equal(f.n_held_work, 1); /* asked for once */
    struct deployment *d = deploy(&f, "y", "{\"max_context\": 512}", NULL);
    assert_string_equal(state_of(&f, "y"), "planning");
    fixture_work(&f);
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "preparing");
    assert_string_equal(state_of(&f, "y"), "preparing");
    assert_true(d->n_stages > 0);
    fixture_close(&f);
}

static void a_plan_under_which_something_has_changed_is_made_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    f.holds_work = true;
    struct deployment *d = deploy(&f, "x", "{\"max_context\": 512}", NULL);
    /* Whichever agent it would have had: the other one, or neither of the two, is left. */
    fixture_ask(&f, "node.drain", "{\"name\": \"a0\"}", NULL);
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "planning");
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "preparing");
    assert_int_equal(d->n_stages, 1);
    assert_string_equal(d->stages[0].agent->name, "a1");
    fixture_close(&f);
}

static void two_plans_at_once_do_not_share_the_same_memory(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.5e9);
    f.holds_work = true;
    const struct message_answer *a;
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    assert_non_null(deploy(&f, "y", "{\"max_context\": 512}", &a));
    for (int i = 0; i < 4; i++)
        fixture_work(&f);
    struct deployment *x = deployment_find(f.core, "x"), *y = deployment_find(f.core, "y");
    assert_true((x != NULL) != (y != NULL));
    assert_non_null(
        strstr(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.text, "bytes are missing"));
    fixture_close(&f);
}

static void what_is_undeployed_while_it_is_planned_is_gone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    f.holds_work = true;
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    fixture_ask(&f, "undeploy", "{\"name\": \"x\"}", NULL);
    assert_true(atomic_load(&f.held_work[0]->canceled));
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "nothing");
    assert_int_equal(f.core->n_planning, 0);
    assert_non_null(
        deploy(&f, "x", "{\"max_context\": 512}", NULL)); /* and again, left open at the end */
    fixture_close(&f);
}

static int cut_of(const struct deployment *d, uint32_t n)
{
    uint32_t slices[4096], sum = 0;
    int count = slices_cut(d, n, slices);
    for (int i = 0; i < count; i++) {
        assert_true(slices[i] > 0 && slices[i] <= DEPLOYMENT_BATCH_TOKENS);
        sum += slices[i];
    }
    assert_int_equal(sum, n);
    return count;
}

static void prompts_are_cut_at_once_and_better_when_their_slices_are_prepared(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    f.holds_work = true;
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 4096}", NULL);
    fixture_work(&f); /* the plan */
    assert_int_equal(d->n_stages, 2);
    assert_false(slices_ready(d, 100));
    assert_int_equal(cut_of(d, 1200), 6); /* three for each stage */
    assert_int_equal(cut_of(d, 20), 1);
    fixture_work(&f); /* up to 2048 */
    assert_true(slices_ready(d, 2048));
    assert_false(slices_ready(d, 2049));
    cut_of(d, 4000);
    fixture_work(&f);
    assert_true(slices_ready(d, 4096));
    for (uint32_t n = 1; n < 4096; n += 61)
        cut_of(d, n);
    fixture_pass_ms(&f, 200);
    assert_int_equal(f.n_held_work, 0);
    fixture_close(&f);
}

static void prepared_slices_outlive_a_generation_with_the_same_stages(void **state)
{
    (void)state;
    struct fixture f;
    struct err e = {0};
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 1024}", NULL);
    assert_true(slices_ready(d, 1024));
    f.holds_work = true;
    json_t *layout = deployment_layout(d);
    assert_int_equal(deployment_layout_set(f.core, d, layout, &e), 0);
    assert_int_equal(stages_adopt(f.core, d, NULL, &e), 0);
    json_decref(layout);
    fixture_pass_ms(&f, 100);
    assert_true(slices_ready(d, 1024));
    assert_int_equal(f.n_held_work, 0);
    slices_forget(d); /* a profile was corrected: what there is serves on meanwhile */
    fixture_pass_ms(&f, 100);
    assert_false(slices_ready(d, 1024));
    assert_int_equal(f.n_held_work, 1);
    cut_of(d, 900);
    fixture_work(&f);
    assert_true(slices_ready(d, 1024));
    fixture_close(&f);
}

static void inputs_are_read_once_for_every_change(void **state)
{
    (void)state;
    struct fixture f;
    struct err e = {0};
    struct planner_inputs *a, *b;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 1024}", NULL);
    assert_int_equal(planner_inputs_get(f.core, d, &a, &e), 0);
    assert_int_equal(planner_inputs_get(f.core, d, &b, &e), 0);
    assert_ptr_equal(a, b);
    planner_inputs_release(&b);
    core_profile_set(f.core, d->model->id, "k", "auto", json_object(), NULL);
    assert_int_equal(planner_inputs_get(f.core, d, &b, &e), 0);
    assert_ptr_not_equal(a, b);
    planner_inputs_release(&b);
    planner_inputs_release(&a);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_goes_back_to_where_its_weights_lie),
        cmocka_unit_test(neighbours_are_those_with_the_fast_measured_link),
        cmocka_unit_test(layers_are_where_they_were_asked_for),
        cmocka_unit_test(what_cannot_be_placed_says_why),
        cmocka_unit_test(an_empty_cluster_says_that_no_agent_is_ready),
        cmocka_unit_test(the_error_names_a_context_that_would_fit),
        cmocka_unit_test(without_a_context_the_largest_half_that_fits_is_taken),
        cmocka_unit_test(as_many_sequences_are_open_as_asked_for_or_as_memory_is_good_for),
        cmocka_unit_test(f32_needs_twice_the_room_of_bf16),
        cmocka_unit_test(memory_of_other_deployments_is_not_given_twice),
        cmocka_unit_test(a_faster_device_gets_more_layers),
        cmocka_unit_test(slices_add_up_for_every_length),
        cmocka_unit_test(a_plan_is_made_elsewhere_and_holds_nobody_up),
        cmocka_unit_test(a_plan_under_which_something_has_changed_is_made_again),
        cmocka_unit_test(two_plans_at_once_do_not_share_the_same_memory),
        cmocka_unit_test(what_is_undeployed_while_it_is_planned_is_gone),
        cmocka_unit_test(prompts_are_cut_at_once_and_better_when_their_slices_are_prepared),
        cmocka_unit_test(prepared_slices_outlive_a_generation_with_the_same_stages),
        cmocka_unit_test(inputs_are_read_once_for_every_change),
    };
    return cmocka_run_group_tests_name("placement", tests, prepare_facts, NULL);
}
