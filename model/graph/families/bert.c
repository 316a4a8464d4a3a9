/* BERT and its likes: encoders whose every token sees the whole text; learned positions, a layer
 * norm after each part, GELU by the error function. What they give is one row for a text (pooling).
 */
#include "model/graph/builder.h"
#include "model/graph/facts_source.h"

static int bert_embed(struct graph_builder *b)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, -1, "embed");
    int x = graph_embed(b, graph_ids(b), "token_embd", c->vocabulary, c->width);
    if (c->token_types > 0)
        x = graph_add(b, x,
                      graph_embed_from(b, graph_ids(b), "token_types", c->token_types, c->width,
                                       (struct op_embed){.same = true}));
    int place =
        graph_embed_from(b, graph_positions(b), "position_embd", c->context + c->first_position,
                         c->width, (struct op_embed){.first = c->first_position});
    return graph_layer_norm(b, graph_add(b, x, place), "token_embd_norm");
}

static int bert_attention(struct graph_builder *b, int block, int x)
{
    int width = b->facts->config.width;
    graph_layer_begin(b, block, "attn");
    int q = graph_matmul(b, x, "attn_q", width, BIAS_ALWAYS);
    int k = graph_matmul(b, x, "attn_k", width, BIAS_ALWAYS);
    int v = graph_matmul(b, x, "attn_v", width, BIAS_ALWAYS);
    int mixed = graph_attention_whole(b, q, k, v);
    return graph_layer_norm(b, graph_matmul_add(b, mixed, "attn_output", BIAS_ALWAYS, x),
                            "attn_output_norm");
}

static int bert_mlp(struct graph_builder *b, int block, int x)
{
    graph_layer_begin(b, block, "mlp");
    int up = graph_matmul(b, x, "ffn_up", b->facts->config.mlp_width, BIAS_ALWAYS);
    int down = graph_matmul_add(b, graph_gelu_exact(b, up), "ffn_down", BIAS_ALWAYS, x);
    return graph_layer_norm(b, down, "layer_output_norm");
}

static void bert_build(struct graph_builder *b)
{
    int x = bert_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = bert_attention(b, block, x);
        x = bert_mlp(b, block, x);
    }
    graph_layer_begin(b, -1, "head");
    graph_output(b, graph_rows(b, x, graph_wanted(b)));
}

/* ---- settings ---- */

static int refuse_decoders(const struct facts_source *s)
{
    const struct facts_key causal = {"attention.causal", NULL}, decoder = {NULL, "is_decoder"};
    bool is_causal, is_decoder;
    int rc = facts_flag(s, causal, false, &is_causal);
    rc = rc < 0 ? rc : facts_flag(s, decoder, false, &is_decoder);
    if (rc == 0 && (is_causal || is_decoder))
        return facts_refuse(s, is_causal ? causal : decoder,
                            "a BERT whose tokens see what is before them alone");
    return rc;
}

static int bert_facts(const struct facts_source *s, struct family_facts *f)
{
    struct model_config *c = &f->config;
    int rc = refuse_decoders(s);
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){NULL, "type_vocab_size"}, 0, &c->token_types);
    rc = rc < 0 ? rc : facts_pooling(s, POOLING_MEAN, c);
    const struct weight *types =
        s->form == FORM_GGUF ? weight_table_find(s->weights, "token_types.weight") : NULL;
    uint64_t said = 0;
    const uint64_t none = 0;
    if (rc == 0 && s->form == FORM_GGUF)
        rc = gguf_get_u64(s->gguf, s->file, "tokenizer.ggml.token_type_count", &none, &said, s->e);
    if (rc == 0 && said > 0 && !types) {
        err_set(s->e, HP_EPARSE, "%s: tensor token_types.weight is missing", s->file);
        err_hint(s->e, "key tokenizer.ggml.token_type_count says that it is there: fetch the file "
                       "again, or convert the model anew");
        return HP_EPARSE;
    }
    if (types && types->n_dims == 2 && types->shape[0] < MODEL_DIMENSION_MAX)
        c->token_types = (int)types->shape[0];
    return rc;
}

/* DistilBERT has no table of types, whatever its config says. */
static int distilbert_facts(const struct facts_source *s, struct family_facts *f)
{
    int rc = bert_facts(s, f);
    f->config.token_types = 0;
    return rc;
}

/* The first rows of RoBERTa's positions are of no token: as many as the padding's number says, and
 * one more. */
static int roberta_facts(const struct facts_source *s, struct family_facts *f)
{
    int padding, rc = bert_facts(s, f);
    rc = rc < 0 ? rc : facts_count(s, (struct facts_key){NULL, "pad_token_id"}, 1, &padding);
    if (rc < 0)
        return rc;
    f->config.first_position = padding < f->config.context ? padding + 1 : 0;
    f->config.context -= f->config.first_position;
    return 0;
}

/* ---- names ---- */

#define NAMES(prefix)                                                                              \
    {{"token_embd", prefix "embeddings.word_embeddings"}},                                         \
        {{"token_types", prefix "embeddings.token_type_embeddings"}},                              \
        {{"position_embd", prefix "embeddings.position_embeddings"}},                              \
        {{"token_embd_norm", prefix "embeddings.LayerNorm"}},                                      \
        {{"attn_q", "attention.self.query"}}, {{"attn_k", "attention.self.key"}},                  \
        {{"attn_v", "attention.self.value"}}, {{"attn_output", "attention.output.dense"}},         \
        {{"attn_output_norm", "attention.output.LayerNorm"}}, {{"ffn_up", "intermediate.dense"}},  \
        {{"ffn_down", "output.dense"}}, {{"layer_output_norm", "output.LayerNorm"}},               \
    {                                                                                              \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }

