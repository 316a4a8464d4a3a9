#include "transport/message.h"

#include <stddef.h>
#include <string.h>

#include "transport/control.h"

/* ---- the tables of fields: key and member have one name ---- */

#define U64(s, m) PACK_FIELD(s, PACK_U64, m)
#define F64(s, m) PACK_FIELD(s, PACK_F64, m)
#define BOOL(s, m) PACK_FIELD(s, PACK_BOOL, m)
#define TEXT(s, m) PACK_FIELD(s, PACK_TEXT, m)
#define BYTES(s, m) PACK_FIELD(s, PACK_BYTES, m)
#define U32S(s, m) PACK_FIELD(s, PACK_U32S, m)
#define LIST(s, m, row, most)                                                                      \
    {                                                                                              \
#m, PACK_LIST, offsetof(struct s, m), row##_fields, sizeof(struct row), false, most        \
    }
#define GENERATION(s) U64(s, deployment), U64(s, generation)

static const struct pack_field message_held_stage_fields[] = {
    GENERATION(message_held_stage),          U64(message_held_stage, stage),
    TEXT(message_held_stage, state),         U64(message_held_stage, sequences),
    U64(message_held_stage, queued_batches), U64(message_held_stage, kv_used_tokens),
    U64(message_held_stage, kv_tokens),      U64(message_held_stage, batches_done),
    F64(message_held_stage, busy_s),         F64(message_held_stage, planned_s),
    BOOL(message_held_stage, hop_heard),     BOOL(message_held_stage, running),
    U64(message_held_stage, device),         U64(message_held_stage, kept),
    U64(message_held_stage, missing_bytes),  {0}};
static const struct pack_field message_device_state_fields[] = {
    U64(message_device_state, memory_free_bytes), {0}};
static const struct pack_field message_model_fields[] = {
    BYTES(message_model, model), U64(message_model, bytes), TEXT(message_model, name), {0}};
static const struct pack_field message_peer_fields[] = {
    TEXT(message_peer, name), BYTES(message_peer, data_address), {0}};
static const struct pack_field message_value_fields[] = {
    TEXT(message_value, name), U64(message_value, width), BOOL(message_value, exact), {0}};
static const struct pack_field sampling_bias_fields[] = {
    U64(sampling_bias, token), F64(sampling_bias, bias), {0}};
#define SAMPLING(member, kind)                                                                     \
    {                                                                                              \
#member, kind, offsetof(struct message_sequence_open, sampling.member), NULL, 0, false, 0  \
    }

static const struct pack_field join_fields[] = {
    TEXT(message_join, name),
    TEXT(message_join, token),
    TEXT(message_join, program),
    TEXT(message_join, machine),
    TEXT(message_join, hostname),
    TEXT(message_join, node),
    BYTES(message_join, data_address),
    LIST(message_join, held, message_held_stage, MESSAGE_MAX_HELD),
    LIST(message_join, models, message_model, MESSAGE_MAX_MODELS),
    U64(message_join, process),
    U64(message_join, streams),
    {0}};
static const struct pack_field heartbeat_fields[] = {
    U64(message_heartbeat, number),
    U64(message_heartbeat, memory_free_bytes),
    U64(message_heartbeat, dropped_stale),
    U64(message_heartbeat, dropped_foreign),
    U64(message_heartbeat, data_sent_bytes),
    U64(message_heartbeat, data_received_bytes),
    LIST(message_heartbeat, held, message_held_stage, MESSAGE_MAX_HELD),
    LIST(message_heartbeat, devices, message_device_state, MESSAGE_MAX_DEVICES),
    {0}};
static const struct pack_field stage_state_fields[] = {
    GENERATION(message_stage_state),         U64(message_stage_state, stage),
    TEXT(message_stage_state, state),        U64(message_stage_state, done_bytes),
    U64(message_stage_state, total_bytes),   U64(message_stage_state, moved_bytes),
    U32S(message_stage_state, wanted),       TEXT(message_stage_state, code),
    TEXT(message_stage_state, text),         TEXT(message_stage_state, hint),
    U64(message_stage_state, missing_bytes), {0}};
