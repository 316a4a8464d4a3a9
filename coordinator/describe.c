#include "coordinator/describe.h"

#include "coordinator/arrivals.h"
#include "coordinator/deployment.h"
#include "coordinator/deployment_options.h"
#include "coordinator/losses.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/paces.h"
#include "coordinator/prefixes.h"
#include "coordinator/spilled_pages.h"
#include "coordinator/targets.h"
#include "transport/stage_state.h"

/* NULL: it has no such device now. */
static const char *device_name(const struct member *m, int device)
{
    const struct cluster_device *own = member_device(m, device);
    return own ? own->name : NULL;
}

static json_t *member_stages(const struct coord *c, const struct member *m)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        for (const struct deployment_stage *s = deployment_stage_of(d, m); s;
             s = deployment_stage_next(d, s))
            json_array_append_new(
                stages, json_pack("{s:s, s:i, s:s?, s:i, s:i}", "deployment", d->name, "stage",
                                  (int)(s - d->stages), "device", device_name(m, s->device),
                                  "first_layer", s->first_layer, "last_layer", s->end_layer - 1));
    }
    return stages;
}

static json_t *member_devices(const struct member *m, double *memory_bytes)
{
    static const char *const of_gpus[] = {"share", "multiprocessors", "all_multiprocessors",
                                          "kept_by", "host_bytes"};
    json_t *devices = json_array();
    for (int i = 0; i < member_device_count(m); i++) {
        const struct cluster_device *own = member_device(m, i);
        json_t *row = json_pack("{s:s, s:s, s:s, s:f, s:I}", "id", own->id, "name", own->name,
                                "kind", own->kind, "memory_bytes", own->memory_bytes,
                                "memory_free_bytes", (json_int_t)m->device_free_bytes[i]);
        const json_t *told = member_node_told(m->node, i);
        json_object_set(row, "threads", json_object_get(told, "threads"));
        json_object_set(row, "cores", json_object_get(told, "cores"));
        for (size_t k = 0; k < sizeof of_gpus / sizeof *of_gpus; k++)
            json_object_set(row, of_gpus[k], json_object_get(told, of_gpus[k]));
        if (member_device_lost(m, i))
            json_object_set_new(row, "lost", json_string(member_device_lost(m, i)));
        json_array_append_new(devices, row);
        *memory_bytes += own->memory_bytes;
    }
    return devices;
}

/* What it has spilled of KV cache, and what it may; NULL: it spills nothing. */
static json_t *member_spills(const struct member *m)
{
    const json_t *limits = m->node ? json_object_get(m->node->told, "kv_spill") : NULL;
    if (!limits)
        return NULL;
    return json_pack("{s:I, s:f, s:I, s:f}", "memory_bytes", (json_int_t)m->spilled_memory_bytes,
                     "memory_limit_bytes",
                     json_number_value(json_object_get(limits, "memory_bytes")), "disk_bytes",
                     (json_int_t)m->spilled_disk_bytes, "disk_limit_bytes",
                     json_number_value(json_object_get(limits, "disk_bytes")));
}

json_t *describe_member(const struct coord *c, const struct member *m, bool whole)
{
    double memory_bytes = 0;
    json_t *devices = member_devices(m, &memory_bytes);
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:o, s:o}", "name", m->name, "state",
        member_states[m->state].word, "hostname", m->hostname, "machine", m->machine, "program",
        m->program, "kind", member_kind(m, 0), "memory_bytes", memory_bytes, "memory_free_bytes",
        (json_int_t)m->memory_free_bytes, "devices", devices, "stages", member_stages(c, m));
    if (m->heard_ns)
        json_object_set_new(out, "heard_s", json_real((double)(coord_now(c) - m->heard_ns) * 1e-9));
    if (m->flaps)
        json_object_set_new(out, "flaps", json_integer((json_int_t)m->flaps));
    if (coord_now(c) < m->held_off_until_ns)
        json_object_set_new(out, "held_off_s",
                            json_real((double)(m->held_off_until_ns - coord_now(c)) * 1e-9));
    json_t *spills = member_spills(m);
    if (spills)
        json_object_set_new(out, "kv_spill", spills);
    if (m->rival_host[0])
        json_object_set_new(out, "key_also_on", json_string(m->rival_host));
    json_object_set_new(out, "data_sent_bytes", json_integer((json_int_t)m->data_sent_bytes));
    json_object_set_new(out, "data_received_bytes",
                        json_integer((json_int_t)m->data_received_bytes));
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
        json_object_set(out, "node", m->node->told);
    return out;
}

