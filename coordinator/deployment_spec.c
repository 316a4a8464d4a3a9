#include "coordinator/deployment_spec.h"

#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "coordinator/limits.h"
#include "coordinator/state.h"

void deployment_spec_free(struct deployment_spec *s)
{
    json_decref(s->options);
    free(s->ranges);
    free(s->slices);
    *s = (struct deployment_spec){0};
}

int deployment_range_add(struct deployment_spec *s, const char *agent, size_t length, int first,
                         int end, struct err *e)
{
    if (length == 0 || length >= sizeof s->ranges->agent)
        return err_set(e, HP_EINVAL, "\"%.*s\" is not the name of an agent", (int)length, agent);
    if (s->n_ranges >= COORD_MAX_STAGES)
        return err_set(e, HP_ELIMIT, "a deployment has at most %d stages", COORD_MAX_STAGES);
    for (int i = 0; i < s->n_ranges; i++)
        if (strlen(s->ranges[i].agent) == length && memcmp(s->ranges[i].agent, agent, length) == 0)
            return err_set(e, HP_EINVAL,
                           "\"%.*s\" is named twice: a device holds one stage of a deployment",
                           (int)length, agent);
    struct deployment_range *r = vector_add(s->ranges, s->n_ranges, s->room_ranges);
    if (!r)
        return err_set(e, HP_ENOMEM, "no memory for a deployment");
    memcpy(r->agent, agent, length);
    r->first = first;
    r->end = end;
    return 0;
}

uint64_t deployment_spec_batch_tokens(const struct deployment_spec *s, const struct model_facts *f)
{
    uint64_t most = s->slice > DEPLOYMENT_BATCH_TOKENS ? s->slice : DEPLOYMENT_BATCH_TOKENS;
    uint64_t text = s->max_context ? s->max_context : f->context;
    text = text < DEPLOYMENT_TEXT_TOKENS ? text : DEPLOYMENT_TEXT_TOKENS;
    if (f->pooling && !s->slice && text > most)
        most = text; /* an encoder's text is one batch */
    for (uint32_t i = 0; i < s->n_slices; i++)
        most = s->slices[i] > most ? s->slices[i] : most;
    return most;
}
