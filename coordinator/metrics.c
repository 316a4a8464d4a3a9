#include "coordinator/metrics.h"

#include <stdio.h>
#include <string.h>

#include "common/names.h"
#include "coordinator/api_keys.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/pools/pools.h"
#include "coordinator/prefixes.h"
#include "coordinator/spilled_pages.h"

enum { MOST_METRICS = 12 }; /* of a family */

/* Names of agents and deployments are letters, digits, '-', '_' and '.': nothing in a label needs
 * escaping; those of API keys do. */

/* ---- agents and their devices ---- */

static void members_rows(const struct coord *c, metrics_row_fn row, void *out)
{
    char labels[160];
    for (int s = 0; s < MEMBER_STATE_COUNT; s++) {
        int n = 0;
        for (size_t i = 0; i < c->n_members; i++)
            n += c->members[i]->state == s;
        snprintf(labels, sizeof labels, "state=\"%s\"", member_states[s].word);
        row(out, "hp_agents", "gauge", "Agents by state", labels, n);
    }
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {{"hp_agent_memory_free_bytes", "gauge", "Free memory of an agent"},
                   {"hp_agent_dropped_stale_total", "counter",
                    "Frames and messages of an older generation that an agent dropped"},
                   {"hp_agent_dropped_foreign_total", "counter",
                    "Frames without a known session token that an agent dropped"},
                   {"hp_agent_data_sent_bytes_total", "counter",
                    "Payload that an agent sent over the data channel"},
                   {"hp_agent_data_received_bytes_total", "counter",
                    "Payload that an agent received over the data channel"}};
    for (size_t f = 0; f < sizeof metrics / sizeof *metrics; f++)
        for (size_t i = 0; i < c->n_members; i++) {
            const struct member *m = c->members[i];
            uint64_t values[] = {m->memory_free_bytes, m->dropped_stale, m->dropped_foreign,
                                 m->data_sent_bytes, m->data_received_bytes};
            snprintf(labels, sizeof labels, "agent=\"%s\"", m->name);
            row(out, metrics[f].name, metrics[f].type, metrics[f].help, labels, (double)values[f]);
        }
}

static void devices_rows(const struct coord *c, metrics_row_fn row, void *out)
{
    static const struct {
        const char *name, *help;
    } metrics[] = {
        {"hp_device_memory_bytes", "Memory of a device for weights, KV cache and work space"},
        {"hp_device_memory_free_bytes", "Memory of a device that is free"}};
    char labels[320];
    for (size_t f = 0; f < sizeof metrics / sizeof *metrics; f++)
        for (size_t i = 0; i < c->n_members; i++)
            for (int k = 0; k < member_device_count(c->members[i]); k++) {
                const struct member *m = c->members[i];
                const struct cluster_device *own = member_device(m, k);
                double values[] = {own->memory_bytes, (double)m->device_free_bytes[k]};
                if (!name_is_valid(own->name, MEMBER_NAME))
                    continue;
                snprintf(labels, sizeof labels, "agent=\"%s\",device=\"%s\"", m->name, own->name);
                row(out, metrics[f].name, "gauge", metrics[f].help, labels, values[f]);
            }
}

/* ---- deployments: families of metrics, each with its values ---- */

struct metric {
    const char *name, *type, *help;
};

struct metric_family {
    const struct metric *metrics; /* ends with a zero row */
    /* out[i] is of metrics[i]. */
    void (*values)(const struct deployment *d, double out[MOST_METRICS]);
};

static const struct metric deployment_metrics[] = {
    {"hp_deployment_serving", "gauge", "1 where a deployment serves"},
    {"hp_deployment_generation", "gauge", "How often a deployment has been wired"},
    {"hp_sequences_active", "gauge", "Sequences on the stages of a deployment"},
    {"hp_sequences_waiting", "gauge", "Requests in the queue of a deployment"},
    {"hp_kv_reserved_tokens", "gauge", "KV cache that open sequences reserve"},
    {"hp_kv_tokens", "gauge", "KV cache there is"},
    {"hp_deployment_prompt_tokens_total", "counter", "Tokens of prompts that began"},
    {"hp_deployment_output_tokens_total", "counter", "Tokens of answers, as they come"},
    {0}};

static void deployment_values(const struct deployment *d, double out[MOST_METRICS])
{
    const double values[] = {deployment_serves(d),
                             (double)d->generation,
                             d->n_active,
                             d->n_waiting,
                             (double)d->kv.used_growing * KV_PAGE_TOKENS,
                             (double)d->kv_tokens,
                             (double)d->tokens.prompt,
                             (double)d->tokens.output};
    memcpy(out, values, sizeof values);
}

