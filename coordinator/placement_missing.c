/* The words for what is missing where no plan exists. Pure functions of a `struct placement_job`:
 * any thread, no core. */
#include <stdio.h>

#include "coordinator/deployment.h"
#include "coordinator/placement_int.h"

static void bytes_text(double bytes, char out[32])
{
    if (bytes >= 1e9)
        snprintf(out, 32, "%.2f GB", bytes / 1e9);
    else
        snprintf(out, 32, "%.1f MB", bytes / 1e6);
}

/* Bytes of layers [first, end) with the KV of one sequence of `context` tokens, as a plan counts
 * it. */
static double need_bytes(const struct placement_job *p, int first, int end, uint64_t context,
                         double *weights)
{
    double sum = 0, w = 0;
    for (int l = first; l < end; l++) {
        w += p->inputs->resident_bytes[l];
        sum += p->inputs->state_bytes_per_token[l] * (double)placing_kv_tokens(p, context, 1);
    }
    if (weights)
        *weights = w;
    return sum + w;
}

/* The stages as given: where how much is missing. */
static int explain_ranges(const struct placement_job *p, uint64_t context, struct err *e)
{
    char text[600] = "";
    size_t used = 0;
    for (int i = 0; i < p->n_devices && used < sizeof text - 1; i++) {
        const struct placing_range *r = &p->ranges[i];
        double need = need_bytes(p, r->first, r->end, context, NULL) +
                      p->inputs->workspace_bytes[p->devices[i]] +
                      placing_beside_bytes(p, context, 1, i + 1 == p->n_devices),
               room = p->inputs->free_bytes[p->devices[i]];
        if (need <= room)
            continue;
        char a[32], b[32];
        bytes_text(need, a);
        bytes_text(room, b);
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "%slayers %d-%d need %s on agent \"%s\", which has %s free: %.0f "
                             "bytes are missing there",
                             used ? "; " : "", r->first, r->end - 1, a, r->agent, b, need - room);
    }
    return err_set(e, HP_EINFEASIBLE, "%s", text);
}

/* An agent with one device is called by its own name. */
static const char *device_text(const struct cluster *c, int device)
{
    const struct cluster_node *node = &c->nodes[c->devices[device].node];
    return node->n_devices > 1 ? c->devices[device].id : node->name;
}

static bool device_may_be_used(const struct placement_job *p, int device)
{
    bool named = !p->devices && p->cluster.devices[device].memory_bytes >= 0; /* not left out */
    for (int k = 0; k < p->n_devices; k++)
        named = named || p->devices[k] == device;
    return named;
}

bool placing_has_room(const struct placement_job *p, uint64_t context)
{
    double room = 0;
    for (int i = 0; i < p->cluster.n_devices; i++)
        room += device_may_be_used(p, i) ? p->cluster.devices[i].memory_bytes : 0;
    return need_bytes(p, 0, p->inputs->n_layers, context, NULL) <= room;
}

static int explain_free(const struct placement_job *p, uint64_t context, struct err *e)
{
    const struct cluster *cluster = &p->cluster;
    double weights, need = need_bytes(p, 0, p->inputs->n_layers, context, &weights), room = 0;
    char have[300] = "", a[32], b[32], w[32];
    size_t used = 0;
    for (int i = 0; i < cluster->n_devices; i++) {
        if (!device_may_be_used(p, i))
            continue;
        room += cluster->devices[i].memory_bytes;
        bytes_text(cluster->devices[i].memory_bytes, b);
        if (used < sizeof have - 1)
            used += (size_t)snprintf(have + used, sizeof have - used, "%s%s %s", used ? ", " : "",
                                     device_text(cluster, i), b);
    }
    bytes_text(need, a);
    bytes_text(weights, w);
    if (cluster->n_devices == 0)
        return err_set(e, HP_EINFEASIBLE,
                       "no agent is ready: the model needs %s (weights %s, the rest KV cache of "
                       "one sequence of %llu tokens)",
                       a, w, (unsigned long long)context);
    if (!used)
        return err_set(e, HP_EINFEASIBLE,
                       "every agent is left out: the model needs %s (weights %s, the rest KV cache "
                       "of one sequence of %llu tokens)",
                       a, w, (unsigned long long)context);
    if (need > room)
        return err_set(e, HP_EINFEASIBLE,
                       "the model needs %s (weights %s, the rest KV cache of one sequence of %llu "
                       "tokens) and its agents have "
                       "less for these (%s, beside "
                       "their work space): %.0f bytes are missing",
                       a, w, (unsigned long long)context, have, need - room);
    return err_set(e, HP_EINFEASIBLE,
                   "the model needs %s and its agents have enough together (%s), but no cut "
                   "between layers fits each of them",
                   a, have);
}

int placing_missing_explain(struct placement_job *p, uint64_t context, struct err *e)
{
    if (p->ends)
        explain_ranges(p, context, e);
    else
        explain_free(p, context, e);
    for (uint64_t smaller = context / 2; smaller >= PLACEMENT_LEAST_CONTEXT; smaller /= 2) {
        struct pipeline_answer answer = {0};
        struct err ignored;
        if (placing_ask(p, smaller, 1, placing_tokens(smaller), &answer, &ignored) == 0) {
            json_decref(answer.document);
            err_hint(e, "a context of %llu tokens would fit: --max-context %llu",
                     (unsigned long long)smaller, (unsigned long long)smaller);
            return e->code;
        }
    }
    double weights, all = need_bytes(p, 0, p->inputs->n_layers, PLACEMENT_LEAST_CONTEXT, &weights);
    if (p->ends && p->experts > 1)
        return err_hint(e, "no context fits; with --expert-groups N each block's experts are N "
                           "layers, which may lie apart: `hpctl model describe MODEL "
                           "--expert-groups N` lists them");
    return err_hint(
        e, "no context fits: add agents, or memory to them (--memory), up to %.0f bytes in all",
        all);
}
