/* `hpctl model logits|greedy`: what a model computes, on this machine's CPU without a cluster, or
 * on live agents. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "agent/engine/local.h"
#include "common/npy.h"
#include "hpctl/model_live.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"
#include "model/model.h"

/* A model, and ids to run through it. */
struct model_run {
    struct model *model;
    struct device *device;
    struct local_chain *chain; /* stages that are joined as agents would be */
    struct buffer ids;         /* u32 each */
    uint32_t n_ids, slice, vocabulary;
};

static const uint32_t *run_ids(const struct model_run *r)
{
    return (const uint32_t *)(const void *)r->ids.data;
}

/* "1,2,3" as `model tokenize` prints them. */
static int parse_ids(const char *text, uint32_t vocabulary, struct model_run *r, struct err *e)
{
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        unsigned long long id = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : UINT64_MAX;
        if (id == UINT64_MAX || (*end != ',' && *end != '\0') || errno)
            return err_set(e, HP_EUSAGE,
                           "--ids: \"%.20s\" is not a list of token ids such as 1,2,3", at);
        if (id >= vocabulary)
            return err_set(e, HP_EINVAL, "--ids: token %llu is beyond the vocabulary of %u", id,
                           vocabulary);
        uint32_t narrow = (uint32_t)id;
        buffer_append(&r->ids, &narrow, sizeof narrow);
        r->n_ids++;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    return r->ids.failed ? err_no_memory(e, "the ids") : 0;
}

static void run_close(struct model_run *r)
{
    local_chain_close(&r->chain);
    device_close(&r->device);
    model_close(&r->model);
    buffer_free(&r->ids);
}

/* Opens model and chain as the options say; `more` tokens follow the ids. */
static int run_open(const struct invocation *in, uint64_t more, struct model_run *r, struct err *e)
{
    static const char *const computes[] = {"auto", "f32", NULL}, *const kvs[] = {"auto", "f16",
                                                                                 "f32", "q8_0",
                                                                                 NULL};
    const char *ids;
    uint64_t stages, slice, threads, groups;
    int compute, kv, rc = invocation_required(in, "ids", &ids, e);
    if (rc < 0 || (rc = invocation_range(in, "stages", 1, 1, INT32_MAX, &stages, e)) < 0 ||
        (rc = invocation_range(in, "slice", 0, 0, UINT32_MAX, &slice, e)) < 0 ||
        (rc = invocation_range(in, "threads", 0, 0, 256, &threads, e)) < 0 ||
        (rc = invocation_range(in, "expert-groups", 1, 1, MODEL_EXPERTS_MAX, &groups, e)) < 0 ||
        (rc = invocation_choice(in, "compute", computes, 0, &compute, e)) < 0 ||
        (rc = invocation_choice(in, "kv", kvs, 0, &kv, e)) < 0 ||
        (rc = model_open_divided(in->arguments[0], (int)groups, &r->model, e)) < 0)
        return rc;
    const struct model_config *config = model_config(r->model);
    if (config->pooling != POOLING_NONE) {
        err_set(e, HP_EUNSUPPORTED, "%s: a model of embeddings, which gives no logits",
                in->arguments[0]);
        return err_hint(e, "`hpctl model embed` makes embeddings with it");
    }
    r->vocabulary = (uint32_t)config->vocabulary;
    rc = parse_ids(ids, r->vocabulary, r, e);
    if (rc < 0)
        return rc;
    if (config->context > 0 && r->n_ids + more > (uint64_t)config->context)
        return err_set(e, HP_EINVAL, "%u ids and %llu new tokens are more than the context of %d",
                       r->n_ids, (unsigned long long)more, config->context);
    r->slice = slice ? (uint32_t)slice : r->n_ids;
    struct device_config device = {
        .backend = "cpu", .n_threads = (int)threads, .kernels = invocation_option(in, "kernels")};
    if ((rc = device_open(&device, &r->device, e)) < 0)
        return rc;
    struct local_config chain = {.model = r->model,
                                 .device = r->device,
                                 .n_stages = (int)stages,
                                 .slice = r->slice,
                                 .compute = compute == 1 ? COMPUTE_F32 : COMPUTE_AUTO,
                                 .kv_given = true,
                                 .max_tokens = r->n_ids + (uint32_t)more};
    kv_format_of_word(kvs[kv], compute == 1, &chain.kv);
    return local_chain_open(&chain, &r->chain, e);
}