static const struct pack_field message_said_fields[] = {U64(message_said, sequence),
                                                        U64(message_said, first),
                                                        U32S(message_said, ids),
                                                        TEXT(message_said, finish),
                                                        U64(message_said, drafts),
                                                        BYTES(message_said, scores),
                                                        {0}};
static const struct pack_field tokens_fields[] = {
    GENERATION(message_tokens),
    U64(message_tokens, made_ns),
    LIST(message_tokens, said, message_said, MESSAGE_MAX_SAID),
    {0}};
static const struct pack_field sequence_failed_fields[] = {GENERATION(message_sequence_failed),
                                                           U64(message_sequence_failed, sequence),
                                                           TEXT(message_sequence_failed, code),
                                                           TEXT(message_sequence_failed, text),
                                                           {0}};
static const struct pack_field logits_fields[] = {
    GENERATION(message_logits), U64(message_logits, sequence), U64(message_logits, first_position),
    U64(message_logits, count), BYTES(message_logits, values), {0}};
static const struct pack_field profile_result_fields[] = {
    BYTES(message_profile_result, model), TEXT(message_profile_result, kind),
    TEXT(message_profile_result, tables), TEXT(message_profile_result, code),
    TEXT(message_profile_result, text),   {0}};
static const struct pack_field store_state_fields[] = {
    LIST(message_store_state, models, message_model, MESSAGE_MAX_MODELS),
    TEXT(message_store_state, code),
    TEXT(message_store_state, text),
    {0}};
static const struct pack_field message_prefill_slice_fields[] = {
    U64(message_prefill_slice, first_position),
    U64(message_prefill_slice, tokens),
    U64(message_prefill_slice, arrived_ns),
    U64(message_prefill_slice, start_ns),
    U64(message_prefill_slice, end_ns),
    U64(message_prefill_slice, runs),
    {0}};
static const struct pack_field prefill_fields[] = {
    GENERATION(message_prefill),
    U64(message_prefill, sequence),
    U64(message_prefill, stage),
    U64(message_prefill, clock_ns),
    LIST(message_prefill, slices, message_prefill_slice, MESSAGE_MAX_SLICES),
    BOOL(message_prefill, loading),
    BOOL(message_prefill, part),
    {0}};
static const struct pack_field decode_fields[] = {
    GENERATION(message_decode),
    U64(message_decode, sequence),
    U64(message_decode, stage),
    U64(message_decode, clock_ns),
    LIST(message_decode, steps, message_prefill_slice, MESSAGE_MAX_SLICES),
    {0}};
static const struct pack_field profile_progress_fields[] = {
    TEXT(message_profile_progress, what),     U64(message_profile_progress, points),
    F64(message_profile_progress, elapsed_s), F64(message_profile_progress, budget_s),
    F64(message_profile_progress, error),     {0}};
static const struct pack_field hop_state_fields[] = {GENERATION(message_hop_state),
                                                     U64(message_hop_state, stage),
                                                     BOOL(message_hop_state, heard),
                                                     F64(message_hop_state, silent_s),
                                                     {0}};
static const struct pack_field kv_state_fields[] = {
    GENERATION(message_kv_state),       U64(message_kv_state, stage),
    U64(message_kv_state, sequence),    TEXT(message_kv_state, state),
    U64(message_kv_state, moved_bytes), TEXT(message_kv_state, code),
    TEXT(message_kv_state, text),       {0}};
static const struct pack_field link_result_fields[] = {
    F64(message_link_result, latency_s),
    F64(message_link_result, bandwidth_bytes_per_s),
    TEXT(message_link_result, code),
    TEXT(message_link_result, text),
    {0}};
