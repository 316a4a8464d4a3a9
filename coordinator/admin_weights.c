#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "coordinator/admin.h"
#include "coordinator/admin_int.h"
#include "coordinator/asks.h"
#include "coordinator/effects.h"
#include "coordinator/model_slots.h"

static bool model_in_use(const struct coord *c, const char *id)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (strcmp(c->deployments[i]->model->id, id) == 0)
            return true;
    return false;
}

static json_t *weights_row(json_t *rows, const struct coord *c, const struct member_model *m)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row) if (strcmp(json_string_value(json_object_get(row, "model")),
                                                m->id) == 0) return row;
    row = json_pack("{s:s, s:s, s:b, s:[]}", "model", m->id, "name", m->name, "in_use",
                    model_in_use(c, m->id), "agents");
    return json_item_add(rows, row);
}

static int verb_weights_ls(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_models; k++) {
            const struct member_model *m = &c->members[i]->models[k];
            json_array_append_new(json_object_get(weights_row(q->result, c, m), "agents"),
                                  json_pack("{s:s, s:I}", "agent", c->members[i]->name, "bytes",
                                            (json_int_t)m->bytes));
        }
    return 0;
}

/* A model by its id, the beginning of it, or its name. */
static int model_argument(struct coord *c, const struct question *q, char id[DIGEST_HEX],
                          struct err *e)
{
    const char *asked;
    int rc = admin_text(q, "model", &asked, e), found = 0;
    if (rc < 0)
        return rc;
    id[0] = 0;
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_models; k++) {
            const struct member_model *m = &c->members[i]->models[k];
            bool meant = strcmp(m->name, asked) == 0 ||
                         (strlen(asked) >= 6 && strncmp(m->id, asked, strlen(asked)) == 0);
            if (!meant || strcmp(m->id, id) == 0)
                continue;
            found++;
            utf8_copy(id, DIGEST_HEX, m->id);
        }
    if (found > 1)
        return err_set(e, HP_EINVAL, "\"%.100s\" means %d models: give the id", asked, found);
    return found ? 0 : err_set(e, HP_ENOENT, "no agent holds weights of a model \"%.100s\"", asked);
}

static int verb_weights_rm(struct coord *c, struct question *q, struct err *e)
{
    char id[DIGEST_HEX];
    struct digest digest;
    int rc = model_argument(c, q, id, e);
    if (rc < 0)
        return rc;
    if (model_in_use(c, id))
        return err_set(e, HP_EBUSY, "a deployment uses this model: undeploy it first");
    rc = digest_from_hex(id, &digest, e);
    struct agent_ask *r = rc < 0 ? NULL
                                 : asks_add(c, MESSAGE_STORE_STATE, NULL, q->peer, q->id,
                                            coord_now(c) + coord_ms(ADMIN_WAIT_MS));
    if (!r)
        return rc < 0 ? rc : err_set(e, HP_EBUSY, "too many questions wait for agents");
    utf8_copy(r->what, sizeof r->what, id);
    r->awaited = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (size_t k = 0; k < m->n_models && member_present(m); k++)
            if (strcmp(m->models[k].id, id) == 0) {
                struct message rm = {.type = MESSAGE_STORE_REMOVE, .id = r->id};
                rm.u.store_remove.model = (struct pack_span){digest.bytes, sizeof digest.bytes};
                effects_send(c, m->peer, &rm);
                r->awaited++;
            }
    }
    if (r->awaited)
        return HP_PENDING;
    asks_end(c, r);
    return err_set(e, HP_ELINK, "the agents that hold this model are not here now");
}

void admin_store_state(struct coord *c, struct member *m, uint64_t id,
                       const struct message_store_state *s)
{
    member_models_set(m, &s->models);
    struct agent_ask *r = asks_find(c, id, MESSAGE_STORE_STATE);
    if (!r)
        return;
    if (s->code[0] && strcmp(s->code, "ok") != 0) {
        struct err e = {0};
        err_set(&e, coord_failure_code(s->code), "agent \"%s\": %s", m->name, s->text);
        effects_answer_error(c, r->peer, r->ask, &e);
        asks_end(c, r);
    } else if (--r->awaited == 0) {
        effects_answer(c, r->peer, r->ask, false, json_pack("{s:s}", "removed", r->what));
        asks_end(c, r);
    }
}

const struct admin_verb admin_weight_verbs[] = {
    {"weights.ls", verb_weights_ls, false},
    {"weights.rm", verb_weights_rm, false}, /* agents and caches alone change */
    {NULL, NULL, false},
};