static const struct weight_name bert_names[] = {NAMES("bert.")};
static const struct weight_name roberta_names[] = {NAMES("roberta.")};
static const struct weight_name distilbert_names[] = {
    {{"token_embd", "distilbert.embeddings.word_embeddings"}},
    {{"position_embd", "distilbert.embeddings.position_embeddings"}},
    {{"token_embd_norm", "distilbert.embeddings.LayerNorm"}},
    {{"attn_q", "attention.q_lin"}},
    {{"attn_k", "attention.k_lin"}},
    {{"attn_v", "attention.v_lin"}},
    {{"attn_output", "attention.out_lin"}},
    {{"attn_output_norm", "sa_layer_norm"}},
    {{"ffn_up", "ffn.lin1"}},
    {{"ffn_down", "ffn.lin2"}},
    {{"layer_output_norm", "output_layer_norm"}},
    {{NULL}},
};

/* What a text's row is not made of: the pooler of a sentence task, heads that guess words, and
 * numbers of positions. */
static const char *const unneeded[] = {"pooler.dense.weight",
                                       "pooler.dense.bias",
                                       "embeddings.position_ids",
                                       "cls.predictions.bias",
                                       "cls.predictions.transform.dense.weight",
                                       "cls.predictions.transform.dense.bias",
                                       "cls.predictions.transform.LayerNorm.weight",
                                       "cls.predictions.transform.LayerNorm.bias",
                                       "cls.predictions.transform.LayerNorm.gamma",
                                       "cls.predictions.transform.LayerNorm.beta",
                                       "cls.predictions.decoder.weight",
                                       "cls.predictions.decoder.bias",
                                       "cls.seq_relationship.weight",
                                       "cls.seq_relationship.bias",
                                       "lm_head.bias",
                                       "lm_head.dense.weight",
                                       "lm_head.dense.bias",
                                       "lm_head.layer_norm.weight",
                                       "lm_head.layer_norm.bias",
                                       "lm_head.decoder.weight",
                                       "lm_head.decoder.bias",
                                       "vocab_transform.weight",
                                       "vocab_transform.bias",
                                       "vocab_layer_norm.weight",
                                       "vocab_layer_norm.bias",
                                       "vocab_projector.weight",
                                       "vocab_projector.bias",
                                       NULL};

static const struct hub_keys bert_keys = {.width = "hidden_size",
                                          .blocks = "num_hidden_layers",
                                          .heads = "num_attention_heads",
                                          .kv_heads = "num_attention_heads",
                                          .mlp_width = "intermediate_size",
                                          .context = "max_position_embeddings",
                                          .epsilon = "layer_norm_eps",
                                          .activation = "hidden_act",
                                          .activations = {"gelu"},
                                          .default_epsilon = 1e-12};
static const struct hub_keys distilbert_keys = {.width = "dim",
                                                .blocks = "n_layers",
                                                .heads = "n_heads",
                                                .kv_heads = "n_heads",
                                                .mlp_width = "hidden_dim",
                                                .context = "max_position_embeddings",
                                                .epsilon = "layer_norm_eps",
                                                .activation = "activation",
                                                .activations = {"gelu"},
                                                .default_epsilon = 1e-12};

const struct family family_bert = {.name = "bert",
                                   .form_name = {"bert", "bert"},
                                   .block_prefix = {"blk.", "bert.encoder.layer."},
                                   .optional_prefix = {NULL, "bert."},
                                   .names = bert_names,
                                   .rope = {ROPE_NONE, ROPE_NONE},
                                   .epsilon_key = "attention.layer_norm_epsilon",
                                   .hub = &bert_keys,
                                   .unneeded = {NULL, unneeded},
                                   .default_context = 512,
                                   .default_tied = true,
                                   .facts = bert_facts,
                                   .build = bert_build};

#define ROBERTA(c_name, hub_name)                                                                  \
    const struct family c_name = {.name = hub_name,                                                \
                                  .form_name = {NULL, hub_name},                                   \
                                  .block_prefix = {NULL, "roberta.encoder.layer."},                \
                                  .optional_prefix = {NULL, "roberta."},                           \
                                  .names = roberta_names,                                          \
                                  .rope = {ROPE_NONE, ROPE_NONE},                                  \
                                  .hub = &bert_keys,                                               \
                                  .unneeded = {NULL, unneeded},                                    \
                                  .default_context = 512,                                          \
                                  .default_tied = true,                                            \
                                  .facts = roberta_facts,                                          \
                                  .build = bert_build}
ROBERTA(family_roberta, "roberta");
ROBERTA(family_xlm_roberta, "xlm-roberta");
ROBERTA(family_camembert, "camembert");

const struct family family_distilbert = {.name = "distilbert",
                                         .form_name = {NULL, "distilbert"},
                                         .block_prefix = {NULL, "distilbert.transformer.layer."},
                                         .optional_prefix = {NULL, "distilbert."},
                                         .names = distilbert_names,
                                         .rope = {ROPE_NONE, ROPE_NONE},
                                         .hub = &distilbert_keys,
                                         .unneeded = {NULL, unneeded},
                                         .default_context = 512,
                                         .default_tied = true,
                                         .facts = distilbert_facts,
                                         .build = bert_build};
