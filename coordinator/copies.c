#include "coordinator/copies.h"

#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/member.h"
#include "coordinator/stages.h"
#include "transport/stage_state.h"

/* It has no copy of a stage's layers, and could take one, for all that one knows. */
static bool copy_may_go(const struct deployment_stage *s, const struct member *m)
{
    return m != s->agent && member_available(m) &&
           !(s->uncopied && strcmp(s->copy_on, m->name) == 0);
}

/* The next stage's agent, so that each takes one; else any other. NULL: there is none. */
static struct member *copy_place(struct coord *c, const struct deployment *d, int stage)
{
    const struct deployment_stage *s = &d->stages[stage];
    for (int k = 1; k < d->n_stages; k++) {
        struct member *m = d->stages[(stage + k) % d->n_stages].agent;
        if (copy_may_go(s, m))
            return m;
    }
    for (size_t i = 0; i < c->n_members; i++)
        if (copy_may_go(s, c->members[i]))
            return c->members[i];
    return NULL;
}

/* It is where it was put, as far as one knows, or may come to be there still. */
static bool copy_stands(struct coord *c, const struct deployment_stage *s)
{
    const struct member *m = s->copy_on[0] ? member_find(c, s->copy_on) : NULL;
    if (!m || m->state == MEMBER_LOST || m == s->agent)
        return false;
    return s->copied || coord_now(c) - s->copy_ns < coord_ms(COPIES_AGAIN_MS);
}

void copies_step(struct coord *c, struct deployment *d)
{
    if (d->spec.copies < 2 || d->state != DEPLOYMENT_SERVING ||
        coord_now(c) - d->since_ns < coord_ms(COPIES_AFTER_MS))
        return;
    for (int i = 0; i < d->n_stages; i++) {
        struct deployment_stage *s = &d->stages[i];
        if (copy_stands(c, s)) {
            if (!s->copied && !s->uncopied) /* one after the other */
                return;
            continue;
        }
        struct member *m = copy_place(c, d, i);
        s->copied = s->uncopied = false;
        s->copy_on[0] = 0;
        if (!m)
            continue;
        utf8_copy(s->copy_on, sizeof s->copy_on, m->name);
        s->copy_ns = coord_now(c);
        stages_copy(c, d, i, m);
        return;
    }
}

bool copies_told(struct coord *c, const struct member *m, const struct message_stage_state *s)
{
    enum stage_state state = stage_state_of_word(s->state);
    bool copied = state == STAGE_COPIED;
    if (!copied && state != STAGE_UNCOPIED)
        return false;
    struct deployment *d = deployment_of_id(c, s->deployment);
    if (!d || d->generation != s->generation || s->stage >= (uint64_t)d->n_stages ||
        strcmp(d->stages[s->stage].copy_on, m->name) != 0)
        return true;
    d->stages[s->stage].copied = copied;
    d->stages[s->stage].uncopied = !copied;
    log_info("coordinator", copied ? "weights_copied" : "weights_not_copied",
             "deployment=%s stage=%llu agent=%s why=\"%s\"", d->name, (unsigned long long)s->stage,
             m->name, s->text);
    return true;
}
