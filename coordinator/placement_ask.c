/* What the planner is asked for a deployment: its request, with the room that stages need beside
 * their weights. Pure functions of a `struct placement_job`: any thread, no core. */
#include "coordinator/deployment.h"
#include "coordinator/placement_int.h"
#include "transport/stage_bytes.h"

struct pipeline_request placing_request(const struct placement_job *p, int tokens)
{
    return (struct pipeline_request){
        .cluster = &p->cluster,
        .profile = &p->profile,
        .tokens = tokens,
        .objective = PIPELINE_LATENCY,
        .method = PIPELINE_EXACT,
        .seed = p->deployment,
        .devices = p->devices,
        .n_devices = p->n_devices,
        .layer_ends = p->ends,
        .max_slice = p->max_slice,
        .brief = !p->imagined,
        .env = p->env,
    };
}

uint64_t placing_open_sequences(const struct placement_job *p, uint64_t context, uint64_t sequences)
{
    if (p->planned || p->max_sequences)
        return p->planned ? sequences : p->max_sequences;
    uint64_t many =
        placing_round_up(context, DEPLOYMENT_KV_ROUND) * sequences / DEPLOYMENT_SEQUENCE_TOKENS;
    many = many < DEPLOYMENT_SEQUENCES ? many : DEPLOYMENT_SEQUENCES;
    return many > sequences ? many : sequences;
}

uint64_t placing_kv_tokens(const struct placement_job *p, uint64_t context, uint64_t sequences)
{
    /* Agents that stand for a plan's devices keep what the plan says. */
    uint64_t steps = p->planned ? 0 : placing_open_sequences(p, context, sequences);
    return placing_round_up(context, DEPLOYMENT_KV_ROUND) * sequences + steps * DEPLOYMENT_KV_ROUND;
}

double placing_beside_bytes(const struct placement_job *p, uint64_t context, uint64_t sequences,
                            bool last)
{
    struct stage_shape s = {.last = last,
                            .max_batch_tokens = (uint64_t)p->max_slice,
                            .max_sequences = placing_open_sequences(p, context, sequences),
                            .row = p->row,
                            .vocabulary = p->vocabulary,
                            .wire = p->wire};
    return p->paced ? 0 : (double)stage_beside_bytes(&s);
}

struct pipeline_request placing_roomy_request(const struct placement_job *p, uint64_t context,
                                              uint64_t sequences, int tokens)
{
    struct pipeline_request rq = placing_request(p, tokens);
    rq.hands_on_bytes = placing_beside_bytes(p, context, sequences, false);
    rq.last_bytes = placing_beside_bytes(p, context, sequences, true);
    rq.context_tokens = (double)placing_kv_tokens(p, context, sequences) / (double)sequences;
    rq.sequences = (double)sequences * p->inputs->stands_for;
    int n = p->devices ? p->n_devices : p->cluster.n_devices;
    /* The joint search grows with the devices: less effort beyond a few, and beyond many the
     * published programmes. */
    if (!p->ends && n > 8)
        rq.effort = 0.1;
    if (!p->ends && n > 32)
        rq.method = PIPELINE_HPIPE;
    return rq;
}

int placing_ask(struct placement_job *p, uint64_t context, uint64_t sequences, int tokens,
                struct pipeline_answer *out, struct err *e)
{
    if (atomic_load(&p->work.canceled))
        return err_set(e, HP_ECANCELED, "nobody waits for this plan any more");
    struct pipeline_request rq = placing_roomy_request(p, context, sequences, tokens);
    return pipeline_plan_make(&rq, &p->arena, out, e);
}

int placing_tokens(uint64_t context)
{
    return (int)(context < PLACEMENT_TOKENS ? context : PLACEMENT_TOKENS);
}