static const struct pack_field link_probe_fields[] = {U64(message_link_probe, session),
                                                      TEXT(message_link_probe, role),
                                                      TEXT(message_link_probe, peer),
                                                      BYTES(message_link_probe, data_address),
                                                      {0}};
static const struct pack_field log_text_fields[] = {TEXT(message_log_text, text), {0}};

static const struct pack_field message_stream_fields[] = {
    GENERATION(message_stream),    U64(message_stream, stage),   U64(message_stream, sequence),
    U64(message_stream, stream),   BOOL(message_stream, open),   U64(message_stream, reserved),
    U64(message_stream, sampled),  U32S(message_stream, ids),    U64(message_stream, unheard),
    BYTES(message_stream, scores), TEXT(message_stream, finish), {0}};
static const struct pack_field streams_fields[] = {
    LIST(message_streams, streams, message_stream, MESSAGE_MAX_STREAMS),
    BOOL(message_streams, whole),
    {0}};

static const struct pack_field message_loss_fields[] = {
    BYTES(message_loss, peer), U64(message_loss, segments), U64(message_loss, lost), {0}};
static const struct pack_field losses_fields[] = {
    LIST(message_losses, losses, message_loss, MESSAGE_MAX_LOSSES), {0}};

static const struct pack_field welcome_fields[] = {TEXT(message_welcome, name),
                                                   U64(message_welcome, heartbeat_ms),
                                                   U64(message_welcome, coordinator_boot),
                                                   TEXT(message_welcome, data),
                                                   TEXT(message_welcome, trust),
                                                   U64(message_welcome, orphan_ms),
                                                   {0}};
static const struct pack_field members_fields[] = {BYTES(message_members, keys), {0}};
static const struct pack_field message_loading_fields[] = {
    GENERATION(message_loading), U64(message_loading, missing_bytes), {0}};
static const struct pack_field heartbeat_ack_fields[] = {
    U64(message_heartbeat_ack, number),
    LIST(message_heartbeat_ack, loading, message_loading, MESSAGE_MAX_HELD),
    {0}};
static const struct pack_field profile_run_fields[] = {BYTES(message_profile_run, model),
                                                       BYTES(message_profile_run, manifest),
                                                       TEXT(message_profile_run, compute),
                                                       U64(message_profile_run, budget_ms),
                                                       BOOL(message_profile_run, fine),
                                                       U64(message_profile_run, device),
                                                       {0}};
static const struct pack_field message_dim_fields[] = {
    TEXT(message_dim, symbol), U64(message_dim, size), {0}};
static const struct pack_field message_seconds_fields[] = {F64(message_seconds, s), {0}};
static const struct pack_field message_measure_fields[] = {U64(message_measure, id),
                                                           U32S(message_measure, batches),
                                                           U32S(message_measure, shares),
                                                           U64(message_measure, budget_ms),
                                                           {0}};
static const struct pack_field message_share_fields[] = {
    U64(message_share, parts),
    U64(message_share, part),
    U64(message_share, n_blocks),
    U32S(message_share, bounds),
    U64(message_share, batch),
    U64(message_share, sizes),
    LIST(message_share, dims, message_dim, MESSAGE_MAX_DIMS),
    LIST(message_share, seconds, message_seconds, MESSAGE_MAX_BATCH),
    U64(message_share, sample_bytes),
    LIST(message_share, measure, message_measure, MESSAGE_MAX_SHARES),
    {0}};
