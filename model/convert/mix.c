/* Which tensor gets which format: a type such as q4_k_m gives more bits to tensors that a model is
 * more sensitive to. The rules are those of llama.cpp's llama-quantize (llama-quant.cpp,
 * llama_tensor_get_type) without an importance matrix, so that files are what others expect under
 * the name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert/convert_int.h"

/* The rows of the table, by which rules ask. */
enum mix {
    MIX_F32,
    MIX_F16,
    MIX_BF16,
    MIX_Q8_0,
    MIX_Q4_0,
    MIX_Q4_1,
    MIX_Q5_0,
    MIX_Q5_1,
    MIX_Q2_K,
    MIX_Q3_K_S,
    MIX_Q3_K_M,
    MIX_Q3_K_L,
    MIX_Q4_K_S,
    MIX_Q4_K_M,
    MIX_Q5_K_S,
    MIX_Q5_K_M,
    MIX_Q6_K,
    MIX_IQ4_NL,
    MIX_IQ4_XS,
    MIX_MXFP4,
    MIX_COUNT
};

static const struct convert_type types[MIX_COUNT] = {
    [MIX_F32] = {"f32", DTYPE_F32, 0},           [MIX_F16] = {"f16", DTYPE_F16, 1},
    [MIX_BF16] = {"bf16", DTYPE_BF16, 32},       [MIX_Q8_0] = {"q8_0", DTYPE_Q8_0, 7},
    [MIX_Q4_0] = {"q4_0", DTYPE_Q4_0, 2},        [MIX_Q4_1] = {"q4_1", DTYPE_Q4_1, 3},
    [MIX_Q5_0] = {"q5_0", DTYPE_Q5_0, 8},        [MIX_Q5_1] = {"q5_1", DTYPE_Q5_1, 9},
    [MIX_Q2_K] = {"q2_k", DTYPE_Q2_K, 10},       [MIX_Q3_K_S] = {"q3_k_s", DTYPE_Q3_K, 11},
    [MIX_Q3_K_M] = {"q3_k_m", DTYPE_Q3_K, 12},   [MIX_Q3_K_L] = {"q3_k_l", DTYPE_Q3_K, 13},
    [MIX_Q4_K_S] = {"q4_k_s", DTYPE_Q4_K, 14},   [MIX_Q4_K_M] = {"q4_k_m", DTYPE_Q4_K, 15},
    [MIX_Q5_K_S] = {"q5_k_s", DTYPE_Q5_K, 16},   [MIX_Q5_K_M] = {"q5_k_m", DTYPE_Q5_K, 17},
    [MIX_Q6_K] = {"q6_k", DTYPE_Q6_K, 18},       [MIX_IQ4_NL] = {"iq4_nl", DTYPE_IQ4_NL, 25},
    [MIX_IQ4_XS] = {"iq4_xs", DTYPE_IQ4_XS, 30}, [MIX_MXFP4] = {"mxfp4", DTYPE_MXFP4, 38},
};

const struct convert_type *convert_type_find(const char *name)
{
    for (int i = 0; i < MIX_COUNT; i++)
        if (strcasecmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const char *convert_types(char *out, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < MIX_COUNT && at < size; i++) {
        int n = snprintf(out + at, size - at, i ? ", %s" : "%s", types[i].name);
        at += n > 0 ? (size_t)n : 0;
    }
    return out;
}

/* ---- what the rules ask of a model and of a tensor ---- */

struct mix_model {
    enum mix mix;
    int blocks, experts, heads_per_kv;
    bool has_head, is_70b;
};

struct mix_tensor {
    const char *name, *part; /* whole; below the block */
    int block;               /* -1: of none */
    bool experts;
};

static struct mix_tensor mix_tensor_of(const struct convert_tensor *t)
{
    struct mix_tensor m = {.name = t->name, .part = t->name, .block = -1, .experts = t->n_dims > 2};
    int length = 0;
    if (sscanf(t->name, "blk.%d.%n", &m.block, &length) == 1 && length > 0)
        m.part = t->name + length;
    else
        m.block = -1;
    return m;
}

static bool tensor_is(const struct mix_tensor *t, const char *part)
{
    return strncmp(t->part, part, strlen(part)) == 0;
}

static bool mix_among(enum mix m, const enum mix *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == m)
            return true;
    return false;
}
#define MIX_IN(m, ...)                                                                             \
    mix_among(m, (const enum mix[]){__VA_ARGS__},                                                  \
              sizeof((const enum mix[]){__VA_ARGS__}) / sizeof(enum mix))

