/* What people see of an agent. */
#include "coordinator/core_int.h"

json_t *member_describe(const struct core *c, const struct member *m, bool whole)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment_stage *s = stages_of_member(c->deployments[i], m);
        if (s)
            json_array_append_new(
                stages, json_pack("{s:s, s:i, s:i}", "deployment", c->deployments[i]->name,
                                  "first_layer", s->first_layer, "last_layer", s->end_layer - 1));
    }
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:o}", "name", m->name, "state",
                  member_states[m->state].word, "hostname", m->hostname, "machine", m->machine,
                  "program", m->program, "kind", m->kind, "memory_bytes", m->memory_bytes,
                  "memory_free_bytes", (json_int_t)m->memory_free_bytes, "stages", stages);
    if (m->heard_ns)
        json_object_set_new(out, "heard_s", json_real((double)(core_now(c) - m->heard_ns) * 1e-9));
    if (m->rival_host[0])
        json_object_set_new(out, "key_also_on", json_string(m->rival_host));
    if (!whole)
        return out;
    json_t *models = json_array();
    for (size_t i = 0; i < m->n_models; i++)
        json_array_append_new(models, json_pack("{s:s, s:s, s:I}", "model", m->models[i].id, "name",
                                                m->models[i].name, "bytes",
                                                (json_int_t)m->models[i].bytes));
    json_object_set_new(out, "models", models);
    json_object_set_new(out, "joins", json_integer((json_int_t)m->joins));
    json_object_set_new(out, "dropped_stale", json_integer((json_int_t)m->dropped_stale));
    json_object_set_new(out, "dropped_foreign", json_integer((json_int_t)m->dropped_foreign));
    if (m->node)
        json_object_set(out, "node", m->node);
    return out;
}
