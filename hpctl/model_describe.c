#include "hpctl/model_describe.h"

#include <stdio.h>
#include <string.h>

#include "hpctl/onnx_describe.h"
#include "hpctl/shown.h"
#include "model/model.h"

struct type_sum {
    const char *format;
    int count;
    uint64_t parameters, bytes;
};

/* More formats than there are; the rest would be summed in the last row. */
enum { FORMATS_MAX = 64 };

struct type_sums {
    struct type_sum all, by_type[FORMATS_MAX];
    int n;
};

static struct type_sum *sum_of(struct type_sums *s, const char *format)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->by_type[i].format, format) == 0)
            return &s->by_type[i];
    if (s->n == FORMATS_MAX)
        return &s->by_type[FORMATS_MAX - 1];
    s->by_type[s->n].format = format;
    return &s->by_type[s->n++];
}

/* Sums by number format, in the order met. */
static void sum_types(const struct model *m, struct type_sums *sums)
{
    int n;
    const struct weight *w = model_weights(m, &n);
    for (int i = 0; i < n; i++) {
        uint64_t elements = 1;
        for (int d = 0; d < w[i].n_dims; d++)
            elements *= w[i].shape[d];
        struct type_sum *both[] = {sum_of(sums, w[i].format), &sums->all};
        for (int s = 0; s < 2; s++) {
            both[s]->count++;
            both[s]->parameters += elements;
            both[s]->bytes += w[i].bytes;
        }
    }
}

/* ---- JSON ---- */

/* Text of a file that may not be UTF-8. */
static json_t *text_json(const char *s)
{
    json_t *v = s ? json_string(s) : json_null();
    return v ? v : json_string("(not UTF-8)");
}

