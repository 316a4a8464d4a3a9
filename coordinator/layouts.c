#include "coordinator/layouts.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"

const struct model_layout *layouts_find(const struct coord *c, const char *model)
{
    for (size_t i = 0; i < c->n_layouts; i++)
        if (strcmp(c->layouts[i].model, model) == 0)
            return &c->layouts[i];
    return NULL;
}

/* Takes the stages. False: no memory, or no room. */
static bool layout_put(struct coord *c, const char *model, struct model_layout_stage *stages, int n)
{
    struct model_layout *l = (struct model_layout *)(uintptr_t)layouts_find(c, model);
    if (!l && c->n_layouts < LAYOUTS_MAX)
        l = vector_add(c->layouts, c->n_layouts, c->room_layouts);
    if (!l) {
        free(stages);
        return false;
    }
    utf8_copy(l->model, sizeof l->model, model);
    free(l->stages);
    l->stages = stages;
    l->n_stages = n;
    return true;
}

static bool layout_is(const struct model_layout *l, const struct deployment *d)
{
    for (int i = 0; l && l->n_stages == d->n_stages && i < l->n_stages; i++)
        if (l->stages[i].end_layer != d->stages[i].end_layer ||
            l->stages[i].device != d->stages[i].device ||
            strcmp(l->stages[i].agent, d->stages[i].agent->name) != 0)
            return false;
    return l && l->n_stages == d->n_stages;
}

static void layout_store(struct coord *c, const struct model_layout *l)
{
    json_t *rows = json_array();
    for (int i = 0; i < l->n_stages; i++)
        json_array_append_new(rows,
                              json_pack("{s:s, s:i, s:i}", "agent", l->stages[i].agent, "device",
                                        l->stages[i].device, "end_layer", l->stages[i].end_layer));
    effects_store_json(c, "layout", l->model, rows);
}

void layouts_keep(struct coord *c, const struct deployment *d)
{
    if (d->model->expert_groups > 1 || layout_is(layouts_find(c, d->model->id), d))
        return; /* of a divided model layers have other numbers */
    struct model_layout_stage *stages = calloc((size_t)d->n_stages + 1, sizeof *stages);
    for (int i = 0; stages && i < d->n_stages; i++) {
        stages[i].end_layer = d->stages[i].end_layer;
        stages[i].device = d->stages[i].device;
        utf8_copy(stages[i].agent, sizeof stages[i].agent, d->stages[i].agent->name);
    }
    if (stages && layout_put(c, d->model->id, stages, d->n_stages))
        layout_store(c, layouts_find(c, d->model->id));
}

int layouts_restore(struct coord *c, const char *model, json_t *value, struct err *e)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > COORD_MAX_STAGES)
        return err_set(e, HP_EPARSE, "a layout is a list of at most %d stages", COORD_MAX_STAGES);
    if (c->n_layouts >= LAYOUTS_MAX)
        return 0;
    struct model_layout_stage *stages = calloc(n + 1, sizeof *stages);
    for (size_t i = 0; stages && i < n; i++) {
        const json_t *row = json_array_get(value, i);
        json_int_t device = json_integer_value(json_object_get(row, "device"));
        stages[i].device = device > 0 && device < MESSAGE_MAX_DEVICES ? (int)device : 0;
        stages[i].end_layer = (int)json_integer_value(json_object_get(row, "end_layer"));
        utf8_copy(stages[i].agent, sizeof stages[i].agent,
                  json_string_value(json_object_get(row, "agent")));
    }
    return stages && layout_put(c, model, stages, (int)n)
               ? 0
               : err_set(e, HP_ENOMEM, "no memory for a layout");
}

void layouts_free(struct coord *c)
{
    for (size_t i = 0; i < c->n_layouts; i++)
        free(c->layouts[i].stages);
    free(c->layouts);
}
