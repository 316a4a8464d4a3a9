/* `hpctl deploy`: bring a model to life on the cluster. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/experts.h"
#include "common/host.h"
#include "common/names.h"
#include "common/plan.h"
#include "hpctl/client.h"
#include "hpctl/deploying.h"
#include "hpctl/deployment_view.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"

enum { MAX_SLICE_TOKENS = 1 << 20 };

/* ---- deploy ---- */

static int name_read(const struct invocation *in, struct deploying *d, struct err *e)
{
    const char *asked = invocation_option(in, "name");
    deploying_name(d->path, d->name, sizeof d->name);
    if (!asked)
        return 0;
    if (!name_is_valid(asked, sizeof d->name - 1))
        return err_set(e, HP_EUSAGE,
                       "--name: \"%.80s\" cannot name a deployment: up to %zu " NAME_ALPHABET
                       " can",
                       asked, sizeof d->name - 1);
    snprintf(d->name, sizeof d->name, "%s", asked);
    return 0;
}

/* NULL: not given. What is no number is the coordinator's to refuse, by name. */
static json_t *number_json(const struct invocation *in, const char *option)
{
    const char *text = invocation_option(in, option);
    char *end;
    if (!text)
        return NULL;
    double value = strtod(text, &end);
    return end != text && !*end && isfinite(value) ? json_real(value) : json_string(text);
}

enum { TARGETS = 2 };
static const char *const target_keys[TARGETS] = {"ttft", "tpot"};

