#include "coordinator/dispatch.h"

#include "common/log.h"
#include "coordinator/admin.h"
#include "coordinator/effects.h"
#include "coordinator/hops.h"
#include "coordinator/joining.h"
#include "coordinator/lifecycle_ends.h"
#include "coordinator/lifecycle_members.h"
#include "coordinator/link_probes.h"
#include "coordinator/lossy_links.h"
#include "coordinator/membership.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/pools/pools.h"
#include "coordinator/profiling.h"
#include "coordinator/sequences.h"
#include "coordinator/spilled_pages.h"
#include "coordinator/stage_reports.h"
#include "coordinator/streams.h"
#include "transport/control.h"

/* ---- what agents say ---- */

static void on_heartbeat(struct coord *c, struct member *m, const struct message *msg)
{
    if (membership_heartbeat(c, m, &msg->u.heartbeat))
        lifecycle_member_ready(c);
    lifecycle_member_held(c, m);
}

static void on_stage_state(struct coord *c, struct member *m, const struct message *msg)
{
    if (pools_stage_state(c, m, &msg->u.stage_state))
        return;
    struct verdict v = stage_reports_state(c, m, &msg->u.stage_state);
    lifecycle_judge(c, &v);
}

static void on_hop_state(struct coord *c, struct member *m, const struct message *msg)
{
    struct verdict v = hops_told(c, m, &msg->u.hop_state);
    lifecycle_judge(c, &v);
}

static void on_tokens(struct coord *c, struct member *m, const struct message *msg)
{
    sequences_tokens(c, m, &msg->u.tokens);
}

static void on_logits(struct coord *c, struct member *m, const struct message *msg)
{
    sequences_logits(c, m, &msg->u.logits);
}

static void on_sequence_failed(struct coord *c, struct member *m, const struct message *msg)
{
    struct verdict v = sequences_failed(c, m, &msg->u.sequence_failed);
    lifecycle_judge(c, &v);
}

static void on_kv_state(struct coord *c, struct member *m, const struct message *msg)
{
    sequences_kv_state(c, m, msg->id, &msg->u.kv_state);
}

static void on_spills(struct coord *c, struct member *m, const struct message *msg)
{
    spilled_pages_told(c, m, &msg->u.spills);
}

static void on_streams(struct coord *c, struct member *m, const struct message *msg)
{
    streams_told(c, m, &msg->u.streams);
}

static void on_losses(struct coord *c, struct member *m, const struct message *msg)
{
    lossy_links_told(c, m, &msg->u.losses);
}

static void on_share_failed(struct coord *c, struct member *m, const struct message *msg)
{
    pools_share_failed(c, m, &msg->u.share_failed);
}

static void on_prefill(struct coord *c, struct member *m, const struct message *msg)
{
    plan_vs_actual_prefill(c, m, &msg->u.prefill);
}

static void on_decode(struct coord *c, struct member *m, const struct message *msg)
{
    plan_vs_actual_decode(c, m, &msg->u.decode);
}

static void on_profile_result(struct coord *c, struct member *m, const struct message *msg)
{
    if (!pools_profile_result(c, m, msg->id, &msg->u.profile_result))
        profiling_result(c, m, msg->id, &msg->u.profile_result);
}

static void on_profile_progress(struct coord *c, struct member *m, const struct message *msg)
{
    if (!pools_profile_progress(c, m, msg->id, &msg->u.profile_progress))
        profiling_progress(c, m, msg->id, &msg->u.profile_progress);
}

static void on_link_result(struct coord *c, struct member *m, const struct message *msg)
{
    link_probes_result(c, m, msg->id, &msg->u.link_result);
}

static void on_store_state(struct coord *c, struct member *m, const struct message *msg)
{
    admin_store_state(c, m, msg->id, &msg->u.store_state);
}

static void on_log_text(struct coord *c, struct member *m, const struct message *msg)
{
    admin_log_text(c, m, msg->id, &msg->u.log_text);
}

static void on_refused(struct coord *c, struct member *m, const struct message *msg)
{
    (void)c;
    log_warn("coordinator", "agent_refuses", "agent=%s code=%s why=\"%s\"", m->name,
             msg->u.refused.code, msg->u.refused.text);
}