static const struct metric prefix_metrics[] = {
    {"hp_prefix_hits_total", "counter",
     "Requests whose prompt began as another's, of which that part was not computed again"},
    {"hp_prefix_hit_tokens_total", "counter", "Tokens of prompts that were not computed again"},
    {"hp_prefix_evictions_total", "counter",
     "Kept beginnings that were given up because room was needed"},
    {"hp_prefix_kept", "gauge", "Sequences that have ended and are kept for others"},
    {"hp_kv_cached_tokens", "gauge", "KV cache of kept sequences alone"},
    {"hp_kv_shared_tokens", "gauge", "KV cache that several open sequences have together"},
    {0}};

static void prefix_values(const struct deployment *d, double out[MOST_METRICS])
{
    struct prefix_pages pages = prefixes_pages(d);
    const double values[] = {
        (double)d->prefix_counts.hits,         (double)d->prefix_counts.tokens,
        (double)d->prefix_counts.evicted,      prefixes_kept(d),
        (double)pages.cached * KV_PAGE_TOKENS, (double)pages.shared * KV_PAGE_TOKENS};
    memcpy(out, values, sizeof values);
}

static const struct metric draft_metrics[] = {
    {"hp_draft_steps_total", "counter", "Steps of decode that verified guessed tokens"},
    {"hp_draft_tokens_total", "counter", "Guessed tokens that were verified"},
    {"hp_draft_tokens_accepted_total", "counter", "Guessed tokens that were right"},
    {"hp_draft_accepted_length", "gauge", "Tokens that a step with guesses gave, on average"},
    {0}};

static void draft_values(const struct deployment *d, double out[MOST_METRICS])
{
    double steps = (double)d->draft_counts.steps, right = (double)d->draft_counts.right;
    const double values[] = {steps, (double)d->draft_counts.drafts, right,
                             steps > 0 ? 1 + right / steps : 0};
    memcpy(out, values, sizeof values);
}

static const struct metric handoff_metrics[] = {
    {"hp_handoffs_total", "counter",
     "Prompts that the prefill plan read, with their keys and values here"},
    {"hp_sequences_moved_total", "counter",
     "Running sequences that came from a deployment which left an agent"},
    {"hp_handoffs_failed_total", "counter",
     "Handoffs that failed; the deployment's own stages read the prompt then"},
    {"hp_handoff_bytes_total", "counter", "Keys and values that went from one plan to the other"},
    {"hp_handoff_exposed_seconds_total", "counter",
     "From when a prompt had been computed to when all its keys and values had come"},
    {"hp_prefix_fetched_total", "counter",
     "Beginnings of prompts that came from another deployment"},
    {"hp_prefix_fetched_tokens_total", "counter",
     "Tokens of beginnings that came from another deployment"},
    {"hp_prefix_fetch_declined_total", "counter",
     "Beginnings that another deployment had, computed here because that takes less time"},
    {"hp_replicas_copied_total", "counter",
     "Copies of long sequences' keys and values that another deployment was given"},
    {"hp_replicas_used_total", "counter", "Lost sequences that went on from their copy"},
    {"hp_replicas_used_tokens_total", "counter",
     "Tokens that came from copies and were not computed anew"},
    {0}};

static void handoff_values(const struct deployment *d, double out[MOST_METRICS])
{
    const double values[] = {(double)d->handoffs.done,       (double)d->handoffs.moved,
                             (double)d->handoffs.failed,     (double)d->handoffs.bytes,
                             d->handoffs.exposed_s,          (double)d->peer_counts.fetched,
                             (double)d->peer_counts.tokens,  (double)d->peer_counts.declined,
                             (double)d->replicas.copied,     (double)d->replicas.used,
                             (double)d->replicas.used_tokens};
    memcpy(out, values, sizeof values);
}

static const struct metric growth_metrics[] = {
    {"hp_sequences_preempted_total", "counter",
     "Sequences that gave their KV cache to older ones and began anew"},
    {"hp_recomputed_tokens_total", "counter",
     "Tokens that were computed again because their sequence gave way"},
    {0}};

static void growth_values(const struct deployment *d, double out[MOST_METRICS])
{
    const double values[] = {(double)d->growth_counts.preempted,
                             (double)d->growth_counts.recomputed};
    memcpy(out, values, sizeof values);
}

static const struct metric loss_metrics[] = {
    {"hp_places_lost_total", "counter", "Times that a deployment lost an agent while it served"},
    {"hp_sequences_lost_total", "counter", "Running sequences that their stages lost"},
    {"hp_sequences_recovered_total", "counter",
     "Lost sequences that went on with their next token"},
    {"hp_recovery_pause_seconds_total", "counter",
     "How long lost sequences that went on paused, together"},
    {0}};

