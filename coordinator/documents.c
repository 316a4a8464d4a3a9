#include "coordinator/documents.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/describe.h"
#include "coordinator/member.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/topology.h"

static json_t *cluster_json(const struct coord *c)
{
    json_t *agents = json_array(), *deployments = json_array();
    for (size_t i = 0; i < c->n_members; i++)
        json_array_append_new(agents, describe_member(c, c->members[i], false));
    for (size_t i = 0; i < c->n_deployments; i++)
        json_array_append_new(deployments, describe_deployment(c->deployments[i], false));
    return json_pack("{s:s, s:s, s:I, s:f, s:o, s:o}", "cluster", c->cluster, "version", c->version,
                     "boot", (json_int_t)c->boot, "clock_s", (double)coord_now(c) * 1e-9, "agents",
                     agents, "deployments", deployments);
}

static json_t *deployment_json(struct coord *c, const char *name, struct err *e)
{
    struct deployment *d = deployment_find(c, name);
    if (!d) {
        deployment_missing(c, name, e);
        return NULL;
    }
    json_t *out = describe_deployment(d, true);
    json_object_set_new(out, "prefill", plan_vs_actual_describe(c, d, PLAN_VS_ACTUAL_RECORDS));
    return out;
}

static json_t *agent_json(struct coord *c, const char *name, struct err *e)
{
    const struct member *m = member_find(c, name);
    if (!m)
        member_missing(c, name, e);
    return m ? describe_member(c, m, true) : NULL;
}

int document_write(struct coord *c, enum request_document which, const char *name,
                   struct buffer *out, struct err *e)
{
    json_t *document = NULL;
    err_set(e, HP_ENOMEM, "no memory for a document"); /* unless one of these says more */
    switch (which) {
    case DOCUMENT_CLUSTER: document = cluster_json(c); break;
    case DOCUMENT_TOPOLOGY: document = topology_document(c); break;
    case DOCUMENT_AGENT: document = agent_json(c, name, e); break;
    case DOCUMENT_DEPLOYMENT: document = deployment_json(c, name, e); break;
    }
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(document);
    if (!text)
        return e->code;
    buffer_append(out, text, strlen(text));
    free(text);
    return out->failed ? HP_ENOMEM : 0;
}