/* The first and the last eighth of blocks, and every third between. */
static bool takes_more_bits(int block, int blocks)
{
    return block < blocks / 8 || block >= 7 * blocks / 8 || (block - blocks / 8) % 3 == 2;
}

/* ---- the rules ---- */

static enum dtype rule_values(const struct mix_model *m, const struct mix_tensor *t, enum dtype d)
{
    bool shared = m->heads_per_kv >= 4;
    if (m->mix == MIX_Q2_K)
        d = shared ? DTYPE_Q4_K : DTYPE_Q3_K;
    else if (m->mix == MIX_Q3_K_M)
        d = t->block < 2 ? DTYPE_Q5_K : DTYPE_Q4_K;
    else if (m->mix == MIX_Q3_K_L)
        d = DTYPE_Q5_K;
    else if (MIX_IN(m->mix, MIX_IQ4_NL, MIX_IQ4_XS) && shared)
        d = DTYPE_Q5_K;
    else if (MIX_IN(m->mix, MIX_Q4_K_M, MIX_Q5_K_M) && takes_more_bits(t->block, m->blocks))
        d = DTYPE_Q6_K;
    else if (m->mix == MIX_Q4_K_S && t->block < 4)
        d = DTYPE_Q5_K;
    if (m->is_70b && (d == DTYPE_Q3_K || d == DTYPE_Q4_K))
        d = DTYPE_Q5_K;
    return m->experts == 8 ? DTYPE_Q8_0 : d;
}

static enum dtype rule_down(const struct mix_model *m, const struct mix_tensor *t, enum dtype d)
{
    bool early = t->block < m->blocks / 8, more = takes_more_bits(t->block, m->blocks);
    switch (m->mix) {
    case MIX_Q2_K: return DTYPE_Q3_K;
    case MIX_Q3_K_M: return t->block < m->blocks / 16 ? DTYPE_Q5_K : DTYPE_Q4_K;
    case MIX_Q3_K_L: return DTYPE_Q5_K;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M: return more ? DTYPE_Q6_K : d;
    case MIX_Q4_K_S:
    case MIX_IQ4_NL:
    case MIX_IQ4_XS: return early ? DTYPE_Q5_K : d;
    default: return d;
    }
}

static enum dtype rule_output(const struct mix_model *m, enum dtype d)
{
    if (m->experts == 8)
        return MIX_IN(m->mix, MIX_Q2_K, MIX_Q3_K_S, MIX_Q3_K_M, MIX_Q4_K_S, MIX_Q4_K_M, MIX_IQ4_NL,
                      MIX_IQ4_XS)
                   ? DTYPE_Q5_K
                   : d;
    return m->mix == MIX_Q2_K     ? DTYPE_Q3_K
           : m->mix == MIX_Q3_K_M ? DTYPE_Q4_K
           : m->mix == MIX_Q3_K_L ? DTYPE_Q5_K
                                  : d;
}

static enum dtype rule_fused(const struct mix_model *m, enum dtype d)
{
    return MIX_IN(m->mix, MIX_Q3_K_M, MIX_Q3_K_L) ? DTYPE_Q4_K
           : m->mix == MIX_Q4_K_M                 ? DTYPE_Q5_K
           : m->mix == MIX_Q5_K_M                 ? DTYPE_Q6_K
                                                  : d;
}

/* The head, and the embedding where it is the head. */
static enum dtype rule_head(enum dtype d, uint64_t columns)
{
    if (d == DTYPE_Q8_0 || columns % dtype_info(d)->block_elements)
        return DTYPE_Q8_0;
    return DTYPE_Q6_K;
}

static enum dtype rule_matrix(const struct mix_model *m, const struct mix_tensor *t,
                              uint64_t columns)
{
    enum dtype d = types[m->mix].dtype;
    bool head = strcmp(t->name, "output.weight") == 0 ||
                (!m->has_head && strcmp(t->name, "token_embd.weight") == 0);
    if (m->mix == MIX_MXFP4)
        return t->experts && !head ? DTYPE_MXFP4 : DTYPE_Q8_0;
    if (head)
        return rule_head(d, columns);
    if (tensor_is(t, "attn_v.weight"))
        return rule_values(m, t, d);
    if (tensor_is(t, "attn_k.weight"))
        return m->experts == 8 ? DTYPE_Q8_0 : d;
    if (tensor_is(t, "ffn_down"))
        return rule_down(m, t, d);
    if (tensor_is(t, "attn_output.weight"))
        return rule_output(m, d);
    return tensor_is(t, "attn_qkv.weight") ? rule_fused(m, d) : d;
}

