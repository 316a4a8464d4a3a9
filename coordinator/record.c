#include "coordinator/record.h"

#include "common/experts.h"
#include "coordinator/deployment_layout.h"
#include "coordinator/deployment_options.h"
#include "coordinator/effects.h"
#include "coordinator/model_slots.h"

static json_t *sessions_of(const struct deployment *d)
{
    json_t *sessions = json_array();
    for (int i = 0; i < d->n_stages; i++)
        json_array_append_new(sessions, json_integer((json_int_t)d->stages[i].input_session));
    return sessions;
}

static void sessions_read(struct deployment *d, const json_t *sessions)
{
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].input_session =
            (uint64_t)json_integer_value(json_array_get(sessions, (size_t)i));
}

void record_keep(struct coord *c, const struct deployment *d)
{
    struct stage_layout *layout = deployment_layout(d);
    json_t *record =
        json_pack("{s:I, s:I, s:s, s:i, s:O, s:I, s:I, s:o, s:o?, s:o?, s:o?}", "id",
                  (json_int_t)d->id, "created_s", (json_int_t)d->created_s, "model", d->model->id,
                  "expert_groups", (int)d->model->expert_groups, "options", d->spec.options,
                  "generation", (json_int_t)d->generation, "session", (json_int_t)d->session,
                  "sessions", sessions_of(d), "layout", stage_layout_to_json(layout), "served",
                  stage_layout_to_json(d->served), "wish", stage_layout_to_json(d->wish));
    stage_layout_release(&layout);
    effects_store_json(c, "deployment", d->name, record);
}

int record_begin(struct coord *c, const char *name, struct model_slot *model,
                 const struct deployment_spec *spec, struct deployment **out, struct err *e)
{
    if (c->n_deployments >= COORD_MAX_DEPLOYMENTS)
        return err_set(e, HP_ELIMIT, "%d deployments are the limit", COORD_MAX_DEPLOYMENTS);
    struct deployment *d = deployment_add(c, name);
    if (!d)
        return err_set(e, HP_ENOMEM, "no memory for a deployment");
    d->id = c->next_deployment++;
    d->created_s = coord_unix_s(c);
    d->next_sequence = c->boot << 32 | 1;
    d->spec = *spec;
    d->model = model;
    effects_store_json(c, "meta", "next_deployment", json_integer((json_int_t)c->next_deployment));
    record_keep(c, d);
    *out = d;
    return 0;
}

/* NULL where there is none, or none that can be used: it is planned anew. */
static int layout_read(const json_t *record, const char *key, struct stage_layout **out,
                       struct err *e)
{
    struct err why = {0};
    const json_t *value = json_object_get(record, key);
    int rc = json_is_object(value) ? stage_layout_from_json(value, out, &why) : 0;
    if (rc == HP_ENOMEM)
        *e = why;
    return rc == HP_ENOMEM ? rc : 0;
}

static int record_read(struct coord *c, struct deployment *d, const json_t *record, struct err *e)
{
    const char *model = json_string_value(json_object_get(record, "model"));
    struct stage_layout *layout = NULL;
    d->model = model ? model_slot_find(c, model) : NULL;
    if (!d->model)
        return err_set(e, HP_EPARSE,
                       "the store's record deployment/%s names a model that is not there", d->name);
    json_int_t groups = json_integer_value(json_object_get(record, "expert_groups"));
    if (groups > 1 && groups <= EXPERT_GROUPS_MAX &&
        !(d->model = model_slot_divided(c, d->model, (uint32_t)groups)))
        return err_set(e, HP_ENOMEM, "no memory for a model");
    int rc = deployment_options_read(json_object_get(record, "options"), &d->spec, e);
    if (rc < 0)
        return rc;
    d->id = (uint64_t)json_integer_value(json_object_get(record, "id"));
    d->created_s = (uint64_t)json_integer_value(json_object_get(record, "created_s"));
    d->generation = (uint64_t)json_integer_value(json_object_get(record, "generation"));
    d->session = (uint64_t)json_integer_value(json_object_get(record, "session"));
    if ((rc = layout_read(record, "served", &d->served, e)) < 0 ||
        (rc = layout_read(record, "wish", &d->wish, e)) < 0 ||
        (rc = layout_read(record, "layout", &layout, e)) < 0)
        return rc;
    /* A layout on an agent that has been removed is planned anew. */
    struct err ignored;
    if (layout && deployment_layout_set(c, d, layout, &ignored) == 0) {
        sessions_read(d, json_object_get(record, "sessions"));
        d->state = DEPLOYMENT_RECOVERING; /* as it begins */
        d->keeps = true;
        d->until_ns = coord_now(c) + coord_ms(COORD_REJOIN_MS);
    }
    stage_layout_release(&layout);
    return 0;
}

int record_restore(struct coord *c, const char *name, json_t *record, struct err *e)
{
    struct deployment *d = deployment_add(c, name);
    if (!d)
        return err_set(e, HP_ENOMEM, "no memory for deployments");
    int rc = record_read(c, d, record, e);
    if (rc < 0)
        deployment_remove(c, d);
    else if (d->id >= c->next_deployment)
        c->next_deployment = d->id + 1;
    return rc;
}
