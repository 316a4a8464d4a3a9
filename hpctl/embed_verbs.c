/* `hpctl model embed`: texts to rows by an encoder or a decoder that pools, on this machine's CPU
 * without a cluster. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "agent/engine/local.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"
#include "model/graph/kinds.h"
#include "model/model.h"

struct embedder {
    struct model *model;
    const struct tokenizer *tokenizer;
    struct device *device;
    const struct invocation *in;
    int n_stages;
    enum stage_compute compute;
    size_t width;
};

static int embedder_open(const struct invocation *in, struct embedder *m, struct err *e)
{
    static const char *const computes[] = {"auto", "f32", NULL};
    uint64_t stages, threads;
    int compute, rc = invocation_u64(in, "stages", 1, &stages, e);
    if (rc < 0 || (rc = invocation_u64(in, "threads", 0, &threads, e)) < 0 ||
        (rc = invocation_choice(in, "compute", computes, 0, &compute, e)) < 0 ||
        (rc = model_open(in->arguments[0], &m->model, e)) < 0)
        return rc;
    if (threads > 256 || stages < 1 || stages > INT32_MAX)
        return err_set(e, HP_EUSAGE, "--stages must be at least 1, --threads at most 256");
    if (model_config(m->model)->pooling == POOLING_NONE) {
        err_set(e, HP_EUNSUPPORTED,
                "%s: architecture \"%s\" is no encoder, and its files name no pooling",
                in->arguments[0], model_config(m->model)->architecture);
        return err_hint(e, "embeddings are made by encoders (BERT, RoBERTa, DistilBERT), and by "
                           "models such as Qwen3-Embedding whose files say how rows are pooled");
    }
    if ((rc = model_tokenizer(m->model, &m->tokenizer, e)) < 0)
        return rc;
    struct device_config device = {
        .backend = "cpu", .n_threads = (int)threads, .kernels = invocation_option(in, "kernels")};
    m->in = in;
    m->n_stages = (int)stages;
    m->compute = compute == 1 ? COMPUTE_F32 : COMPUTE_AUTO;
    m->width = (size_t)graph_head_width(model_graph(m->model));
    return device_open(&device, &m->device, e);
}

static void embedder_close(struct embedder *m)
{
    device_close(&m->device);
    model_close(&m->model);
}

static int ids_embed(const struct embedder *m, const struct buffer *ids, float *row, struct err *e)
{
    uint32_t n = (uint32_t)(ids->size / sizeof(uint32_t));
    int context = model_config(m->model)->context;
    if (n == 0 || n > (uint32_t)context)
        return err_set(e, HP_EINVAL, "a text of %u tokens; the model reads 1 to %d at once", n,
                       context);
    struct local_config config = {.model = m->model,
                                  .device = m->device,
                                  .n_stages = m->n_stages,
                                  .compute = m->compute,
                                  .max_tokens = n};
    struct local_chain *chain;
    int rc = local_chain_open(&config, &chain, e);
    if (rc < 0)
        return rc;
    rc = local_chain_embed(chain, (const uint32_t *)(const void *)ids->data, n, row, e);
    local_chain_close(&chain);
    return rc;
}

/* {"embedding": [...], "tokens": N} */
static int text_embed(const struct embedder *m, const char *text, size_t size, json_t **out,
                      struct err *e)
{
    struct buffer ids = {0};
    float *row = calloc(m->width, sizeof *row);
    int rc = row ? tokenizer_encode(m->tokenizer, text, size, true, &ids, e)
                 : err_no_memory(e, "a row of %zu numbers", m->width);
    rc = rc < 0 ? rc : ids_embed(m, &ids, row, e);
    json_t *list = rc < 0 ? NULL : json_array();
    for (size_t i = 0; list && i < m->width; i++)
        json_array_append_new(list, json_real((double)row[i]));
    if (rc == 0)
        *out = json_pack("{s:o, s:I}", "embedding", list, "tokens",
                         (json_int_t)(ids.size / sizeof(uint32_t)));
    buffer_free(&ids);
    free(row);
    return rc;
}

