#include "planners/pipeline/slicing.h"

#include <stdlib.h>
#include <string.h>

#include "planners/pipeline/cost.h"
#include "planners/pipeline/slicing_int.h"

int slicing_create(const struct pipeline_request *rq, const struct plan_pipeline *plan, int context,
                   struct slicing **out, struct err *e)
{
    struct arena scratch = {0};
    struct slicing *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "preparing slices");
    s->context = context;
    s->memory_bytes = sizeof *s;
    int rc = context < 1 ? err_set(e, HP_EINVAL, "a context of %d tokens holds no prompt", context)
                         : slicing_make(s, rq, plan, &scratch, e);
    arena_free(&scratch);
    s->stage_seconds = s->slowest = NULL;
    s->cost.arena = NULL;
    s->cost.tables = NULL;
    if (rc < 0)
        slicing_destroy(&s);
    *out = s;
    return rc;
}

void slicing_destroy(struct slicing **s)
{
    if (*s)
        arena_free(&(*s)->arena);
    free(*s);
    *s = NULL;
}

int slicing_unit(const struct slicing *s)
{
    return s->cost.unit;
}

size_t slicing_memory_bytes(const struct slicing *s)
{
    return s->memory_bytes;
}

int slicing_begin(const struct slicing *s, int length, int cached, struct slicing_cursor *c)
{
    if (length < 1 || cached < 0 || length > s->context - cached)
        return HP_EINVAL;
    int unit = s->cost.unit, units = (length + unit - 1) / unit, position = cached / unit;
    *c = (struct slicing_cursor){.slicing = s, .left = length, .position = position};
    /* A cached part of less than a unit counts for nothing. */
    if (position == 0) {
        c->cuts = s->lists + s->list_at[units];
        return 0;
    }
    const struct slicing_rule *r =
        &s->rules[s->best_rule[(size_t)(position / s->prefix_step) * (size_t)s->cost.n_units +
                               (size_t)units - 1]];
    c->level = r->start;
    c->top = r->top;
    c->step = r->step;
    return 0;
}

int slicing_next(struct slicing_cursor *c)
{
    const struct slicing *s = c->slicing;
    int end, n_units = s->cost.n_units;
    if (c->left == 0)
        return 0;
    if (c->cuts) {
        end = *c->cuts++;
    } else {
        const struct slicing_rule r = {0, (uint8_t)c->top, (int8_t)c->step};
        end = c->position < n_units
                  ? s->longest[(size_t)c->level * (size_t)n_units + (size_t)c->position]
                  : c->position + 1;
        c->level = slicing_next_level(&r, c->level);
    }
    int tokens = (end - c->position) * s->cost.unit;
    tokens = tokens < c->left ? tokens : c->left;
    c->position = end;
    c->left -= tokens;
    return tokens;
}
