/* Whether what a GGUF file says of the computation is what its family computes: a file that calls
 * itself something else than it is has keys that nobody would heed. */
#include <math.h>

#include "model/graph/facts.h"
#include "model/graph/facts_source.h"

/* What the key has where the family computes with `value`. A key that is 0 says nothing. */
struct heeded_key {
    const char *key;
    double value;
};

static double factor_of(float scale)
{
    return scale != 0 ? (double)scale : 1;
}

static bool heeded_key_holds(double said, double computed)
{
    return said == 0 || fabs(said - computed) <= 1e-3 * fabs(computed);
}

static int heeded_key_refuse(const struct facts_source *s, const struct heeded_key *it, double said,
                             const struct model_config *c)
{
    err_set(s->e, HP_EUNSUPPORTED,
            "%s: key %s.%s is %g, and a model of family %s computes with %g there", s->file,
            s->prefix, it->key, said, c->architecture, it->value);
    err_hint(s->e,
             "the file says another architecture than its model's, or the model is of a kind "
             "that this version does not know: take a file of the model that was not changed");
    return HP_EUNSUPPORTED;
}

int facts_gguf_heeded(const struct facts_source *s, const struct model_config *c)
{
    const struct heeded_key settings[] = {
        {"attention.scale",
         c->score_scale != 0 ? (double)c->score_scale : 1 / sqrt((double)c->head_dim)},
        {"attn_logit_softcapping", (double)c->score_cap},
        {"final_logit_softcapping", (double)c->logit_cap},
        {"embedding_scale", factor_of(c->embedding_scale)},
        {"residual_scale", factor_of(c->residual_scale)},
        {"logit_scale", 1 / factor_of(c->logit_scale)},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"attention.temperature_scale", 0},
        {"expert_gating_func", 1},
        {"expert_group_count", 1},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        float said = 0;
        int rc = facts_number(s, (struct facts_key){settings[i].key, NULL}, 0, &said);
        if (rc < 0)
            return rc;
        if (!heeded_key_holds((double)said, settings[i].value))
            return heeded_key_refuse(s, &settings[i], (double)said, c);
    }
    return 0;
}