/* Vectors, norms, routers, learned positions and biases stay as exact as they are. */
static bool is_kept(const struct convert_tensor *t, const struct mix_tensor *m)
{
    static const char *const kept[] = {"ffn_gate_inp.weight", "position_embd.weight",
                                       "token_types.weight", "attn_sinks.weight"};
    size_t n = strlen(t->name);
    static const char ending[] = ".weight", norm[] = "_norm.weight";
    if (t->n_dims < 2 || (t->n_dims == 2 && t->shape[0] == 1) || n < sizeof ending ||
        strcmp(t->name + n - (sizeof ending - 1), ending) != 0)
        return true;
    if (n > sizeof norm && strcmp(t->name + n - (sizeof norm - 1), norm) == 0)
        return true;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (tensor_is(m, kept[i]))
            return true;
    return false;
}

/* Rows that are no whole blocks get the next format of about as many bits with smaller ones. */
static enum dtype fallback_of(enum dtype d, uint64_t columns)
{
    static const enum dtype smaller[DTYPE_WEIGHT_COUNT] = {
        [DTYPE_Q2_K] = DTYPE_IQ4_NL, [DTYPE_Q3_K] = DTYPE_IQ4_NL, [DTYPE_IQ4_XS] = DTYPE_IQ4_NL,
        [DTYPE_Q4_K] = DTYPE_Q5_0,   [DTYPE_Q5_K] = DTYPE_Q5_1,   [DTYPE_Q6_K] = DTYPE_Q8_0};
    if (columns % dtype_info(d)->block_elements == 0)
        return d;
    enum dtype next = smaller[d];
    return next != DTYPE_F32 && columns % dtype_info(next)->block_elements == 0 ? next : DTYPE_F16;
}

/* ---- a model ---- */

static struct mix_model mix_model_of(const struct model *m, const struct convert_type *type,
                                     const struct convert_list *l)
{
    enum { BLOCKS_70B = 80, SHARED_70B = 8 };
    const struct model_config *c = model_config(m);
    struct mix_model out = {.mix = (enum mix)(type - types),
                            .blocks = c->n_blocks,
                            .experts = c->experts.n,
                            .heads_per_kv = c->n_heads / c->n_kv_heads};
    out.is_70b = out.blocks == BLOCKS_70B && out.heads_per_kv == SHARED_70B;
    for (int i = 0; i < l->n; i++)
        out.has_head = out.has_head || strcmp(l->tensors[i].name, "output.weight") == 0;
    return out;
}

static int exception_add(struct convert_result *r, const struct convert_tensor *t,
                         enum dtype wanted, struct err *e)
{
    struct convert_exception *rows =
        realloc(r->exceptions, ((size_t)r->n_exceptions + 1) * sizeof *rows);
    if (!rows)
        return err_no_memory(e, "the list of exceptions");
    r->exceptions = rows;
    char *name = strdup(t->name);
    if (!name)
        return err_no_memory(e, "the list of exceptions");
    r->exceptions[r->n_exceptions++] = (struct convert_exception){
        .tensor = name, .wanted = wanted, .written = t->dtype, .columns = t->shape[t->n_dims - 1]};
    return 0;
}

static bool is_quantised(enum dtype d)
{
    return dtype_info(d)->block_elements > 1;
}

/* Rows in the format that they have already, in their order or another. */
static bool is_copied(const struct convert_tensor *t)
{
    return t->parts[0]->dtype == t->dtype && !t->view.turned && !t->one_more &&
           !(t->rotated && t->n_dims == 1) && t->view.columns == weight_shape_columns(t->parts[0]);
}

int convert_mix(const struct model *m, const struct convert_type *type, struct convert_list *l,
                struct convert_result *result, struct err *e)
{
    struct mix_model model = mix_model_of(m, type, l);
    for (int i = 0; i < l->n; i++) {
        struct convert_tensor *t = &l->tensors[i];
        struct mix_tensor named = mix_tensor_of(t);
        uint64_t columns = t->shape[t->n_dims - 1];
        enum dtype wanted =
            !is_kept(t, &named)
                ? is_quantised(type->dtype) ? rule_matrix(&model, &named, columns) : type->dtype
                : DTYPE_F32;
        t->dtype = fallback_of(wanted, columns);
        int rc = t->dtype == wanted ? 0 : exception_add(result, t, wanted, e);
        if (rc < 0)
            return rc;
        t->copied = is_copied(t);
        result->n_requantised +=
            !t->copied && is_quantised(t->parts[0]->dtype) && is_quantised(t->dtype);
    }
    return 0;
}

void convert_result_free(struct convert_result *r)
{
    for (int i = 0; i < r->n_exceptions; i++)
        free((char *)(uintptr_t)r->exceptions[i].tensor);
    free(r->exceptions);
    *r = (struct convert_result){0};
}