json_t *describe_stages(const struct deployment *d)
{
    json_t *stages = json_array();
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        const struct message_held_stage *h = deployment_stage_held(d, s);
        json_t *row = json_pack(
            "{s:s, s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "agent", s->agent->name,
            "first_layer", s->first_layer, "last_layer", s->end_layer - 1, "state",
            s->status == STAGE_HERE ? stage_states[STAGE_READY].word
            : s->word[0]            ? s->word
                                    : "waiting",
            "member", member_states[s->agent->state].word, "done_bytes", (json_int_t)s->done_bytes,
            "total_bytes", (json_int_t)s->total_bytes, "moved_bytes", (json_int_t)s->moved_bytes,
            "memory_bytes", s->memory_bytes, "planned_compute_s", s->compute_s);
        char on[DEVICE_TEXT];
        member_device_text(s->agent, s->device, on);
        json_object_set_new(row, "on", json_string(on));
        json_object_set_new(row, "pace", json_real(pace_of(d, s->agent, s->device)));
        if (s->arrivals.missing_bytes)
            json_object_set_new(row, "missing_bytes",
                                json_integer((json_int_t)s->arrivals.missing_bytes));
        if (s->copied)
            json_object_set_new(row, "copy_on", json_string(s->copy_on));
        if (member_device(s->agent, s->device))
            json_object_set_new(row, "device", json_string(device_name(s->agent, s->device)));
        if (h) {
            json_object_set_new(row, "kv_used_tokens", json_integer((json_int_t)h->kv_used_tokens));
            json_object_set_new(row, "sequences", json_integer((json_int_t)h->sequences));
            json_object_set_new(row, "batches_done", json_integer((json_int_t)h->batches_done));
            json_object_set_new(row, "busy_s", json_real(h->busy_s));
            json_object_set_new(row, "planned_s", json_real(h->planned_s));
        }
        json_array_append_new(stages, row);
    }
    return stages;
}

static json_t *prefix_cache_json(const struct deployment *d)
{
    static const char *const words[] = {
        [PREFIX_CACHE_ON] = "on", [PREFIX_CACHE_SHARED] = "shared", [PREFIX_CACHE_OFF] = "off"};
    struct prefix_pages n = prefixes_pages(d);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:i}", "mode",
                     words[d->spec.prefix_cache], "requests", (json_int_t)d->prefix_counts.requests,
                     "hits", (json_int_t)d->prefix_counts.hits, "tokens",
                     (json_int_t)d->prefix_counts.tokens, "evicted",
                     (json_int_t)d->prefix_counts.evicted, "kept", (json_int_t)prefixes_kept(d),
                     "page_tokens", KV_PAGE_TOKENS, "pages", (int)n.all, "pages_own", (int)n.own,
                     "pages_shared", (int)n.shared, "pages_cached", (int)n.cached);
}

static json_t *speculation_json(const struct deployment *d)
{
    double steps = (double)d->draft_counts.steps, right = (double)d->draft_counts.right;
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:f}", "mode", speculate_word(d->spec.speculate), "steps",
        (json_int_t)d->draft_counts.steps, "drafts", (json_int_t)d->draft_counts.drafts, "accepted",
        (json_int_t)d->draft_counts.right, "tokens_per_step", steps > 0 ? 1 + right / steps : 1.0);
}

/* As what a prompt's keys and values cross: in the format of fewer bytes of the two plans. */
static const char *handoff_format(const struct deployment *d)
{
    enum kv_format read = d->spec.kv;
    if (d->spec.prefill_kv[0])
        kv_format_of_word(d->spec.prefill_kv, d->spec.f32, &read);
    bool wider =
        kv_format_bytes(read, KV_Q8_ELEMENTS) > kv_format_bytes(d->spec.kv, KV_Q8_ELEMENTS);
    return kv_format_word(wider ? d->spec.kv : read);
}