static const struct pack_field stage_prepare_fields[] = {
    GENERATION(message_stage_prepare),
    U64(message_stage_prepare, stage),
    U64(message_stage_prepare, n_stages),
    U64(message_stage_prepare, session),
    TEXT(message_stage_prepare, deployment_name),
    BYTES(message_stage_prepare, model),
    BYTES(message_stage_prepare, manifest),
    U64(message_stage_prepare, first_layer),
    U64(message_stage_prepare, end_layer),
    TEXT(message_stage_prepare, compute),
    U64(message_stage_prepare, context),
    U64(message_stage_prepare, kv_tokens),
    U64(message_stage_prepare, max_sequences),
    U64(message_stage_prepare, max_batch_tokens),
    TEXT(message_stage_prepare, source_machine),
    TEXT(message_stage_prepare, source_path),
    BOOL(message_stage_prepare, upload_only),
    LIST(message_stage_prepare, peers, message_peer, MESSAGE_MAX_PEERS),
    F64(message_stage_prepare, planned_s_per_token),
    F64(message_stage_prepare, planned_trip_s_per_token),
    U64(message_stage_prepare, beside_tokens),
    F64(message_stage_prepare, stands_for),
    TEXT(message_stage_prepare, wire),
    LIST(message_stage_prepare, enters, message_value, MESSAGE_MAX_VALUES),
    LIST(message_stage_prepare, crosses, message_value, MESSAGE_MAX_VALUES),
    U64(message_stage_prepare, input_session),
    BYTES(message_stage_prepare, input_from),
    U64(message_stage_prepare, device),
    TEXT(message_stage_prepare, kv),
    F64(message_stage_prepare, weight),
    BOOL(message_stage_prepare, copy),
    LIST(message_stage_prepare, share, message_share, MESSAGE_MAX_SHARES),
    BOOL(message_stage_prepare, keeps),
    U64(message_stage_prepare, expert_groups),
    {0}};
static const struct pack_field stage_connect_fields[] = {
    GENERATION(message_stage_connect),
    U64(message_stage_connect, stage),
    U64(message_stage_connect, n_stages),
    BYTES(message_stage_connect, next_address),
    BYTES(message_stage_connect, first_address),
    TEXT(message_stage_connect, next_device),
    TEXT(message_stage_connect, first_device),
    U64(message_stage_connect, next_session),
    U64(message_stage_connect, first_session),
    TEXT(message_stage_connect, wire),
    LIST(message_stage_connect, crosses, message_value, MESSAGE_MAX_VALUES),
    BOOL(message_stage_connect, keep),
    {0}};
static const struct pack_field message_share_peer_fields[] = {
    TEXT(message_share_peer, name),
    BYTES(message_share_peer, data_address),
    U64(message_share_peer, session),
    TEXT(message_share_peer, device),
    {0}};
static const struct pack_field share_connect_fields[] = {
    GENERATION(message_share_connect),
    LIST(message_share_connect, peers, message_share_peer, MESSAGE_MAX_PEERS),
    {0}};
static const struct pack_field share_failed_fields[] = {
    GENERATION(message_share_failed), U64(message_share_failed, stage),
    U64(message_share_failed, batch), TEXT(message_share_failed, code),
    TEXT(message_share_failed, text), {0}};
static const struct pack_field stage_unload_fields[] = {GENERATION(message_stage_unload), {0}};
static const struct pack_field chunk_grant_fields[] = {U64(message_chunk_grant, session),
                                                       BYTES(message_chunk_grant, model),
                                                       BOOL(message_chunk_grant, revoke),
                                                       {0}};