/* ---- logits ---- */

/* Each slice's logits go to `each` as they come. */
static int each_slice(struct model_run *r,
                      int (*each)(void *ctx, const float *logits, uint32_t rows, struct err *e),
                      void *ctx, struct err *e)
{
    float *logits =
        calloc((size_t)(r->slice < r->n_ids ? r->slice : r->n_ids) * r->vocabulary, sizeof *logits);
    int rc = logits ? 0 : err_no_memory(e, "the logits of %u tokens", r->slice);
    for (uint32_t at = 0; at < r->n_ids && rc == 0; at += r->slice) {
        uint32_t n = r->n_ids - at < r->slice ? r->n_ids - at : r->slice;
        rc = local_chain_run(r->chain, run_ids(r) + at, n, n, logits, e);
        if (rc == 0)
            rc = each(ctx, logits, n, e);
    }
    free(logits);
    return rc;
}

static int rows_to_npy(void *ctx, const float *logits, uint32_t rows, struct err *e)
{
    return npy_writer_rows(ctx, logits, rows, e);
}

struct json_rows {
    json_t *list;
    uint32_t vocabulary;
};

static int rows_to_json(void *ctx, const float *logits, uint32_t rows, struct err *e)
{
    struct json_rows *j = ctx;
    (void)e;
    for (uint32_t r = 0; r < rows; r++) {
        json_t *row = json_array();
        for (uint32_t i = 0; i < j->vocabulary; i++)
            json_array_append_new(row, json_real((double)logits[(size_t)r * j->vocabulary + i]));
        json_array_append_new(j->list, row);
    }
    return 0;
}

static int logits_to_file(struct model_run *r, const char *path, struct err *e)
{
    struct npy_writer *w;
    int rc = npy_writer_open(path, r->n_ids, r->vocabulary, &w, e);
    if (rc < 0)
        return rc;
    rc = each_slice(r, rows_to_npy, w, e);
    if (rc == 0)
        return npy_writer_close(&w, e);
    npy_writer_abandon(&w);
    return rc;
}

/* A model's path, or a deployment, but not both. */
static int check_source(const struct invocation *in, struct err *e)
{
    if ((in->n_arguments == 1) == invocation_flag(in, "deployment"))
        return err_set(e, HP_EUSAGE, "hpctl %s takes a MODEL or --deployment NAME",
                       in->command->path);
    return 0;
}

static int logits_verb(struct invocation *in, struct err *e)
{
    struct model_run r = {0};
    int source = check_source(in, e);
    if (source < 0 || invocation_flag(in, "deployment"))
        return source < 0 ? source : model_live_logits(in, e);
    if (!in->output && !in->json)
        return err_set(e, HP_EUSAGE, "hpctl model logits needs -o FILE.npy (or -o json)");
    struct waiting *w = waiting_begin("computing", 0, in->json);
    int rc = run_open(in, 0, &r, e);
    if (rc == 0 && in->output)
        rc = logits_to_file(&r, in->output, e);
    waiting_end(&w);
    if (rc == 0 && !in->output) {
        struct json_rows rows = {json_array(), r.vocabulary};
        rc = each_slice(&r, rows_to_json, &rows, e);
        json_t *result = json_object();
        json_object_set_new(result, "logits", rows.list);
        if (rc == 0)
            rc = invocation_print_json(in, result, e);
        else
            json_decref(result);
    }
    run_close(&r);
    return rc;
}

/* ---- greedy ---- */

static int print_tokens(const struct invocation *in, struct model_run *r, const uint32_t *ids,
                        uint32_t n, struct err *e)
{
    const struct tokenizer *t;
    struct buffer text = {0};
    int rc = model_tokenizer(r->model, &t, e);
    if (rc == 0)
        rc = tokenizer_decode(t, ids, n, &text, e);
    if (rc == 0 && (in->json || in->output)) {
        json_t *result = json_object(), *list = json_array();
        for (uint32_t i = 0; i < n; i++)
            json_array_append_new(list, json_integer(ids[i]));
        json_object_set_new(result, "ids", list);
        json_object_set_new(result, "text",
                            json_stringn(text.data ? (const char *)text.data : "", text.size));
        rc = invocation_print_json(in, result, e);
    } else if (rc == 0) {
        printf("%s\n", buffer_cstr(&text));
    }
    buffer_free(&text);
    return rc;
}