static json_t *handoffs_json(const struct deployment *d)
{
    char reader[DEPLOYMENT_NAME];
    bool apart = deployment_readers(d)[0] != '\0';
    deployment_partner_name(d, reader);
    return json_pack("{s:s*, s:s*, s:I, s:I, s:I, s:I, s:f}", "prefill_plan", apart ? reader : NULL,
                     "kv", apart ? handoff_format(d) : NULL, "done", (json_int_t)d->handoffs.done,
                     "moved", (json_int_t)d->handoffs.moved, "failed",
                     (json_int_t)d->handoffs.failed, "bytes", (json_int_t)d->handoffs.bytes,
                     "exposed_s", d->handoffs.exposed_s);
}

/* What others had of prompts: fetched, or computed all the same, and what was compared last. */
static json_t *peers_json(const struct deployment *d)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f}", "fetched", (json_int_t)d->peer_counts.fetched,
                     "declined", (json_int_t)d->peer_counts.declined, "tokens",
                     (json_int_t)d->peer_counts.tokens, "last_fetch_s", d->peer_counts.last_fetch_s,
                     "last_compute_s", d->peer_counts.last_compute_s);
}

/* Copies of what long sequences have, and lost ones that went on from theirs; null where none is to
 * be made. */
static json_t *replicas_json(const struct deployment *d)
{
    int kept = 0;
    for (const struct sequence *s = d->active; s; s = s->next)
        kept += s->replica != 0;
    return !d->spec.replicate_kv
               ? json_null()
               : json_pack("{s:s, s:I, s:i, s:I, s:I, s:I, s:I, s:I}", "to", d->spec.replicate_to,
                           "from_tokens", (json_int_t)d->spec.replicate_kv, "sequences", kept,
                           "copied", (json_int_t)d->replicas.copied, "tokens",
                           (json_int_t)d->replicas.tokens, "failed", (json_int_t)d->replicas.failed,
                           "used", (json_int_t)d->replicas.used, "used_tokens",
                           (json_int_t)d->replicas.used_tokens);
}

/* What is known of keeping the targets; null without any. */
static json_t *targets_json(const struct deployment *d)
{
    if (d->spec.ttft_s <= 0 && d->spec.tpot_s <= 0)
        return json_null();
    return json_pack("{s:f, s:f, s:I, s:I}", "sequences", d->targets.most, "reading_over_plan",
                     d->targets.plan_s > 0 ? d->targets.read_s / d->targets.plan_s : 0.0, "refused",
                     (json_int_t)d->targets.refused, "held_back", (json_int_t)d->targets.crowded);
}

/* Weights that come while it serves; NULL: all are there. */
static json_t *loading_json(const struct deployment *d)
{
    uint64_t missing = arrivals_missing_bytes(d);
    return missing ? json_pack("{s:I, s:f}", "missing_bytes", (json_int_t)missing, "left_s",
                               arrivals_left_s(d))
                   : NULL;
}

/* How prompts are cut beside running answers. */
static json_t *beside_json(const struct deployment *d)
{
    return json_pack("{s:f, s:b, s:I}", "tpot_ms", targets_tpot_s(d) * 1e3, "default",
                     d->spec.tpot_s <= 0, "tokens", (json_int_t)targets_beside_tokens(d));
}

static json_t *growth_json(const struct deployment *d)
{
    int starved = 0;
    for (const struct sequence *s = d->active; s; s = s->next)
        starved += s->starved;
    return json_pack("{s:I, s:I, s:i, s:f}", "preempted", (json_int_t)d->growth_counts.preempted,
                     "recomputed_tokens", (json_int_t)d->growth_counts.recomputed, "starved",
                     starved, "answer_tokens", d->answer_tokens);
}