static void loss_values(const struct deployment *d, double out[MOST_METRICS])
{
    const double values[] = {(double)d->losses.places, (double)d->losses.sequences,
                             (double)d->losses.recovered, d->losses.pause_s};
    memcpy(out, values, sizeof values);
}

static const struct metric spill_metrics[] = {
    {"hp_spilled_chains_total", "counter",
     "Kept beginnings, and sequences that gave way, whose KV cache agents were told to spill"},
    {"hp_spill_hits_total", "counter", "Sequences that began with what was spilled"},
    {"hp_spill_hit_tokens_total", "counter", "Tokens that were read back from what was spilled"},
    {"hp_spill_swaps_total", "counter",
     "Sequences that had given way and began with what was spilled"},
    {"hp_spill_declined_total", "counter",
     "Sequences of which something was spilled that takes less time to compute"},
    {"hp_spill_failed_total", "counter",
     "Sequences for which what was spilled could not be read back"},
    {"hp_spill_dropped", "gauge", "Files cut short, changed or of another chain, of its agents"},
    {"hp_spilled_tokens", "gauge", "Tokens that all stages have spilled"},
    {"hp_spill_memory_bytes", "gauge", "KV cache that its agents keep in host memory"},
    {"hp_spill_disk_bytes", "gauge", "KV cache that its agents keep on disk"},
    {0}};

static void spill_values(const struct deployment *d, double out[MOST_METRICS])
{
    struct spill_totals t = spilled_pages_totals(d);
    const double values[] = {(double)d->spill_counts.spilled,
                             (double)d->spill_counts.hits,
                             (double)d->spill_counts.tokens,
                             (double)d->spill_counts.swaps,
                             (double)d->spill_counts.declined,
                             (double)d->spill_counts.failed,
                             (double)t.dropped,
                             (double)t.pages * KV_PAGE_TOKENS,
                             (double)t.memory_bytes,
                             (double)t.disk_bytes};
    memcpy(out, values, sizeof values);
}

static const struct metric prefill_metrics[] = {
    {"hp_prefills_compared_total", "counter",
     "Prompts that were alone on their stages and were compared with the plan, but for the first "
     "after loading"},
    {"hp_prefill_planned_seconds_total", "counter",
     "What the plan predicted for prompts that were compared, from the first stage's start to the "
     "last one's end"},
    {"hp_prefill_measured_seconds_total", "counter", "What prompts that were compared took"},
    {"hp_prefill_error_ratio", "gauge",
     "Measured / planned - 1 of the last prompt that was compared"},
    {"hp_profile_corrections_total", "counter",
     "How often a profile was corrected because it had drifted"},
    {0}};

static void prefill_values(const struct deployment *d, double out[MOST_METRICS])
{
    struct plan_vs_actual_totals t = plan_vs_actual_totals(d);
    const double values[] = {(double)t.prefills, t.planned_s, t.measured_s, t.error,
                             (double)t.corrections};
    memcpy(out, values, sizeof values);
}

static void family_rows(const struct coord *c, const struct metric_family *family,
                        metrics_row_fn row, void *out)
{
    char labels[160];
    for (size_t k = 0; family->metrics[k].name; k++)
        for (size_t i = 0; i < c->n_deployments; i++) {
            double values[MOST_METRICS] = {0};
            family->values(c->deployments[i], values);
            snprintf(labels, sizeof labels, "deployment=\"%s\"", c->deployments[i]->name);
            row(out, family->metrics[k].name, family->metrics[k].type, family->metrics[k].help,
                labels, values[k]);
        }
}

static const struct metric_family families[] = {
    {deployment_metrics, deployment_values}, {prefix_metrics, prefix_values},
    {draft_metrics, draft_values},           {handoff_metrics, handoff_values},
    {growth_metrics, growth_values},         {loss_metrics, loss_values},
    {spill_metrics, spill_values},           {prefill_metrics, prefill_values}};

/* ---- stages ---- */