/* One row a line, its numbers with spaces between. */
static void rows_print(const json_t *result)
{
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(result, "embedding"), i, value)
        printf(i ? " %.9g" : "%.9g", json_real_value(value));
    putchar('\n');
}

static int arguments_embed(const struct embedder *m, struct err *e)
{
    const struct invocation *in = m->in;
    const char *option = invocation_option(in, "text");
    json_t *all = json_array(), *one = NULL;
    int rc = option ? text_embed(m, option, strlen(option), &one, e) : 0;
    for (int i = 1; !option && rc == 0 && i < in->n_arguments; i++) {
        rc = text_embed(m, in->arguments[i], strlen(in->arguments[i]), &one, e);
        if (rc == 0 && in->n_arguments > 2)
            json_array_append_new(all, one);
        if (rc == 0 && in->n_arguments > 2 && !in->json && !in->output)
            rows_print(one);
    }
    bool several = !option && in->n_arguments > 2;
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, several ? all : (json_decref(all), one), e);
    if (rc == 0 && !several) {
        rows_print(one);
        json_decref(one);
    }
    json_decref(all);
    return rc;
}

static int lines_embed(const struct embedder *m, struct err *e)
{
    char *line = NULL;
    size_t room = 0;
    bool bad = false;
    for (ssize_t n; !bad && (n = getline(&line, &room, stdin)) >= 0;) {
        struct err problem = {0};
        json_error_t wrong;
        json_t *out = NULL, *text = json_loadb(line, (size_t)n, JSON_DECODE_ANY, &wrong);
        if (!json_is_string(text))
            err_set(&problem, HP_EPARSE, "not a JSON string");
        else
            text_embed(m, json_string_value(text), json_string_length(text), &out, &problem);
        if (!out)
            out = json_pack("{s:s}", "error", problem.text);
        bad = json_dumpf(out, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF ||
              fflush(stdout) != 0;
        json_decref(text);
        json_decref(out);
    }
    bool unread = ferror(stdin) != 0;
    free(line);
    return bad || unread
               ? err_set(e, HP_EIO, "standard %s: %s", bad ? "output" : "input", strerror(errno))
               : 0;
}

static int embed_verb(struct invocation *in, struct err *e)
{
    struct embedder m = {0};
    bool lines = invocation_flag(in, "jsonl");
    int given = (in->n_arguments > 1) + (invocation_option(in, "text") != NULL) + lines;
    if (given != 1)
        return err_set(e, HP_EUSAGE, "hpctl model embed takes texts, or --text, or --jsonl");
    struct waiting *w = waiting_begin("loading", 0, in->json);
    int rc = embedder_open(in, &m, e);
    waiting_end(&w);
    if (rc == 0)
        rc = lines ? lines_embed(&m, e) : arguments_embed(&m, e);
    embedder_close(&m);
    return rc;
}

static const struct command_option embed_options[] = {
    {"text", "T", "the text", 0},
    {"jsonl", NULL, "a JSON string a line from standard input, one object a line out", 0},
    {"stages", "N", "cut the layers into N stages, joined as agents would be (1)", 0},
    {"compute", "f32|auto", "float32 throughout, or the fastest path of this CPU (auto)", 0},
    {"threads", "N", "threads to compute with (as many as cores)", 0},
    {"kernels", "NAME",
     "amx, avx512_bf16, avx512, avx_vnni, avx2, or plain: the reference in plain loops (the CPU's "
     "best)",
     0},
    {0},
};

const struct command embed_verbs[] = {
    {.path = "model embed",
     .arguments = "MODEL [TEXT...]",
     .min_arguments = 1,
     .max_arguments = 1024,
     .summary = "texts to embeddings by an encoder (BERT and its likes) or a decoder that pools",
     .details = "One row of numbers for each text, pooled and normalised as the model says; with "
                "-o json {\"embedding\": [..], \"tokens\": N}, or a list of them.\n"
                "A deployment does the same by POST /v1/embeddings.",
     .examples =
         "  hpctl model embed ./all-MiniLM-L6-v2 \"The capital of France is Paris.\" -o json\n"
         "  hpctl model embed bge-small.gguf --jsonl < texts.jsonl",
     .options = embed_options,
     .run = embed_verb},
    {0},
};
