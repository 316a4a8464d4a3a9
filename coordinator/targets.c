#include "coordinator/targets.h"

#include <stdio.h>

#include "coordinator/arrivals.h"
#include "coordinator/deployment.h"
#include "coordinator/prefixes.h"
#include "coordinator/requests.h"
#include "coordinator/sequence.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/shares.h"
#include "planners/pipeline/apart.h"

#define FIRST_MOST 2.0    /* run at once before anything is known */
#define STEP_PART 0.8     /* of --tpot, that steps may take on average: some take longer */
#define STEPS_OF_EACH 6   /* tokens of each that runs, before one looks at what they took */
#define LEAST_PART 0.5    /* of those that ran, that go on being let in after one look */
#define READ_PART 0.8     /* of --ttft, that a prompt may be expected to take */
#define READ_MEMORY 0.95  /* weight of what was known when one prompt more was read */
#define SHORT_PART 0.1    /* of --ttft: below that the plan's time says little of a prompt's */
#define PLAN_LEAST_S 1e-6 /* a plan without measurements says nothing */

static bool sequence_is_held(const struct sequence *s)
{
    return s->kind == SEQUENCE_REQUEST && !s->again && !s->resumed && !s->fork && !s->embeds;
}

/* ---- time to the first token ---- */

/* Seconds of reading by the plan: of all prompts that are being read. */
static double reading_s(const struct deployment *d)
{
    double sum = 0;
    for (const struct sequence *s = d->active; s; s = s->next)
        sum += s->reads ? s->predicted_s : 0;
    return sum;
}

/* And of those that wait and go before one of this priority. */
static double waiting_s(const struct deployment *d, int32_t priority)
{
    double sum = 0;
    for (const struct sequence *s = d->waiting_first; s; s = s->next)
        if (s->priority <= priority)
            sum += sequence_reading_s(d, s->n_prompt - s->known);
    return sum;
}

/* Whether the plan's time is that of a prompt whose beginning is there, or of a few tokens: it
 * takes what steps of others take, and orders. */
static bool reading_is_short(const struct deployment *d, double plan_s)
{
    return plan_s < SHORT_PART * d->spec.ttft_s;
}

/* What becomes of seconds by the plan. */
static double corrected_s(const struct deployment *d, double plan_s)
{
    return d->targets.plan_s > PLAN_LEAST_S ? plan_s * d->targets.read_s / d->targets.plan_s
                                            : plan_s;
}

void targets_opened(struct deployment *d, struct sequence *s)
{
    s->ahead_s = reading_s(d);
    s->awaits_weights = arrivals_missing_bytes(d) > 0;
}

/* Of one that reads n tokens of its prompt after `wait_s`. */
static int first_token_check(const struct deployment *d, size_t n, double wait_s, struct err *e)
{
    wait_s += arrivals_left_s(d);
    double target_s = d->spec.ttft_s, own_s = corrected_s(d, sequence_reading_s(d, n)),
           least_s = d->targets.short_s,
           comes_s = wait_s + (own_s > least_s ? own_s : least_s) / READ_PART;
    if (target_s <= 0 || !d->n_active || comes_s <= target_s)
        return 0;
    return err_set(e, HP_EBUSY,
                   "its first token would come after %.4g s and \"%s\" answers within %.4g s "
                   "(--ttft): try again later",
                   comes_s, d->name, target_s);
}

uint32_t targets_known(const struct coord *c, const struct deployment *d,
                       const struct request_spec *r)
{
    struct sequence s = {.kind = SEQUENCE_REQUEST,
                         .prompt = (uint32_t *)(uintptr_t)r->prompt, /* is looked at */
                         .n_prompt = r->n_prompt,
                         .n_ids = r->n_prompt,
                         .max_tokens = r->max_tokens};
    if (d->spec.ttft_s <= 0 || r->embed || r->fork_of || r->n_prompt >= d->context)
        return 0;
    if (!s.max_tokens || s.max_tokens > d->context - s.n_prompt)
        s.max_tokens = d->context - s.n_prompt;
    snprintf(s.client, sizeof s.client, "%s", r->client ? r->client : "");
    return prefixes_find(c, d, &s).length;
}

