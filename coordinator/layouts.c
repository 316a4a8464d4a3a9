#include "coordinator/layouts.h"

#include <string.h>

#include "coordinator/core_int.h"

const json_t *layouts_find(const struct core *c, const char *model)
{
    return json_object_get(c->layouts, model);
}

void layouts_keep(struct core *c, const struct deployment *d)
{
    json_t *stages = json_array();
    for (int i = 0; i < d->n_stages; i++)
        json_array_append_new(stages, json_pack("{s:s, s:i}", "agent", d->stages[i].agent->name,
                                                "end_layer", d->stages[i].end_layer));
    if (!c->layouts)
        c->layouts = json_object();
    bool news = json_array_size(stages) == (size_t)d->n_stages &&
                !json_equal(stages, layouts_find(c, d->model->id));
    if (news && (layouts_find(c, d->model->id) || json_object_size(c->layouts) < LAYOUTS_MAX)) {
        json_object_set(c->layouts, d->model->id, stages);
        core_keep_json(c, "layout", d->model->id, json_incref(stages));
    }
    json_decref(stages);
}

int layouts_restore(struct core *c, const char *model, json_t *value, struct err *e)
{
    if (!json_is_array(value) || json_array_size(value) > CORE_MAX_STAGES)
        return err_set(e, HP_EPARSE, "a layout is a list of at most %d stages", CORE_MAX_STAGES);
    if (!c->layouts)
        c->layouts = json_object();
    return json_object_set(c->layouts, model, value) == 0
               ? 0
               : err_set(e, HP_ENOMEM, "no memory for a layout");
}

void layouts_free(struct core *c)
{
    json_decref(c->layouts);
}