static json_t *options_of(const struct invocation *in, const char *real_path, uint64_t context,
                          uint64_t slice, uint64_t sequences, const double targets_s[TARGETS])
{
    char host[HOST_ID];
    host_id(host);
    json_t *o = json_pack("{s:s, s:s}", "source_machine", host, "source_path", real_path);
    static const char *const texts[] = {"agents", "layers",    "compute", "wire",
                                        "kv",     "speculate", "prefill", "rebalance"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (invocation_option(in, texts[i]))
            json_object_set_new(o, texts[i], json_string(invocation_option(in, texts[i])));
    const char *decode = invocation_option(in, "decode");
    if (decode)
        json_object_set_new(o, strcmp(decode, "auto") == 0 ? "decode" : "agents",
                            json_string(decode));
    if (invocation_option(in, "prefill-kv"))
        json_object_set_new(o, "prefill_kv", json_string(invocation_option(in, "prefill-kv")));
    if (invocation_option(in, "replicate-to"))
        json_object_set_new(o, "replicate_to", json_string(invocation_option(in, "replicate-to")));
    if (invocation_option(in, "prefix-cache"))
        json_object_set_new(o, "prefix_cache", json_string(invocation_option(in, "prefix-cache")));
    if (invocation_option(in, "weight"))
        json_object_set_new(o, "weight", number_json(in, "weight"));
    if (invocation_option(in, "copies"))
        json_object_set_new(o, "copies", number_json(in, "copies"));
    for (size_t i = 0; i < TARGETS; i++)
        if (targets_s[i] > 0)
            json_object_set_new(o, target_keys[i], json_real(targets_s[i] * 1e3));
    if (context)
        json_object_set_new(o, "max_context", json_integer((json_int_t)context));
    if (sequences)
        json_object_set_new(o, "max_sequences", json_integer((json_int_t)sequences));
    if (slice)
        json_object_set_new(o, "slice", json_integer((json_int_t)slice));
    if (invocation_flag(in, "upload"))
        json_object_set_new(o, "upload_only", json_true());
    return o;
}

/* A plan file goes along, but for what explains it. */
static int add_plan(const char *file, json_t *options, struct err *e)
{
    struct json_at at;
    struct plan_pipeline plan;
    struct arena arena = {0};
    json_t *root;
    int rc = json_load_at(file, &root, &at, e);
    if (rc < 0)
        return rc;
    rc = plan_pipeline_from_json(&at, &arena, &plan, e);
    arena_free(&arena);
    json_object_del(root, "why");
    json_object_del(root, "inputs");
    if (rc == 0)
        json_object_set(options, "plan", root);
    json_decref(root);
    return rc;
}

/* All that was asked for, before anything takes its time. */
static int options_read(const struct invocation *in, struct deploying *d, const char *real_path,
                        struct err *e)
{
    uint64_t context, slice, sequences, replicate, groups;
    double targets_s[TARGETS];
    int rc = name_read(in, d, e);
    if (rc < 0 || (rc = invocation_u64(in, "max-context", 0, &context, e)) < 0 ||
        (rc = invocation_u64(in, "slice", 0, &slice, e)) < 0 ||
        (rc = invocation_u64(in, "max-sequences", 0, &sequences, e)) < 0 ||
        (rc = invocation_u64(in, "replicate-kv", 0, &replicate, e)) < 0 ||
        (rc = invocation_range(in, "expert-groups", 0, 1, EXPERT_GROUPS_MAX, &groups, e)) < 0)
        return rc;
    for (size_t i = 0; i < TARGETS; i++)
        if ((rc = invocation_duration(in, target_keys[i], 0, &targets_s[i], e)) < 0)
            return rc;
    if (invocation_option(in, "max-sequences") && sequences == 0)
        return err_set(e, HP_EUSAGE, "--max-sequences: at least 1 must be answered at once");
    if (invocation_option(in, "decode") && !invocation_option(in, "prefill"))
        return err_set(e, HP_EUSAGE,
                       "--decode goes with --prefill, which names the agents that read prompts");
    if (invocation_option(in, "prefill-kv") && !invocation_option(in, "prefill"))
        return err_set(
            e, HP_EUSAGE,
            "--prefill-kv goes with --prefill, which names the agents that read prompts");
    if (invocation_option(in, "decode") && invocation_option(in, "agents"))
        return err_set(e, HP_EUSAGE,
                       "--agents and --decode say the same thing twice: give one of them");
    if (invocation_option(in, "decode") && invocation_option(in, "layers"))
        return err_set(e, HP_EUSAGE,
                       "--layers and --decode both say who answers: give one of them");
    if (slice > MAX_SLICE_TOKENS)
        return err_set(e, HP_EUSAGE, "--slice: %llu is more than %d tokens",
                       (unsigned long long)slice, MAX_SLICE_TOKENS);
    d->options = options_of(in, real_path, context, slice, sequences, targets_s);
    if (replicate)
        json_object_set_new(d->options, "replicate_kv", json_integer((json_int_t)replicate));
    if (groups)
        json_object_set_new(d->options, "expert_groups", json_integer((json_int_t)groups));
    if (!d->options)
        return err_set(e, HP_EINVAL, "the model's path is not valid UTF-8");
    return invocation_option(in, "plan") ? add_plan(invocation_option(in, "plan"), d->options, e)
                                         : 0;
}

static int no_model(const char *path, struct err *e)
{
    int rc = err_set(e, HP_ENOENT, "%s: no such model file or folder", path);
    err_hint(e, "it is a GGUF file or a Hugging Face folder on this box: nothing is downloaded");
    return rc;
}

/* What may be asked of it next. */
static void next_print(const json_t *result, const struct client *client)
{
    const struct context *to = client_context(client);
    const char *name = string_member(result, "name"),
               *key = to->api_key[0] ? "-H \"Authorization: Bearer $HP_API_KEY\" " : "";
    if (strcmp(string_member(result, "task"), "embed") == 0)
        printf("  curl %s%s/v1/embeddings -d '{\"model\": \"%s\", \"input\": \"Hello\"}'\n", key,
               to->http, name);
    else
        printf("  hpctl run %s \"Hello\"\n  curl %s%s/v1/models\n", name, key, to->http);
}

static int run_deploy(struct invocation *in, struct err *e)
{
    struct deploying d = {.path = in->arguments[0], .json = in->json};
    struct client *client = NULL;
    json_t *result = NULL;
    char *real_path = realpath(d.path, NULL);
    progress_init(&d.bar, in->json);
    int rc = real_path ? 0 : no_model(d.path, e);
    if (rc == 0 && (rc = options_read(in, &d, real_path, e)) == 0 &&
        (rc = client_open(
             invocation_option_or(in, "context", invocation_option(in, "cluster-context")), &client,
             e)) == 0)
        rc = deploying_run(&d, client, &result, e);
    if (rc == 0 && in->json) {
        rc = invocation_print_json(in, json_incref(result), e);
    } else if (rc == 0) {
        rc = deployment_print_stages(result, e);
        deployment_print_apart(result);
        printf("\n%s serves; context %s tokens%s, %s uploaded\n", string_member(result, "name"),
               shown_member(result, "context").s,
               invocation_option(in, "plan") && !invocation_option(in, "max-context")
                   ? " (the plan's prompt; --max-context N for more)"
                   : "",
               shown_bytes((double)d.uploaded_bytes).s);
        next_print(result, client);
    }
    json_decref(result);
    json_decref(d.options);
    client_close(&client);
    free(real_path);
    return rc;
}

static const struct command_option deploy_options[] = {
    {"name", "NAME", "what the deployment is called (default: the file's name)", 0},
    {"agents", "A,B/cpu1",
     "one stage on each device of these agents, or on these devices (`node describe` lists them), "
     "in "
     "this order",
     0},
    {"layers", "0-22:A,23-45:B/cpu1",
     "which layers on which agent or device, both ends included (`model describe` lists layers)",
     0},
    {"expert-groups", "N",
     "the experts of each block of a mixture in N groups, which are layers of their own: --layers "
     "counts them (default: in one, or in as many as let a plan fit)",
     0},
    {"plan", "PLAN.json",
     "the stages of a plan on its devices (node/device), and its slices for prompts of its length",
     0},
    {"prefill", "A,B|auto",
     "prompts are read by a second plan, one stage on each of these; keys and values go to the "
     "others while they are computed. auto: the planner says who reads and who answers where that "
     "pays, for --ttft and --tpot too, and why it does or does not",
     0},
    {"decode", "C,D|auto",
     "with --prefill: the agents that answer (the same as --agents); auto: the planner's choice "
     "among those that --prefill does not name",
     0},
    {"prefill-kv", "auto|f16|q8_0|f32",
     "with --prefill: as what these keep keys and values (default: as --kv says); what crosses is "
     "the smaller of the two",
     0},
    {"max-context", "N", "longest prompt with its answer, in tokens (default: what fits)", 0},
    {"max-sequences", "N",
     "answered at once; more wait (default: what the KV cache is good for, at most 32)", 0},
    {"compute", "f32|auto",
     "f32: float32 throughout; auto: the fastest path of the device (default)", 0},
    {"wire", "f32|f16|bf16|q8|auto",
     "as what activations cross between stages: f32 (default); f16 or bf16, half the bytes; q8, "
     "little more than a quarter; auto: f16 where a link holds the plan up, q8 where it still does",
     0},
    {"kv", "auto|f16|q8_0|f32",
     "as what keys and values are kept: auto is f16 (default; with --compute f32: f32), q8_0: "
     "about "
     "half the bytes, so twice the tokens, at a small loss",
     0},
    {"slice", "S", "tokens of a prompt slice (default: planned)", 0},
    {"prefix-cache", "on|shared|off",
     "prompts that begin alike share what is computed: those of one API key (on, the default), of "
     "all (shared), none (off)",
     0},
    {"speculate", "auto|off|lookup",
     "verify guesses of the next tokens, taken from where the text repeats itself, in one step: "
     "where stages would be idle and it pays (auto, the default), wherever it repeats (lookup), "
     "never (off); the tokens are the same",
     0},
    {"rebalance", "auto|degraded|off",
     "move by itself: away from a device that has become several times slower or a link that loses "
     "packets or is late, where another place is half as fast again (degraded, the default unless "
     "--agents, --layers, --plan or --prefill say where); also where agents that came make a "
     "request a quarter faster, once they have stayed for a while (auto); never (off: `hpctl "
     "rebalance` does it)",
     0},
    {"copies", "1|2",
     "of each layer in agents' stores (default 1): with 2 another agent fetches it, too, once the "
     "model serves, so that any one agent may be lost and those that are left (of --agents, where "
     "given) have all of it",
     0},
    {"replicate-kv", "TOKENS",
     "sequences of so many tokens have their keys and values copied to another deployment of the "
     "model, while nothing else is to be sent, so that they go on from there when an agent is lost "
     "(default: prompt and answer are computed anew)",
     0},
    {"replicate-to", "AGENT|auto",
     "who keeps these copies without the model's weights, in up to half of the memory that it has "
     "free: this agent (or device), or one that the coordinator finds (default: another deployment "
     "of the model)",
     0},
    {"weight", "W",
     "of its share of the devices' time where other deployments have stages on them, too (default "
     "1): with 3 it gets three times the time of one with 1 while both have something to do",
     0},
    {"ttft", "TIME",
     "time to the first token, e.g. 2s, that every request is to have: one that would get it later "
     "is refused at once (429, with Retry-After) instead of waiting (default: all wait, a minute "
     "at most)",
     0},
    {"tpot", "TIME",
     "time per token, e.g. 50ms, that answers are to keep: no more run at once than that allows, "
     "and slices of prompts beside them are cut by the planner's times (default: as many as have "
     "room; slices beside them for 100ms where --slice says nothing)",
     0},
    {"upload", NULL, "send the bytes even where agents could read the file themselves", 0},
    {"wait", NULL, "return when it serves (this is what happens anyway)", 0},
    {"context", "NAME", "of the cluster (default: the current one)", 0},
    {"cluster-context", "NAME", "the old name of --context", 0},
    {0},
};
const struct command deploy_verbs[] = {
    {"deploy", "MODEL", 1, 1, "bring a model file or folder to life on the cluster",
     "Reads the model's header, plans where its layers go, moves the bytes that each agent lacks, "
     "loads and warms up. A second deployment of the same model moves nothing.",
     "  hpctl deploy llama-3.2-1b-q8_0.gguf --name llama\n  hpctl deploy model.gguf --agents "
     "a0,a1,a2\n  hpctl deploy model.gguf --layers 0-8:a0,9-17:a1 --max-context 4096 -o json\n  "
     "hpctl deploy model.gguf --plan plan.json\n  hpctl deploy model.gguf --prefill a0,a1 "
     "--decode a2",
     deploy_options, run_deploy, false},
    {0},
};