static void stages_rows(const struct coord *c, metrics_row_fn row, void *out)
{
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {{"hp_stage_busy_seconds_total", "counter", "Compute that a stage has measured"},
                   {"hp_stage_planned_seconds_total", "counter",
                    "Compute that the plan predicted for the same work"},
                   {"hp_stage_batches_total", "counter", "Batches that a stage has run"},
                   {"hp_stage_queued_batches", "gauge", "Batches that wait at a stage"},
                   {"hp_stage_kv_used_tokens", "gauge", "KV cache in use on a stage"}};
    char labels[320];
    for (size_t f = 0; f < sizeof metrics / sizeof *metrics; f++)
        for (size_t i = 0; i < c->n_deployments; i++)
            for (int k = 0; k < c->deployments[i]->n_stages; k++) {
                const struct deployment *d = c->deployments[i];
                const struct message_held_stage *h = deployment_stage_held(d, &d->stages[k]);
                if (!h)
                    continue;
                double values[] = {h->busy_s, h->planned_s, (double)h->batches_done,
                                   (double)h->queued_batches, (double)h->kv_used_tokens};
                const struct cluster_device *own =
                    member_device(d->stages[k].agent, d->stages[k].device);
                snprintf(labels, sizeof labels,
                         "deployment=\"%s\",stage=\"%d\",agent=\"%s\",device=\"%s\"", d->name, k,
                         d->stages[k].agent->name,
                         own && name_is_valid(own->name, MEMBER_NAME) ? own->name : "");
                row(out, metrics[f].name, metrics[f].type, metrics[f].help, labels, values[f]);
            }
}

/* ---- API keys ---- */

/* A name as the value of a label. */
static void label_write(char *out, size_t size, const char *label, const char *name)
{
    size_t n = (size_t)snprintf(out, size, "%s=\"", label);
    for (; *name && n + 4 < size; name++) {
        if (*name == '"' || *name == '\\')
            out[n++] = '\\';
        out[n++] = *name;
    }
    snprintf(out + n, size - n, "\"");
}

enum { N_KEY_COUNTERS = 4 };

static void keys_rows(const struct coord *c, metrics_row_fn row, void *out)
{
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {
        {"hp_key_requests_total", "counter", "Requests of an API key that its limits let in"},
        {"hp_key_refused_total", "counter", "Requests, and prompts of such, that they did not"},
        {"hp_key_prompt_tokens_total", "counter", "Tokens of an API key's prompts"},
        {"hp_key_output_tokens_total", "counter", "Tokens of the answers to them"},
        {"hp_key_left_tokens", "gauge", "What its budgets leave it, where it has any"}};
    char label[2 * REQUEST_KEY_NAME_BYTES + 16];
    for (size_t f = 0; f < sizeof metrics / sizeof *metrics; f++)
        for (struct api_key *k = c->api_keys; k; k = k->hh.next) {
            const struct key_meter *m = &k->meter;
            uint64_t left = key_meter_left(&k->meter, &k->limits, coord_clock(c));
            if (f == N_KEY_COUNTERS && left == UINT64_MAX)
                continue;
            double values[] = {(double)m->n_requests, (double)m->n_refused,
                               (double)m->prompt_tokens, (double)m->output_tokens, (double)left};
            label_write(label, sizeof label, "key", k->name);
            row(out, metrics[f].name, metrics[f].type, metrics[f].help, label, values[f]);
        }
}

/* ---- all ---- */

void metrics_rows(const struct coord *c, metrics_row_fn row, void *out)
{
    const struct {
        const char *name, *help;
        uint64_t value;
    } counters[] = {
        {"hp_sequences_opened_total", "Sequences that were given room", c->counts.opened},
        {"hp_sequences_finished_total", "Sequences that ended well", c->counts.finished},
        {"hp_sequences_failed_total", "Sequences that ended with an error", c->counts.failed},
        {"hp_sequences_cancelled_total", "Sequences whose client went away", c->counts.cancelled},
        {"hp_requests_rejected_total", "Requests that found the queue full or nothing serving",
         c->counts.rejected},
        {"hp_prompt_tokens_total", "Tokens of prompts", c->counts.prompt_tokens},
        {"hp_output_tokens_total", "Tokens sampled", c->counts.output_tokens},
        {"hp_messages_refused_total", "Control messages that were refused", c->counts.refused},
        {"hp_messages_stale_total", "Control messages of an older generation or a closed sequence",
         c->counts.stale},
        {"hp_streams_adopted_total",
         "Sequences that had gone on without a coordinator and were taken over at work",
         c->counts.adopted}};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        row(out, counters[i].name, "counter", counters[i].help, "", (double)counters[i].value);
    row(out, "hp_read_only", "gauge", "1 while the store cannot be written and changes are refused",
        "", c->read_only.code != 0);
    row(out, "hp_pauses_total", "counter",
        "Times that the coordinator itself stood still for longer than a second", "",
        (double)c->counts.pauses);
    members_rows(c, row, out);
    keys_rows(c, row, out);
    devices_rows(c, row, out);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        family_rows(c, &families[i], row, out);
    stages_rows(c, row, out);
    pools_metrics(c, row, out);
}