int targets_check(const struct deployment *d, const char *client, int32_t priority, size_t n,
                  struct err *e)
{
    if (d->spec.ttft_s <= 0)
        return 0;
    double others_s = corrected_s(d, reading_s(d) + waiting_s(d, priority)),
           turn_s = shares_wait_s(d, client, priority);
    return first_token_check(d, n, others_s > turn_s ? others_s : turn_s, e);
}

int targets_keep(const struct deployment *d, const struct sequence *s, uint64_t now_ns,
                 struct err *e)
{
    double waited_s = (double)(now_ns - s->asked_ns) * 1e-9,
           ahead_s = corrected_s(d, reading_s(d)); /* what it still waits for, at the least */
    return sequence_is_held(s) ? first_token_check(d, s->n_prompt - s->known, waited_s + ahead_s, e)
                               : 0;
}

/* ---- time per token ---- */

bool targets_let_in(struct deployment *d, const struct sequence *s)
{
    double most = d->targets.most > 0 ? d->targets.most : FIRST_MOST;
    if (d->spec.tpot_s <= 0 || !sequence_is_held(s) || d->n_active + 1 <= most || !d->n_active)
        return true;
    d->targets.crowded += !d->targets.wanted;
    d->targets.wanted = true;
    return false;
}

/* Enough steps have been seen: more may run, or fewer. */
static void most_adapt(struct deployment *d)
{
    double step_s = d->targets.steps_s / d->targets.steps,
           part = STEP_PART * d->spec.tpot_s / step_s, most = d->targets.most, ran = d->n_active;
    if (part < 1) {
        most = (ran < most ? ran : most) * (part > LEAST_PART ? part : LEAST_PART);
        d->targets.found = true;
    } else if (d->targets.wanted) {
        most += d->targets.found ? 0.5 : most;
    }
    d->targets.most = most < 1 ? 1 : most;
    d->targets.wanted = false;
    d->targets.steps = d->targets.steps_s = 0;
}

void targets_told(struct deployment *d, const struct sequence *s, size_t fresh, uint64_t after_ns)
{
    double after_s = (double)after_ns * 1e-9;
    bool first = !s->n_output && !s->awaits_weights; /* else it says nothing of reading */
    if (first && reading_is_short(d, s->ahead_s)) {
        double known_s = d->targets.short_s > 0 ? d->targets.short_s : after_s;
        d->targets.short_s = READ_MEMORY * known_s + (1 - READ_MEMORY) * after_s;
    } else if (first) {
        d->targets.read_s = READ_MEMORY * d->targets.read_s + after_s;
        d->targets.plan_s = READ_MEMORY * d->targets.plan_s + s->ahead_s;
    }
    if (s->n_output == s->resumed || d->spec.tpot_s <= 0)
        return;
    d->targets.most = d->targets.most > 0 ? d->targets.most : FIRST_MOST;
    d->targets.steps_s += after_s;
    d->targets.steps += (double)fresh;
    if (d->targets.steps >= STEPS_OF_EACH * (double)d->n_active)
        most_adapt(d);
}

/* ---- slices beside decode ---- */

double targets_tpot_s(const struct deployment *d)
{
    return d->spec.tpot_s > 0 ? d->spec.tpot_s : APART_TPOT_DEFAULT_S;
}

uint64_t targets_beside_tokens(const struct deployment *d)
{
    double slowest_s = 0, tokens = (double)deployment_plan_tokens(d);
    bool said = d->spec.tpot_s > 0;
    uint64_t least = said ? APART_LEAST_BESIDE : APART_LEAST_BESIDE_DEFAULT;
    for (int i = 0; i < d->n_stages; i++)
        slowest_s = d->stages[i].compute_s > slowest_s ? d->stages[i].compute_s : slowest_s;
    if (slowest_s <= 0 || tokens <= 0 || (!said && (d->spec.slice || d->spec.n_slices)))
        return 0;
    double n = targets_tpot_s(d) / 2 / slowest_s * tokens;
    return n < (double)least ? least : n < UINT32_MAX ? (uint64_t)n : 0;
}