static json_t *spills_json(const struct deployment *d)
{
    struct spill_totals t = spilled_pages_totals(d);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "pages",
                     (json_int_t)t.pages, "memory_bytes", (json_int_t)t.memory_bytes, "disk_bytes",
                     (json_int_t)t.disk_bytes, "dropped", (json_int_t)t.dropped, "spilled",
                     (json_int_t)d->spill_counts.spilled, "given_up",
                     (json_int_t)d->spill_counts.given_up, "hits", (json_int_t)d->spill_counts.hits,
                     "tokens", (json_int_t)d->spill_counts.tokens, "swaps",
                     (json_int_t)d->spill_counts.swaps, "declined",
                     (json_int_t)d->spill_counts.declined, "failed",
                     (json_int_t)d->spill_counts.failed, "last_read_s", d->spill_counts.last_read_s,
                     "last_compute_s", d->spill_counts.last_compute_s);
}

json_t *describe_deployment(const struct deployment *d, bool with_plan)
{
    uint64_t moved = 0;
    for (int i = 0; i < d->n_stages; i++)
        moved += d->stages[i].moved_bytes;
    json_t *out = json_pack(
        "{s:s, s:I, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:I, s:I, "
        "s:o}",
        "name", d->name, "id", (json_int_t)d->id, "state",
        d->placing && d->state == DEPLOYMENT_PLANNED ? "planning"
                                                     : deployment_states[d->state].word,
        "text", d->why.text, "generation", (json_int_t)d->generation, "model", d->model->name,
        "model_id", d->model->id, "compute", deployment_spec_compute(&d->spec), "wire",
        frame_dtype_word(deployment_wire(d)), "kv", kv_format_word(d->spec.kv), "context",
        (json_int_t)d->context, "kv_tokens", (json_int_t)d->kv_tokens, "max_sequences",
        (json_int_t)d->max_sequences, "sequences_active", (int)d->n_active, "sequences_waiting",
        (int)d->n_waiting, "created_s", (json_int_t)d->created_s, "moved_bytes", (json_int_t)moved,
        "stages", describe_stages(d));
    json_object_set_new(out, "expert_groups", json_integer(d->model->expert_groups));
    json_object_set_new(out, "task", json_string(d->model->facts.pooling ? "embed" : "generate"));
    json_object_set_new(out, "prompt_tokens", json_integer((json_int_t)d->tokens.prompt));
    json_object_set_new(out, "output_tokens", json_integer((json_int_t)d->tokens.output));
    json_object_set_new(out, "weight", json_real(d->spec.weight));
    json_object_set_new(out, "copies", json_integer((json_int_t)d->spec.copies));
    json_object_set_new(out, "ttft_ms", json_real(d->spec.ttft_s * 1e3));
    json_object_set_new(out, "tpot_ms", json_real(d->spec.tpot_s * 1e3));
    json_object_set_new(out, "targets", targets_json(d));
    json_object_set_new(out, "beside", beside_json(d));
    json_object_set_new(out, "prefix_cache", prefix_cache_json(d));
    json_object_set_new(out, "speculation", speculation_json(d));
    json_object_set_new(out, "handoffs", handoffs_json(d));
    json_object_set_new(out, "prefix_peers", peers_json(d));
    json_object_set_new(out, "replicas", replicas_json(d));
    if (d->spec.prefill_of[0])
        json_object_set_new(out, "prefill_of", json_string(d->spec.prefill_of));
    if (d->spec.copy_of[0])
        json_object_set_new(out, "copy_of", json_string(d->spec.copy_of));
    json_t *loading = loading_json(d);
    if (loading)
        json_object_set_new(out, "loading", loading);
    json_object_set_new(out, "growth", growth_json(d));
    json_object_set_new(out, "losses", losses_json(d));
    json_object_set_new(out, "spills", spills_json(d));
    json_object_set_new(out, "rebalances", json_string(rebalancing_word(d->spec.rebalances)));
    if (d->rebalanced)
        json_object_set(out, "rebalance", d->rebalanced);
    if (with_plan && d->plan && d->plan->document)
        json_object_set(out, "plan", d->plan->document);
    return out;
}
