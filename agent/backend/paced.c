/* Owns what a paced agent knows of the device that it stands for. Refuses to sleep or to compute:
 * it says when. */
#include "agent/backend/paced.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/profile.h"
#include "planners/pipeline/predict.h"

/* What a sampled token takes on its way back to the first stage. */
enum { TOKEN_BYTES = 4 };

struct paced {
    struct cluster cluster;
    struct profile profile;
    json_t *cluster_json, *profile_json; /* as the files have them */
    char profile_digest[DIGEST_SHA256_HEX];
    int device, kind;
};

/* ---- opening ---- */

static int files_read(struct paced *p, const char *cluster_file, const char *profile_file,
                      struct err *e)
{
    struct json_at cluster, profile;
    int rc;
    if ((rc = json_load_at(cluster_file, &p->cluster_json, &cluster, e)) < 0 ||
        (rc = cluster_from_json(&cluster, &p->cluster, e)) < 0 ||
        (rc = json_load_at(profile_file, &p->profile_json, &profile, e)) < 0 ||
        (rc = profile_from_json(&profile, &p->profile, e)) < 0 ||
        (rc = digest_file_sha256(profile_file, p->profile_digest, e)) < 0)
        return rc;
    return 0;
}

int paced_open(const char *cluster_file, const char *profile_file, const char *as,
               struct paced **out, struct err *e)
{
    struct paced *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HP_ENOMEM, "no memory for a paced device");
    int rc = files_read(p, cluster_file, profile_file, e);
    if (rc == 0) {
        p->device = cluster_find_device(&p->cluster, as);
        if (p->device < 0)
            rc = err_set(e, HP_ENOENT, "%s: there is no device \"%s\"", cluster_file, as);
    }
    if (rc == 0) {
        p->kind = profile_find_kind(&p->profile, p->cluster.devices[p->device].kind);
        if (p->kind < 0)
            rc = err_set(e, HP_ENOENT, "%s: has no times for %s, which is of kind %s", profile_file,
                         as, p->cluster.devices[p->device].kind);
    }
    if (rc < 0)
        paced_close(&p);
    else
        *out = p;
    return rc;
}

void paced_close(struct paced **pp)
{
    struct paced *p = *pp;
    *pp = NULL;
    if (!p)
        return;
    cluster_free(&p->cluster);
    profile_free(&p->profile);
    json_decref(p->cluster_json);
    json_decref(p->profile_json);
    free(p);
}

const char *paced_as(const struct paced *p)
{
    return p->cluster.devices[p->device].id;
}
const char *paced_kind(const struct paced *p)
{
    return p->cluster.devices[p->device].kind;
}
double paced_memory_bytes(const struct paced *p)
{
    return p->cluster.devices[p->device].memory_bytes;
}
bool paced_is_fixed(const struct paced *p)
{
    return p->profile.shape != PROFILE_SEQUENCE;
}

int paced_layers(const struct paced *p)
{
    return p->profile.n_layers;
}

/* ---- what it tells the cluster ---- */

static json_t *links_of(const struct paced *p)
{
    json_t *links = json_array();
    for (int i = 0; i < p->cluster.n_devices; i++) {
        struct cluster_wire w = cluster_hop(&p->cluster, p->device, i);
        if (i != p->device && w.bandwidth_bytes_per_s > 0)
            json_array_append_new(links,
                                  json_pack("{s:s, s:f, s:f}", "to", p->cluster.devices[i].id,
                                            "bandwidth_bytes_per_s", w.bandwidth_bytes_per_s,
                                            "latency_s", w.latency_s));
    }
    return links;
}

/* Appends and releases. */
static int text_append(json_t *value, struct buffer *json, struct err *e)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    if (text)
        buffer_append(json, text, strlen(text));
    bool good = text && !json->failed;
    free(text);
    json_decref(value);
    return good ? 0 : err_set(e, HP_ENOMEM, "no memory to describe a paced device");
}

int paced_node(const struct paced *p, const char *name, struct buffer *json, struct err *e)
{
    const struct cluster_device *d = &p->cluster.devices[p->device];
    const struct cluster_node *n = &p->cluster.nodes[d->node];
    json_t *nics = json_array();
    for (int i = 0; i < n->n_nics; i++)
        json_array_append_new(nics, json_pack("{s:s, s:f, s:f}", "name", n->nics[i].name,
                                              "bandwidth_bytes_per_s",
                                              n->nics[i].wire.bandwidth_bytes_per_s, "latency_s",
                                              n->nics[i].wire.latency_s));
    json_t *node =
        json_pack("{s:s, s:[{s:s, s:s, s:f, s:f, s:f}], s:o, s:{s:s, s:s, s:o}}", "name", name,
                  "devices", "name", d->name, "kind", d->kind, "memory_bytes", d->memory_bytes,
                  "idle_w", d->idle_w, "busy_w", d->busy_w, "nics", nics, "paced", "as", d->id,
                  "profile", p->profile_digest, "links", links_of(p));
    return text_append(node, json, e);
}

int paced_tables(const struct paced *p, struct buffer *json, struct err *e)
{
    json_t *tables =
        json_deep_copy(json_object_get(json_object_get(p->profile_json, "latency"), paced_kind(p)));
    json_t *layers = json_deep_copy(json_object_get(p->profile_json, "layers")), *layer;
    size_t i;
    json_array_foreach(layers, i, layer)
        json_object_set(layer, "resident_bytes", json_object_get(layer, "param_bytes"));
    json_object_set_new(tables, "layers", layers);
    json_object_set_new(tables, "batch", json_real(p->profile.batch));
    json_object_set_new(tables, "pace", json_string(p->profile_digest));
    return text_append(tables, json, e);
}