static const struct pack_field sequence_open_fields[] = {
    GENERATION(message_sequence_open),
    U64(message_sequence_open, sequence),
    U32S(message_sequence_open, prompt),
    U32S(message_sequence_open, slices),
    U64(message_sequence_open, max_tokens),
    U64(message_sequence_open, kv_tokens),
    U32S(message_sequence_open, end_ids),
    BOOL(message_sequence_open, all_logits),
    U64(message_sequence_open, pooling),
    SAMPLING(temperature, PACK_F64),
    SAMPLING(top_p, PACK_F64),
    SAMPLING(min_p, PACK_F64),
    SAMPLING(repetition_penalty, PACK_F64),
    SAMPLING(presence_penalty, PACK_F64),
    SAMPLING(frequency_penalty, PACK_F64),
    SAMPLING(top_k, PACK_U64),
    SAMPLING(seed, PACK_U64),
    {"bias", PACK_LIST, offsetof(struct message_sequence_open, sampling.bias), sampling_bias_fields,
     sizeof(struct sampling_bias), false, SAMPLING_MAX_BIAS},
    SAMPLING(grammar, PACK_BYTES),
    U64(message_sequence_open, prompt_tokens),
    U64(message_sequence_open, stage),
    U64(message_sequence_open, length),
    U64(message_sequence_open, share),
    U64(message_sequence_open, sampled),
    U64(message_sequence_open, speculate),
    U64(message_sequence_open, reserved),
    BYTES(message_sequence_open, spilled),
    SAMPLING(min_tokens, PACK_U64),
    SAMPLING(late_ids, PACK_U32S),
    SAMPLING(steps, PACK_U64),
    SAMPLING(penalty_window, PACK_U64),
    U64(message_sequence_open, said_scores),
    U64(message_sequence_open, prompt_scores),
    U64(message_sequence_open, shared),
    U64(message_sequence_open, stream),
    {0}};
static const struct pack_field sequence_grow_fields[] = {GENERATION(message_sequence_grow),
                                                         U64(message_sequence_grow, sequence),
                                                         U64(message_sequence_grow, stage),
                                                         U64(message_sequence_grow, reserved),
                                                         {0}};
static const struct pack_field sequence_spill_fields[] = {GENERATION(message_sequence_spill),
                                                          U64(message_sequence_spill, sequence),
                                                          U64(message_sequence_spill, stage),
                                                          BYTES(message_sequence_spill, pages),
                                                          {0}};
static const struct pack_field sequence_close_fields[] = {GENERATION(message_sequence_close),
                                                          U64(message_sequence_close, sequence),
                                                          U64(message_sequence_close, stage),
                                                          U64(message_sequence_close, keep),
                                                          {0}};
static const struct pack_field message_spill_fields[] = {
    BYTES(message_spill, pages), BOOL(message_spill, disk), BOOL(message_spill, gone), {0}};
static const struct pack_field spills_fields[] = {
    GENERATION(message_spills),
    U64(message_spills, stage),
    BOOL(message_spills, anew),
    LIST(message_spills, chains, message_spill, MESSAGE_MAX_SPILLS),
    F64(message_spills, memory_bytes_per_s),
    F64(message_spills, disk_bytes_per_s),
    U64(message_spills, memory_bytes),
    U64(message_spills, disk_bytes),
    U64(message_spills, dropped),
    {0}};
static const struct pack_field kv_import_fields[] = {
    GENERATION(message_kv_import),    U64(message_kv_import, stage),
    U64(message_kv_import, sequence), U64(message_kv_import, session),
    BYTES(message_kv_import, from),   {0}};
static const struct pack_field message_kv_blocks_fields[] = {U64(message_kv_blocks, group),
                                                             U64(message_kv_blocks, first),
                                                             U64(message_kv_blocks, count),
                                                             {0}};
static const struct pack_field kv_export_fields[] = {
    GENERATION(message_kv_export),
    U64(message_kv_export, stage),
    U64(message_kv_export, sequence),
    U64(message_kv_export, length),
    BOOL(message_kv_export, follow),
    U64(message_kv_export, session),
    BYTES(message_kv_export, to_address),
    U64(message_kv_export, to_deployment),
    U64(message_kv_export, to_generation),
    U64(message_kv_export, to_stage),
    U64(message_kv_export, to_sequence),
    TEXT(message_kv_export, kv),
    LIST(message_kv_export, blocks, message_kv_blocks, MESSAGE_MAX_KV_BLOCKS),
    {0}};
static const struct pack_field store_remove_fields[] = {BYTES(message_store_remove, model), {0}};
static const struct pack_field log_fetch_fields[] = {U64(message_log_fetch, lines), {0}};