static int greedy_verb(struct invocation *in, struct err *e)
{
    struct model_run r = {0};
    uint64_t tokens;
    const char *unused;
    int rc = check_source(in, e);
    if (rc < 0 || invocation_flag(in, "deployment"))
        return rc == 0 ? model_live_greedy(in, e) : rc;
    rc = invocation_required(in, "tokens", &unused, e);
    if (rc < 0 || (rc = invocation_range(in, "tokens", 1, 1, 1 << 24, &tokens, e)) < 0)
        return rc;
    struct waiting *w = waiting_begin("computing", 0, in->json);
    rc = run_open(in, tokens, &r, e);
    uint32_t *ids = calloc(tokens, sizeof *ids);
    if (rc == 0 && !ids)
        rc = err_no_memory(e, "%llu tokens", (unsigned long long)tokens);
    if (rc == 0)
        rc = local_chain_greedy(r.chain, run_ids(&r), r.n_ids, ids, (uint32_t)tokens, e);
    waiting_end(&w);
    if (rc == 0)
        rc = print_tokens(in, &r, ids, (uint32_t)tokens, e);
    free(ids);
    run_close(&r);
    return rc;
}

#define CHAIN_OPTIONS                                                                              \
    {"ids", "1,2,3", "the prompt's token ids", 0},                                                 \
        {"stages", "N", "cut the layers into N stages, joined as agents would be (1)", 0},         \
        {"expert-groups", "N",                                                                     \
         "each block's experts in N groups, between which stages may be cut (1)", 0},              \
        {"slice", "S", "tokens of a slice (all at once)", 0},                                      \
        {"compute", "f32|auto", "float32 throughout, or the fastest path of this CPU (auto)", 0},  \
        {"kv", "f16|q8_0|f32", "as what keys and values are kept (auto: by --compute)", 0},        \
        {"threads", "N", "threads to compute with (as many as cores)", 0},                         \
        {"kernels", "NAME",                                                                        \
         "amx, avx512_bf16, avx512, avx_vnni, avx2, or plain: the reference in plain loops (the "  \
         "CPU's "                                                                                  \
         "best)",                                                                                  \
         0},                                                                                       \
    {                                                                                              \
        "deployment", "NAME", "on the live agents of this deployment instead of a file", 0         \
    }

static const struct command_option logits_options[] = {CHAIN_OPTIONS, {0}};
static const struct command_option greedy_options[] = {
    CHAIN_OPTIONS, {"tokens", "N", "how many tokens to make, end tokens included", 0}, {0}};

const struct command model_run_verbs[] = {
    {.path = "model logits",
     .arguments = "MODEL|--deployment NAME",
     .min_arguments = 0,
     .max_arguments = 1,
     .summary = "compute the logits of every position of a prompt",
     .details = "Writes float32 [tokens, vocabulary] as NumPy's .npy, or as JSON with -o json.",
     .examples = "  hpctl model logits model.gguf --ids 1,15043,3186 -o logits.npy\n"
                 "  hpctl model logits model.gguf --ids 1,15043,3186 --compute f32 --stages 3 "
                 "--slice 2 -o logits.npy\n"
                 "  hpctl model logits --deployment demo --ids 1,15043,3186 -o logits.npy",
     .options = logits_options,
     .run = logits_verb,
     .makes_file = true},
    {.path = "model greedy",
     .arguments = "MODEL|--deployment NAME",
     .min_arguments = 0,
     .max_arguments = 1,
     .summary = "continue a prompt with the likeliest token, exactly --tokens times",
     .examples = "  hpctl model greedy model.gguf --ids 1,15043 --tokens 16\n"
                 "  hpctl model greedy model.gguf --ids 1,15043 --tokens 16 --compute f32 -o json",
     .options = greedy_options,
     .run = greedy_verb},
    {0},
};