/* The document's part for a length; NULL: it has none of it. */
static const json_t *length_profile(const json_t *profile, uint64_t length)
{
    char key[24];
    snprintf(key, sizeof key, "%llu", (unsigned long long)length);
    if (json_integer_value(json_object_get(profile, "length")) == (json_int_t)length)
        return profile;
    return json_object_get(json_object_get(profile, "lengths"), key);
}

int paced_network_profile(const struct paced *p, const uint64_t *sizes, int n, struct buffer *json,
                          struct err *e)
{
    const char *kind = paced_kind(p);
    const json_t *from = p->profile_json, *of_length = NULL;
    if (!paced_is_fixed(p))
        return err_set(e, HP_EUNSUPPORTED,
                       "%s stands for a device by the profile of a sequence model, which says "
                       "nothing of networks",
                       paced_as(p));
    for (int i = 0; i < n && !of_length; i++)
        of_length = length_profile(from, sizes[i]);
    from = of_length ? of_length : from;
    return text_append(json_pack("{s:s, s:s, s:O, s:O?, s:{s:O}, s:s}", "format", "hp-profile/1",
                                 "model", p->profile.model, "layers",
                                 json_object_get(from, "layers"), "bounds",
                                 json_object_get(from, "bounds"), "latency", kind,
                                 json_object_get(json_object_get(from, "latency"), kind), "pace",
                                 p->profile_digest),
                       json, e);
}

/* ---- bytes and seconds ---- */

int paced_divide(const struct paced *p, const struct profile_part *parts, int n,
                 struct profile *out, struct err *e)
{
    return profile_divide(&p->profile, parts, n, out, e);
}

double paced_stage_bytes(const struct paced *p, const struct profile *layers, int first, int end,
                         double kv_tokens, double batch)
{
    const struct profile *of = layers ? layers : &p->profile;
    double b = batch > 0 ? batch : of->batch, sum = 0;
    for (int l = first; l < end && l < of->n_layers; l++)
        sum += of->layers[l].param_bytes + of->layers[l].state_bytes_per_token * kv_tokens * b;
    return sum;
}

double paced_batch_seconds(const struct paced *p, const struct profile *layers, int first, int end,
                           double batch, const struct batch_run *runs, uint32_t n)
{
    const struct profile *of = layers ? layers : &p->profile;
    double b = batch > 0 ? batch : of->batch, sum = 0, prefixes = 0;
    uint32_t decoding = 0;
    assert(end <= of->n_layers);
    for (uint32_t i = 0; i < n; i++) {
        if (runs[i].n_tokens == 1 && runs[i].first_position > 0) {
            prefixes += runs[i].first_position;
            decoding++;
        } else {
            sum += predict_layers_seconds(of, p->kind, first, end, runs[i].n_tokens,
                                          runs[i].first_position, b);
        }
    }
    if (decoding)
        sum +=
            predict_layers_seconds(of, p->kind, first, end, 1, prefixes / decoding, b * decoding);
    return isfinite(sum) && sum > 0 ? sum : 0;
}

int paced_hop(const struct paced *p, const char *to, struct cluster_wire *out, struct err *e)
{
    int device = cluster_find_device(&p->cluster, to);
    if (device < 0)
        return err_set(e, HP_ENOENT, "the paced cluster has no device \"%s\"", to);
    *out = cluster_hop(&p->cluster, p->device, device);
    if (device == p->device || out->bandwidth_bytes_per_s <= 0)
        return err_set(e, HP_ELINK, "the paced cluster has no path from %s to %s", paced_as(p), to);
    return 0;
}

double paced_hop_seconds(const struct paced *p, const struct cluster_wire *wire, int end,
                         uint32_t tokens, double batch)
{
    return predict_hop_bytes(&p->profile, end, tokens, batch) / wire->bandwidth_bytes_per_s;
}

double paced_share_seconds(const struct cluster_wire *wire, uint64_t sample_bytes, uint32_t samples,
                           uint64_t bytes)
{
    double crossing = sample_bytes ? (double)sample_bytes * samples : (double)bytes;
    return crossing / wire->bandwidth_bytes_per_s;
}

double paced_token_seconds(const struct paced *p, const struct cluster_wire *wire, uint32_t tokens,
                           double batch)
{
    return (batch > 0 ? batch : p->profile.batch) * tokens * TOKEN_BYTES /
           wire->bandwidth_bytes_per_s;
}

/* ---- queues ---- */

static uint64_t time_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t paced_queue_begin(const struct paced_queue *q, uint64_t ready_ns, uint64_t now_ns)
{
    uint64_t begin = time_later(q->free_ns, ready_ns),
             least = now_ns > PACED_CREDIT_NS ? now_ns - PACED_CREDIT_NS : 0;
    return time_later(begin, least);
}

uint64_t paced_queue_take(struct paced_queue *q, uint64_t ready_ns, uint64_t now_ns, double seconds)
{
    return q->free_ns = paced_queue_begin(q, ready_ns, now_ns) + (uint64_t)llround(seconds * 1e9);
}

uint64_t paced_stamp(uint64_t stamp_ns, uint64_t now_ns)
{
    return stamp_ns && stamp_ns <= now_ns && now_ns - stamp_ns <= PACED_CREDIT_NS ? stamp_ns
                                                                                  : now_ns;
}