static void set_u64(json_t *o, const char *key, uint64_t v)
{
    json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *rope_json(const struct rope_config *r)
{
    json_t *o = json_object(), *factors = r->factors ? json_array() : json_null();
    json_object_set_new(o, "style",
                        json_string(r->style == ROPE_PAIRS  ? "pairs"
                                    : r->style == ROPE_NONE ? "none"
                                                            : "halves"));
    set_u64(o, "dims", (uint64_t)r->dims);
    json_object_set_new(o, "base", json_real(r->base));
    json_object_set_new(o, "scale", json_real(r->scale));
    for (int i = 0; r->factors && i < r->dims / 2; i++)
        json_array_append_new(factors, json_real((double)r->factors[i]));
    json_object_set_new(o, "factors", factors);
    return o;
}

static void config_json(json_t *o, const struct model_config *c)
{
    const struct {
        const char *key;
        int value;
    } sizes[] = {
        {"vocabulary", c->vocabulary}, {"width", c->width},         {"blocks", c->n_blocks},
        {"heads", c->n_heads},         {"kv_heads", c->n_kv_heads}, {"head_dim", c->head_dim},
        {"mlp_width", c->mlp_width},   {"context", c->context},
    };
    json_object_set_new(o, "architecture", json_string(c->architecture));
    json_object_set_new(o, "name", text_json(c->name));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        set_u64(o, sizes[i].key, (uint64_t)sizes[i].value);
    json_object_set_new(o, "norm_epsilon", json_real((double)c->norm_epsilon));
    json_object_set_new(o, "tied_embeddings", json_boolean(c->tied_embeddings));
    json_object_set_new(o, "rope", rope_json(&c->rope));
}

static json_t *tensors_json(const struct type_sums *sums)
{
    json_t *o = json_object();
    for (int i = 0; i < sums->n; i++) {
        const struct type_sum *t = &sums->by_type[i];
        json_t *row = json_object();
        set_u64(row, "count", (uint64_t)t->count);
        set_u64(row, "parameters", t->parameters);
        set_u64(row, "bytes", t->bytes);
        json_object_set_new(o, t->format, row);
    }
    return o;
}

static json_t *tokenizer_json(struct model *m)
{
    const struct tokenizer *t;
    struct err problem = {0};
    json_t *o = json_object();
    if (model_tokenizer(m, &t, &problem) < 0) {
        json_object_set_new(o, "error", text_json(problem.text));
        return o;
    }
    json_object_set_new(o, "kind", json_string(tokenizer_kind(t)));
    set_u64(o, "tokens", (uint64_t)tokenizer_vocabulary(t));
    json_object_set_new(o, "bos", text_json(tokenizer_bos_text(t)));
    json_object_set_new(o, "eos", text_json(tokenizer_eos_text(t)));
    int n;
    const uint32_t *ends = tokenizer_end_ids(t, &n);
    json_t *ids = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(ids, json_integer(ends[i]));
    json_object_set_new(o, "end_ids", ids);
    return o;
}

/* The values that cross the border after a layer: [{"name", "type", "shape": ["tokens", 64]}]. */
static json_t *outputs_json(const struct graph *g, const struct graph_layer *l)
{
    json_t *list = json_array();
    for (int i = 0; i < l->n_outputs; i++) {
        const struct graph_value *v = &g->values[l->outputs[i]];
        json_t *shape = json_array();
        for (int d = 0; d < v->n_dims; d++)
            json_array_append_new(shape, v->dims[d].size
                                             ? json_integer((json_int_t)v->dims[d].size)
                                             : json_string(g->symbols[v->dims[d].symbol]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", v->name, "type",
                                              dtype_info(v->dtype)->name, "shape", shape));
    }
    return list;
}

static json_t *layers_json(const struct graph *g)
{
    json_t *list = json_array();
    for (int i = 0; i < g->n_layers; i++) {
        const struct graph_layer *l = &g->layers[i];
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(l->name));
        json_object_set_new(o, "class", json_string(l->class_name));
        set_u64(o, "param_bytes", l->param_bytes);
        if (l->experts > 0) {
            json_object_set_new(o, "experts", json_integer(l->experts));
            json_object_set_new(o, "experts_used", json_integer(l->experts_used));
            set_u64(o, "expert_bytes", l->expert_bytes);
        }
        set_u64(o, "state_bytes_per_token", l->state_bytes_per_token);
        set_u64(o, "output_bytes_per_token", l->output_bytes_per_token);
        json_object_set_new(o, "flops_per_token", json_real(l->flops_per_token));
        json_object_set_new(o, "outputs", outputs_json(g, l));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *files_json(const struct model *m)
{
    json_t *list = json_array();
    int n;
    const struct model_file *files = model_files(m, &n);
    for (int i = 0; i < n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "name", text_json(files[i].name));
        set_u64(o, "bytes", files[i].bytes);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *describe_json(struct model *m)
{
    struct type_sums sums = {0};
    sum_types(m, &sums);
    json_t *o = json_object();
    json_object_set_new(o, "path", text_json(model_path(m)));
    config_json(o, model_config(m));
    set_u64(o, "parameters", sums.all.parameters);
    set_u64(o, "weight_bytes", sums.all.bytes);
    set_u64(o, "bytes", model_files_bytes(m));
    set_u64(o, "tensor_count", (uint64_t)sums.all.count);
    json_object_set_new(o, "tensors", tensors_json(&sums));
    json_object_set_new(o, "tokenizer", tokenizer_json(m));
    json_object_set_new(o, "chat_template", text_json(model_chat_template(m)));
    json_object_set_new(o, "layers", layers_json(model_graph(m)));
    json_object_set_new(o, "files", files_json(m));
    return o;
}

/* ---- for a person ---- */

static void print_row(const char *label, const char *text)
{
    printf("%-14s %s\n", label, shown_plain(text).s);
}

static void print_config(const struct model_config *c)
{
    print_row("architecture", c->architecture);
    if (*c->name)
        print_row("name", c->name);
    printf("%-14s width %d, %d blocks, %d heads (%d for keys and values) of size %d, MLP %d\n",
           "sizes", c->width, c->n_blocks, c->n_heads, c->n_kv_heads, c->head_dim, c->mlp_width);
    printf("%-14s %d tokens%s, context %d\n", "vocabulary", c->vocabulary,
           c->tied_embeddings ? " (head tied to embedding)" : "", c->context);
    if (c->rope.style == ROPE_NONE) {
        print_row("positions", "learned");
        return;
    }
    printf("%-14s base %g over %d dimensions", "rope", c->rope.base, c->rope.dims);
    if (c->rope.scale != 1)
        printf(", positions divided by %g", c->rope.scale);
    if (c->rope.factors)
        printf(", frequencies divided by up to %g", (double)c->rope.factors[c->rope.dims / 2 - 1]);
    putchar('\n');
}

static void print_tokenizer(struct model *m)
{
    const struct tokenizer *t;
    struct err problem = {0};
    if (model_tokenizer(m, &t, &problem) < 0) {
        print_row("tokenizer", problem.text);
        return;
    }
    int n;
    const uint32_t *ends = tokenizer_end_ids(t, &n);
    printf("%-14s %s, %d tokens, ends at", "tokenizer", tokenizer_kind(t), tokenizer_vocabulary(t));
    for (int i = 0; i < n; i++)
        printf(" %u", ends[i]);
    puts(n ? "" : " none");
}

static void print_layers(const struct graph *g)
{
    printf("\n%6s  %-16s %14s %14s %14s %16s\n", "layer", "name", "weight bytes", "KV B/token",
           "out B/token", "flops/token");
    for (int i = 0; i < g->n_layers; i++) {
        const struct graph_layer *l = &g->layers[i];
        printf("%6d  %-16s %14llu %14llu %14llu %16.0f\n", i, l->name,
               (unsigned long long)l->param_bytes, (unsigned long long)l->state_bytes_per_token,
               (unsigned long long)l->output_bytes_per_token, l->flops_per_token);
    }
}

static void print_all(struct model *m)
{
    struct type_sums sums = {0};
    sum_types(m, &sums);
    int n_files;
    model_files(m, &n_files);
    print_row("model", model_path(m));
    print_config(model_config(m));
    printf("%-14s %llu in %d tensors\n", "parameters", (unsigned long long)sums.all.parameters,
           sums.all.count);
    printf("%-14s %llu bytes in %d file%s, %llu of them weights\n", "size",
           (unsigned long long)model_files_bytes(m), n_files, n_files == 1 ? "" : "s",
           (unsigned long long)sums.all.bytes);
    for (int i = 0; i < sums.n; i++)
        printf("  %-12s %d tensors, %llu bytes\n", sums.by_type[i].format, sums.by_type[i].count,
               (unsigned long long)sums.by_type[i].bytes);
    print_tokenizer(m);
    print_row("chat template", model_chat_template(m) ? model_chat_template(m) : "none");
    print_layers(model_graph(m));
}

int model_describe_run(struct invocation *in, struct err *e)
{
    if (onnx_describe_takes(in->arguments[0]))
        return onnx_describe_run(in, e);
    struct model *m;
    uint64_t groups;
    int rc = invocation_range(in, "expert-groups", 1, 1, MODEL_EXPERTS_MAX, &groups, e);
    if (rc < 0 || (rc = model_open_sizes(in->arguments[0], (int)groups, &m, e)) < 0)
        return rc;
    if (in->json || in->output)
        rc = invocation_print_json(in, describe_json(m), e);
    else
        print_all(m);
    model_close(&m);
    return rc;
}