static const struct pack_field ask_fields[] = {
    TEXT(message_ask, verb), TEXT(message_ask, arguments), BYTES(message_ask, blob), {0}};
static const struct pack_field answer_fields[] = {BOOL(message_answer, more),
                                                  TEXT(message_answer, code),
                                                  TEXT(message_answer, text),
                                                  TEXT(message_answer, hint),
                                                  TEXT(message_answer, result),
                                                  BYTES(message_answer, blob),
                                                  {0}};
static const struct pack_field refused_fields[] = {
    TEXT(message_refused, code), TEXT(message_refused, text), TEXT(message_refused, hint), {0}};

enum { SMALL = 1 << 20, MEDIUM = MESSAGE_AGENT_MAX_BYTES, LARGE = CONTROL_MAX_MESSAGE_BYTES };

static const struct {
    const char *word;
    const struct pack_field *fields;
    size_t max_bytes; /* of the body */
} types[MESSAGE_TYPE_COUNT] = {
    [MESSAGE_NONE] = {"", NULL, 0},
    [MESSAGE_JOIN] = {"join", join_fields, SMALL},
    [MESSAGE_HEARTBEAT] = {"heartbeat", heartbeat_fields, SMALL},
    [MESSAGE_STAGE_STATE] = {"stage_state", stage_state_fields, MEDIUM},
    [MESSAGE_TOKENS] = {"tokens", tokens_fields, SMALL},
    [MESSAGE_SEQUENCE_FAILED] = {"sequence_failed", sequence_failed_fields, SMALL},
    [MESSAGE_LOGITS] = {"logits", logits_fields, MEDIUM},
    [MESSAGE_PROFILE_RESULT] = {"profile_result", profile_result_fields, MEDIUM},
    [MESSAGE_STORE_STATE] = {"store_state", store_state_fields, MEDIUM},
    [MESSAGE_LOG_TEXT] = {"log_text", log_text_fields, MEDIUM},
    [MESSAGE_PREFILL] = {"prefill", prefill_fields, SMALL},
    [MESSAGE_DECODE] = {"decode", decode_fields, SMALL},
    [MESSAGE_PROFILE_PROGRESS] = {"profile_progress", profile_progress_fields, SMALL},
    [MESSAGE_LINK_RESULT] = {"link_result", link_result_fields, SMALL},
    [MESSAGE_HOP_STATE] = {"hop_state", hop_state_fields, SMALL},
    [MESSAGE_KV_STATE] = {"kv_state", kv_state_fields, SMALL},
    [MESSAGE_SPILLS] = {"spills", spills_fields, SMALL},
    [MESSAGE_SHARE_FAILED] = {"share_failed", share_failed_fields, SMALL},
    [MESSAGE_STREAMS] = {"streams", streams_fields, MEDIUM},
    [MESSAGE_LOSSES] = {"losses", losses_fields, SMALL},
    [MESSAGE_WELCOME] = {"welcome", welcome_fields, SMALL},
    [MESSAGE_MEMBERS] = {"members", members_fields, SMALL},
    [MESSAGE_HEARTBEAT_ACK] = {"heartbeat_ack", heartbeat_ack_fields, SMALL},
    [MESSAGE_PROFILE_RUN] = {"profile_run", profile_run_fields, LARGE},
    [MESSAGE_STAGE_PREPARE] = {"stage_prepare", stage_prepare_fields, LARGE},
    [MESSAGE_STAGE_CONNECT] = {"stage_connect", stage_connect_fields, SMALL},
    [MESSAGE_STAGE_UNLOAD] = {"stage_unload", stage_unload_fields, SMALL},
    [MESSAGE_SHARE_CONNECT] = {"share_connect", share_connect_fields, MEDIUM},
    [MESSAGE_CHUNK_GRANT] = {"chunk_grant", chunk_grant_fields, SMALL},
    [MESSAGE_SEQUENCE_OPEN] = {"sequence_open", sequence_open_fields, LARGE},
    [MESSAGE_SEQUENCE_GROW] = {"sequence_grow", sequence_grow_fields, SMALL},
    [MESSAGE_SEQUENCE_SPILL] = {"sequence_spill", sequence_spill_fields, SMALL},
    [MESSAGE_SEQUENCE_CLOSE] = {"sequence_close", sequence_close_fields, SMALL},
    [MESSAGE_KV_IMPORT] = {"kv_import", kv_import_fields, SMALL},
    [MESSAGE_KV_EXPORT] = {"kv_export", kv_export_fields, SMALL},
    [MESSAGE_STORE_REMOVE] = {"store_remove", store_remove_fields, SMALL},
    [MESSAGE_LOG_FETCH] = {"log_fetch", log_fetch_fields, SMALL},
    [MESSAGE_LINK_PROBE] = {"link_probe", link_probe_fields, SMALL},
    [MESSAGE_ASK] = {"ask", ask_fields, LARGE},
    [MESSAGE_ANSWER] = {"answer", answer_fields, LARGE},
    [MESSAGE_REFUSED] = {"refused", refused_fields, SMALL},
};

