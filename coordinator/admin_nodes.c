#include "coordinator/admin_int.h"
#include "coordinator/describe.h"
#include "coordinator/drains.h"
#include "coordinator/link_probes.h"
#include "coordinator/membership.h"
#include "coordinator/pools/pools.h"
#include "coordinator/profiles.h"
#include "coordinator/profiling.h"
#include "coordinator/topology.h"

static int verb_node_ls(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        json_array_append_new(q->result, describe_member(c, c->members[i], false));
    return 0;
}

static int verb_node_describe(struct coord *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = admin_member(c, q, "name", &m, e);
    if (rc == 0)
        q->result = describe_member(c, m, true);
    return rc;
}

static int verb_node_drain(struct coord *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = admin_member(c, q, "name", &m, e);
    if (rc == 0)
        rc = drain_start(c, m, json_is_true(json_object_get(q->arguments, "force")), q->peer, q->id,
                         e);
    if (rc == 0)
        q->result = describe_member(c, m, false);
    return rc;
}

static int verb_node_undrain(struct coord *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = admin_member(c, q, "name", &m, e);
    if (rc < 0)
        return rc;
    drain_undo(c, m);
    q->result = describe_member(c, m, false);
    return 0;
}

static int verb_node_rm(struct coord *c, struct question *q, struct err *e)
{
    struct member *m;
    int rc = admin_member(c, q, "name", &m, e);
    if (rc == 0)
        rc = membership_remove(c, m, e);
    return rc;
}

static int verb_topo(struct coord *c, struct question *q, struct err *e)
{
    if (json_is_true(json_object_get(q->arguments, "measure"))) {
        int rc = link_probes_ask(c, q->peer, q->id, e);
        return rc < 0 ? rc : HP_PENDING;
    }
    q->result = topology_document(c);
    return 0;
}

static int verb_profile(struct coord *c, struct question *q, struct err *e)
{
    int rc = profiling_start(c, q->peer, q->id, q->arguments, q->blob, e);
    return rc < 0 ? rc : HP_PENDING;
}

static int verb_profile_ls(struct coord *c, struct question *q, struct err *e)
{
    (void)e;
    q->result = profiles_describe(c);
    pools_profiles_describe(c, q->result);
    return 0;
}

static int verb_profile_rm(struct coord *c, struct question *q, struct err *e)
{
    const char *model, *kind = json_string_value(json_object_get(q->arguments, "kind"));
    int removed = 0, rc = admin_text(q, "model", &model, e);
    int networks = rc == 0 ? pools_profiles_remove(c, model, kind ? kind : "") : 0;
    if (rc == 0)
        rc = profiles_remove(c, model, kind ? kind : "", &removed, e);
    if (rc == HP_ENOENT && networks > 0)
        rc = 0;
    if (rc == 0)
        q->result = json_pack("{s:i}", "removed", removed + networks);
    return rc;
}

const struct admin_verb admin_node_verbs[] = {
    {"node.ls", verb_node_ls, false},
    {"node.describe", verb_node_describe, false},
    {"node.drain", verb_node_drain, true},
    {"node.undrain", verb_node_undrain, true},
    {"node.rm", verb_node_rm, true},
    {"topo", verb_topo, false},
    {"profile", verb_profile, false}, /* agents and caches alone change */
    {"profile.ls", verb_profile_ls, false},
    {"profile.rm", verb_profile_rm, false},
    {NULL, NULL, false},
};
