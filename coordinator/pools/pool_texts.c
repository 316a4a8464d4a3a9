#include "coordinator/pools/pool_texts.h"

#include <string.h>

#include "coordinator/api_keys.h"
#include "coordinator/model_slots.h"

void pool_texts_open(struct coord *c, struct pool_spec *s)
{
    for (int i = 0; i < s->workload.n_models; i++) {
        struct pool_model *m = &s->models[i];
        if (!m->is_text || m->slot)
            continue;
        if (model_slot_use(c, m->manifest, &m->slot, &m->slot_error) < 0)
            m->slot = NULL;
        else
            m->slot->users++; /* until the last plan of it is gone */
    }
}

/* Its first output says what it makes of a text. */
static bool gives_rows(const struct pool_model *m)
{
    return m->facts.outputs[0].n_dims == 2 && m->output_axes[0] < 0;
}

static int slot_check(const struct pool_model *m, struct err *e)
{
    const struct err *why = m->slot ? &m->slot->failure : &m->slot_error;
    if (why->code < 0)
        return err_set(e, HP_EBUSY, "the tokenizer of \"%s\" could not be opened: %s",
                       m->facts.name, why->text);
    return m->slot->open
               ? 0
               : err_set(e, HP_EBUSY, "the tokenizer of \"%s\" is being opened", m->facts.name);
}

int pool_text_find(const struct coord *c, const char *client, const char *name,
                   struct pool_text *out, struct err *e)
{
    int i;
    const struct pool_spec *spec = pool_spec_of(c->pools, name, &i);
    if (!spec || !spec->models[i].is_text)
        return err_set(e, HP_ENOENT, "pools serve no language model \"%.200s\"", name);
    const struct pool_model *m = &spec->models[i];
    int rc = api_keys_may_use(c, client, name, e);
    rc = rc < 0 ? rc : slot_check(m, e);
    if (rc < 0)
        return rc;
    *out = (struct pool_text){.model = m->slot->facts.handle,
                              .longest = (uint64_t)m->lengths[0],
                              .applied_s = spec->applied_s,
                              .rows = gives_rows(m)};
    return 0;
}
