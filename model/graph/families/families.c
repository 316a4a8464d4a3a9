/* The list of families, and what holds for all of them. */
#include <stdio.h>
#include <string.h>

#include "model/graph/family.h"

static const struct family *const families[] = {
    &family_llama,     &family_mistral,     &family_qwen2,     &family_qwen3,     &family_gpt2,
    &family_gemma2,    &family_gemma3,      &family_phi3,      &family_mixtral,   &family_qwen2_moe,
    &family_qwen3_moe, &family_gpt_oss,     &family_deepseek2, &family_granite,   &family_bert,
    &family_roberta,   &family_xlm_roberta, &family_camembert, &family_distilbert};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* ---- finding ---- */

static void known_names(enum model_form form, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < N_FAMILIES && at < size; i++)
        if (families[i]->form_name[form]) {
            int n = snprintf(out + at, size - at, at ? ", %s" : "%s", families[i]->form_name[form]);
            at += n > 0 ? (size_t)n : 0;
        }
}

int family_find(enum model_form form, const char *file, const char *name, size_t size,
                const struct family **out, struct err *e)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        const char *known = families[i]->form_name[form];
        if (known && strlen(known) == size && memcmp(known, name, size) == 0) {
            *out = families[i];
            return 0;
        }
    }
    char known[512], shown[65];
    size_t n = size < sizeof shown - 1 ? size : sizeof shown - 1;
    for (size_t i = 0; i < n; i++)
        shown[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
    shown[n] = '\0';
    known_names(form, known, sizeof known);
    return err_set(e, HP_EUNSUPPORTED, "%s: architecture \"%s\" is not one that is known: %s", file,
                   shown, known);
}

const char *family_written(const struct family *f)
{
    return f->form_name[FORM_GGUF] ? f->form_name[FORM_GGUF] : f->written_as;
}

/* heads * size of each, bounded; 0 when it is not. */
static int bounded_product(int a, int b)
{
    int n;
    return __builtin_mul_overflow(a, b, &n) || n > MODEL_DIMENSION_MAX ? 0 : n;
}

static int epsilon_check(const struct model_config *c, const char *file, struct err *e)
{
    return c->norm_epsilon >= 0 && c->norm_epsilon < 1
               ? 0
               : err_set(e, HP_EPARSE, "%s: a norm epsilon of %g", file, (double)c->norm_epsilon);
}

int facts_check(const struct family_facts *f, const char *file, struct err *e)
{
    const struct model_config *c = &f->config;
    const struct {
        const char *what;
        int value, max;
    } bounds[] = {
        {"vocabulary", c->vocabulary, MODEL_DIMENSION_MAX},
        {"width", c->width, MODEL_DIMENSION_MAX},
        {"number of blocks", c->n_blocks, MODEL_BLOCKS_MAX},
        {"number of heads", c->n_heads, MODEL_DIMENSION_MAX},
        {"number of KV heads", c->n_kv_heads, c->n_heads},
        {"head size", c->head_dim, MODEL_HEAD_MAX},
        {"MLP width", c->mlp_width, MODEL_DIMENSION_MAX},
        {"context", c->context, MODEL_CONTEXT_MAX},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].value < 1 || bounds[i].value > bounds[i].max)
            return err_set(e, HP_EPARSE, "%s: a %s of %d is not within 1 to %d", file,
                           bounds[i].what, bounds[i].value, bounds[i].max);
    if (!bounded_product(c->n_heads, c->head_dim))
        return err_set(e, HP_EPARSE, "%s: %d heads of size %d are more than %d", file, c->n_heads,
                       c->head_dim, MODEL_DIMENSION_MAX);
    if (c->n_heads % c->n_kv_heads)
        return err_set(e, HP_EPARSE, "%s: %d heads do not share %d KV heads evenly", file,
                       c->n_heads, c->n_kv_heads);
    if (c->rope.style == ROPE_NONE)
        return epsilon_check(c, file, e);
    if (c->rope.dims < 1 || c->rope.dims > c->head_dim)
        return err_set(e, HP_EPARSE,
                       "%s: a number of rotated dimensions of %d is not within 1 to %d", file,
                       c->rope.dims, c->head_dim);
    if (c->rope.dims % 2)
        return err_set(e, HP_EPARSE, "%s: %d rotated dimensions do not make pairs", file,
                       c->rope.dims);
    if (!(c->rope.base > 0 && c->rope.base < 1e30) || !(c->rope.scale > 0 && c->rope.scale < 1e30))
        return err_set(e, HP_EPARSE, "%s: a rope base of %g with factor %g", file, c->rope.base,
                       c->rope.scale);
    return epsilon_check(c, file, e);
}