/* Messages of an agent that has joined over this connection. */
static const struct {
    enum message_type type;
    void (*run)(struct coord *c, struct member *m, const struct message *msg);
} from_members[] = {
    {MESSAGE_HEARTBEAT, on_heartbeat},
    {MESSAGE_STAGE_STATE, on_stage_state},
    {MESSAGE_HOP_STATE, on_hop_state},
    {MESSAGE_TOKENS, on_tokens},
    {MESSAGE_LOGITS, on_logits},
    {MESSAGE_SEQUENCE_FAILED, on_sequence_failed},
    {MESSAGE_KV_STATE, on_kv_state},
    {MESSAGE_SPILLS, on_spills},
    {MESSAGE_STREAMS, on_streams},
    {MESSAGE_LOSSES, on_losses},
    {MESSAGE_SHARE_FAILED, on_share_failed},
    {MESSAGE_PREFILL, on_prefill},
    {MESSAGE_DECODE, on_decode},
    {MESSAGE_PROFILE_RESULT, on_profile_result},
    {MESSAGE_PROFILE_PROGRESS, on_profile_progress},
    {MESSAGE_LINK_RESULT, on_link_result},
    {MESSAGE_STORE_STATE, on_store_state},
    {MESSAGE_LOG_TEXT, on_log_text},
    {MESSAGE_REFUSED, on_refused},
};

static void member_message(struct coord *c, struct member *m, const struct message *msg)
{
    for (size_t i = 0; i < sizeof from_members / sizeof *from_members; i++)
        if (from_members[i].type == msg->type) {
            from_members[i].run(c, m, msg);
            return;
        }
    struct err e;
    err_set(&e, HP_EPROTO, "an agent does not say \"%s\"", message_type_word(msg->type));
    effects_refuse(c, m->peer, msg->id, &e);
}

/* ---- who says it ---- */

static bool key_is_admin(const struct coord *c, const char *key)
{
    return c->admin_key[0] && key_equal(key, c->admin_key);
}

bool dispatch_knows(struct coord *c, const char *key)
{
    return key_is_admin(c, key) || member_of_key(c, key);
}

static void on_join(struct coord *c, uint64_t peer, const char *key, const struct message *msg)
{
    struct member *m = joining_join(c, peer, key, msg->id, &msg->u.join);
    if (!m)
        return;
    link_probes_member_joined(c, m);
    lifecycle_member_joined(c, m);
}

static void sender_refuse(struct coord *c, uint64_t peer, const char *key,
                          const struct message *msg)
{
    const struct member *m = member_of_key(c, key);
    struct err e;
    if (m) {
        err_set(&e, HP_ELINK, "agent \"%s\" has not joined over this connection: join first",
                m->name);
    } else {
        err_set(&e, HP_EDENIED, "the key of this sender is not known here: \"%s\" refused",
                message_type_word(msg->type));
        log_warn_limited("coordinator", "refused", "type=%s key=%.8s peer=%llu",
                         message_type_word(msg->type), key, (unsigned long long)peer);
    }
    effects_refuse(c, peer, msg->id, &e);
}

void dispatch_message(struct coord *c, uint64_t peer, const char *key, const struct message *msg)
{
    struct member *m = member_of_key(c, key);
    if (msg->type == MESSAGE_JOIN)
        on_join(c, peer, key, msg);
    else if (msg->type == MESSAGE_ASK && key_is_admin(c, key))
        admin_ask(c, peer, msg->id, &msg->u.ask);
    else if (m && m->peer == peer && m->state != MEMBER_LOST)
        member_message(c, m, msg);
    else if (!(m && m->peer == 0 && msg->type == MESSAGE_REFUSED))
        sender_refuse(c, peer, key, msg);
}

/* What a message may weigh follows from who sends it, and is looked at before a byte of it is read.
 */
static size_t message_limit(struct coord *c, const char *key)
{
    if (key_is_admin(c, key))
        return CONTROL_MAX_MESSAGE_BYTES;
    return member_of_key(c, key) ? MESSAGE_AGENT_MAX_BYTES + MESSAGE_STRANGER_MAX_BYTES
                                 : MESSAGE_STRANGER_MAX_BYTES;
}

int dispatch_read(struct coord *c, const char *key, const uint8_t *bytes, size_t size,
                  struct arena *arena, struct message *out, struct err *e)
{
    size_t limit = message_limit(c, key);
    if (size > limit)
        return err_set(e, HP_ELIMIT, "a message of %zu bytes; %zu are the limit for this sender",
                       size, limit);
    return message_decode(bytes, size, arena, out, e);
}