/* ---- the envelope ---- */

struct envelope {
    uint64_t v, id;
    const char *t;
    struct pack_span body;
};
static const struct pack_field envelope_fields[] = {
    {"v", PACK_U64, offsetof(struct envelope, v), NULL, 0, true, 0},
    {"t", PACK_TEXT, offsetof(struct envelope, t), NULL, 0, true, 0},
    {"id", PACK_U64, offsetof(struct envelope, id), NULL, 0, false, 0},
    {"body", PACK_BYTES, offsetof(struct envelope, body), NULL, 0, false, 0},
    {0},
};

const char *message_type_word(enum message_type t)
{
    return types[t].word;
}

/* The body is written where the message is to stand, the whole behind it, and then moved there: so
 * that nothing is allocated but what `out` grows by. */
void message_encode(const struct message *m, struct buffer *out)
{
    enum { ENVELOPE_BYTES = 128 };
    size_t at = out->size;
    pack_encode(types[m->type].fields, &m->u, out);
    size_t body = out->failed ? 0 : out->size - at;
    if (!buffer_extend(out, body + ENVELOPE_BYTES))
        return;
    out->size = at + body;
    struct envelope v = {MESSAGE_VERSION, m->id, types[m->type].word, {out->data + at, body}};
    pack_encode(envelope_fields, &v, out);
    memmove(out->data + at, out->data + at + body, out->size - at - body);
    out->size -= body;
}

int message_decode(const uint8_t *bytes, size_t size, struct arena *arena, struct message *out,
                   struct err *e)
{
    struct envelope v = {0};
    *out = (struct message){0};
    int rc = pack_decode(envelope_fields, bytes, size, arena, &v, e);
    if (rc < 0)
        return rc;
    out->id = v.id;
    if (v.v != MESSAGE_VERSION) {
        err_set(e, HP_EPROTO,
                "the peer speaks version %llu of the control protocol, this program version %d",
                (unsigned long long)v.v, MESSAGE_VERSION);
        return err_hint(e, "run the same release of Hodgepodge everywhere");
    }
    for (int t = MESSAGE_NONE + 1; t < MESSAGE_TYPE_COUNT; t++)
        if (strcmp(types[t].word, v.t) == 0) {
            out->type = (enum message_type)t;
            if (v.body.size > types[t].max_bytes)
                return err_set(e, HP_ELIMIT, "a \"%s\" of %zu bytes; %zu are the limit",
                               types[t].word, v.body.size, types[t].max_bytes);
            rc = pack_decode(types[t].fields, v.body.data, v.body.size, arena, &out->u, e);
            return rc < 0 ? (err_at(e, "%s", v.t), rc) : 0;
        }
    return err_set(e, HP_EUNSUPPORTED, "unknown message type \"%.40s\"", v.t);
}
