#include "agent/engine/local.h"

#include <stdlib.h>

#include "agent/engine/sampler.h"
#include "model/graph/kinds.h"
#include "model/pooling.h"

enum { THE_SEQUENCE = 1 };

struct local_chain {
    struct local_config config;
    uint32_t slice, length; /* tokens so far */
    int vocabulary;
    size_t row_width;      /* of what the head gives */
    struct stage **stages; /* [n_stages] */
    float *between[2];     /* what crosses from stage to stage, taken in turns */
};

/* First layer of stage i; of the one after the last, the model's end. */
static int first_layer(const struct local_chain *c, int i)
{
    return (int)((int64_t)model_graph(c->config.model)->n_layers * i / c->config.n_stages);
}

/* Elements of a token that cross the widest border. */
static size_t border_most(const struct local_chain *c)
{
    uint64_t most = 1;
    for (int i = 1; i < c->config.n_stages; i++) {
        uint64_t width = graph_border_width(model_graph(c->config.model), first_layer(c, i) - 1);
        most = width > most ? width : most;
    }
    return most;
}

static int open_stage(struct local_chain *c, int i, struct err *e)
{
    struct stage_config stage = {.model = c->config.model,
                                 .first_layer = first_layer(c, i),
                                 .end_layer = first_layer(c, i + 1),
                                 .device = c->config.device,
                                 .compute = c->config.compute,
                                 .kv_given = c->config.kv_given,
                                 .kv = c->config.kv,
                                 .kv_tokens = c->config.max_tokens,
                                 .max_sequences = 1,
                                 .max_batch_tokens = c->slice};
    int rc = stage_load(&stage, &c->stages[i], e);
    return rc < 0 ? rc : stage_sequence_open(c->stages[i], THE_SEQUENCE, c->config.max_tokens, e);
}

int local_chain_open(const struct local_config *config, struct local_chain **out, struct err *e)
{
    int layers = model_graph(config->model)->n_layers;
    if (config->n_stages < 1 || config->n_stages > layers)
        return err_set(e, HP_EINVAL, "%d stages: a model of %d layers can be cut into 1 to %d",
                       config->n_stages, layers, layers);
    if (config->max_tokens == 0)
        return err_set(e, HP_EINVAL, "there are no tokens to run");
    struct local_chain *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HP_ENOMEM, "no memory for a chain of stages");
    c->config = *config;
    c->slice = config->slice == 0 || config->slice > config->max_tokens ? config->max_tokens
                                                                        : config->slice;
    c->vocabulary = model_config(config->model)->vocabulary;
    c->row_width = (size_t)graph_head_width(model_graph(config->model));
    c->stages = calloc((size_t)config->n_stages, sizeof *c->stages);
    for (int i = 0; i < 2; i++)
        c->between[i] = calloc((size_t)c->slice * border_most(c), sizeof(float));
    int rc = c->stages && c->between[0] && c->between[1]
                 ? 0
                 : err_set(e, HP_ENOMEM, "no memory for a chain of stages");
    for (int i = 0; i < config->n_stages && rc == 0; i++)
        rc = open_stage(c, i, e);
    if (rc < 0)
        local_chain_close(&c);
    else
        *out = c;
    return rc;
}

void local_chain_close(struct local_chain **self)
{
    struct local_chain *c = *self;
    *self = NULL;
    if (!c)
        return;
    for (int i = 0; c->stages && i < c->config.n_stages; i++)
        stage_unload(&c->stages[i]);
    free(c->stages);
    free(c->between[0]);
    free(c->between[1]);
    free(c);
}

static int run_slice(struct local_chain *c, const uint32_t *ids, uint32_t n, uint32_t n_logits,
                     float *logits, struct err *e)
{
    const void *input = ids;
    for (int i = 0; i < c->config.n_stages; i++) {
        bool last = i == c->config.n_stages - 1;
        struct batch_run run = {.sequence = THE_SEQUENCE,
                                .first_position = c->length,
                                .n_tokens = n,
                                .n_logits = last ? n_logits : 0};
        float *output = last ? logits : c->between[i % 2];
        int rc = stage_run(c->stages[i], &run, 1, input, output, e);
        if (rc < 0)
            return rc;
        input = output;
    }
    c->length += n;
    return 0;
}

int local_chain_run(struct local_chain *c, const uint32_t *ids, uint32_t n, uint32_t n_logits,
                    float *logits, struct err *e)
{
    for (uint32_t at = 0; at < n; at += c->slice) {
        uint32_t tokens = n - at < c->slice ? n - at : c->slice, after = n - at - tokens;
        uint32_t wanted = n_logits > after ? n_logits - after : 0;
        if (wanted > tokens)
            wanted = tokens;
        int rc = run_slice(c, ids + at, tokens, wanted, logits, e);
        if (rc < 0)
            return rc;
        logits += (size_t)wanted * c->row_width;
    }
    return 0;
}

int local_chain_greedy(struct local_chain *c, const uint32_t *prompt, uint32_t n_prompt,
                       uint32_t *out, uint32_t n_new, struct err *e)
{
    float *logits = calloc((size_t)c->vocabulary, sizeof *logits);
    struct sampler *sampler = NULL;
    int rc = logits ? sampler_create(&sampling_greedy, c->vocabulary, prompt, n_prompt, &sampler, e)
                    : err_set(e, HP_ENOMEM, "no memory for the logits of %d tokens", c->vocabulary);
    if (rc == 0)
        rc = local_chain_run(c, prompt, n_prompt, 1, logits, e);
    for (uint32_t i = 0; i < n_new && rc == 0; i++) {
        out[i] = sampler_pick(sampler, logits);
        if (i + 1 < n_new)
            rc = local_chain_run(c, &out[i], 1, 1, logits, e);
    }
    sampler_destroy(&sampler);
    free(logits);
    return rc;
}

int local_chain_embed(struct local_chain *c, const uint32_t *ids, uint32_t n, float *row,
                      struct err *e)
{
    const struct model_config *m = model_config(c->config.model);
    float *rows = calloc((size_t)n * c->row_width, sizeof *rows);
    int rc = rows ? 0 : err_set(e, HP_ENOMEM, "no memory for the rows of %u tokens", n);
    if (rc == 0)
        rc = local_chain_run(c, ids, n, n, rows, e);
    if (rc == 0)
        pooling_apply(m->pooling, rows, n, c->row_width, row);
    if (rc == 0 && !m->unnormalised)
        pooling_normalise(row, c->row_width);
    free(rows);
    return rc;
}
