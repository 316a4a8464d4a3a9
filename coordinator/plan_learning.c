#include "coordinator/plan_learning.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/paces.h"
#include "coordinator/planner_profile.h"
#include "coordinator/profiles.h"
#include "coordinator/slices.h"

enum { COMPARED_LEAST_TOKENS = 16 }; /* what is shorter is all overhead */
#define ALIKE 1.5                    /* stages of one kind, whose ratios differ by less */
#define COMPARED_GROSS 3.0           /* times what another stage takes */
/* A prompt that computed for so long says as much as two do; for twice as long: as three. */
#define LONG_S 1.25

struct lesson {
    struct coord *c;
    struct deployment *d;
    struct plan_drift *drift;
    const struct stage_seconds *stages;
    /* Measured over planned; 0: it stands for a profile (paced), or nothing was planned of it. */
    double ratios[PLAN_LEARNING_STAGES];
    uint64_t changes;
};

static const char *stage_kind(const struct lesson *l, int stage)
{
    return member_kind(l->d->stages[stage].agent, l->d->stages[stage].device);
}

/* Its profile is not measured. */
static bool kind_is_guessed(const struct lesson *l, int stage)
{
    const struct kept_profile *kept = profiles_find(l->c, l->d->model->id, stage_kind(l, stage),
                                                    deployment_spec_compute(&l->d->spec));
    return !kept || kept->measured.classes.n_classes == 0;
}

/* ---- stages compared ---- */

bool plan_learning_compares(uint32_t tokens)
{
    return tokens >= COMPARED_LEAST_TOKENS;
}

/* The least ratio; first of all of those that are at their kind's pace: who is known to be off it
 * may have come back, and is no measure for others. */
static double ratios_least(const struct lesson *l)
{
    double least[2] = {0};
    for (int j = 0; j < l->d->n_stages; j++) {
        const struct deployment_stage *s = &l->d->stages[j];
        bool off = fabs(pace_of(l->d, s->agent, s->device) - 1) > 1e-9;
        if (l->ratios[j] > 0 && (least[off] <= 0 || l->ratios[j] < least[off]))
            least[off] = l->ratios[j];
    }
    return least[0] > 0 ? least[0] : least[1];
}

/* Whatever else runs takes all stages longer: what is left is how they compare, and of that what is
 * gross. */
static void ratios_compare(struct lesson *l)
{
    double least = ratios_least(l);
    for (int j = 0; j < l->d->n_stages && least > 0; j++) {
        double times = l->ratios[j] / least;
        bool gross = times >= COMPARED_GROSS || (times > 0 && times <= 1 / COMPARED_GROSS);
        l->ratios[j] = gross || times <= 0 ? times : 1;
    }
}

/* Of one stage there is nothing to compare with: as it is where that is gross even if others took
 * their part of its batches, or if they took nothing; 1 where it is not even if they took nothing;
 * 0: that cannot be told. */
static void ratio_bound(struct lesson *l)
{
    double most = kind_is_guessed(l, 0) ? 0 : l->ratios[0],
           least = most * l->stages[0].own / l->stages[0].measured;
    l->ratios[0] = least >= COMPARED_GROSS      ? least
                   : most <= 1 / COMPARED_GROSS ? most /* 0: of a guess */
                   : most < COMPARED_GROSS      ? 1
                                                : 0;
}

/* ---- lessons ---- */

/* For how many prompts one counts: five in a row are to be off, which would take minutes where each
 * takes long because its device is slow. */
static int prompts_worth(const struct lesson *l, int stage)
{
    bool slow = l->ratios[stage] >= COMPARED_GROSS;
    return slow ? 1 + (int)fmin(l->stages[stage].own / LONG_S, PLAN_DRIFT_PREFILLS - 1) : 1;
}

static void pace_learn(struct lesson *l, int stage)
{
    struct deployment_stage *s = &l->d->stages[stage];
    char key[DEVICE_KIND];
    double factor = 0;
    snprintf(key, sizeof key, "%s/%d", s->agent->name, s->device);
    pace_hear(l->c, l->d, s->agent, s->device);
    for (int i = prompts_worth(l, stage); i > 0 && factor <= 0; i--)
        factor = plan_drift_add(l->drift, key, l->ratios[stage]);
    if (factor > 0)
        l->changes += pace_change(l->c, l->d, s->agent, s->device, factor);
}

static int devices_of_kind(const struct coord *c, const char *kind)
{
    int n = 0;
    for (size_t i = 0; i < c->n_members; i++)
        for (int k = 0; member_present(c->members[i]) && k < member_device_count(c->members[i]);
             k++)
            n += strcmp(member_kind(c->members[i], k), kind) == 0;
    return n;
}

/* Whether the stage is the first one on its device. */
static bool stage_is_first(const struct deployment *d, int stage)
{
    for (int k = 0; k < stage; k++)
        if (d->stages[k].agent == d->stages[stage].agent &&
            d->stages[k].device == d->stages[stage].device)
            return false;
    return true;
}

/* The only device of a kind was measured itself: what it takes far longer than that, or has been
 * found to, is no fault of its profile. */
static bool device_is_off(const struct lesson *l, int stage)
{
    const struct deployment_stage *s = &l->d->stages[stage];
    return l->ratios[stage] >= PACE_GROSS || fabs(pace_of(l->d, s->agent, s->device) - 1) > 1e-9;
}

/* Whether the prompt says something of the stage's kind: all devices of it took part and are alike,
 * or its profile is but a guess. */
static bool kind_is_judged(const struct lesson *l, int stage)
{
    const char *kind = stage_kind(l, stage);
    double least = l->ratios[stage], most = least;
    int part = 0, devices = devices_of_kind(l->c, kind);
    for (int k = 0; k < l->d->n_stages; k++) {
        if (strcmp(stage_kind(l, k), kind) != 0)
            continue;
        part += stage_is_first(l->d, k);
        least = fmin(least, l->ratios[k]);
        most = fmax(most, l->ratios[k]);
    }
    bool off = devices == 1 && device_is_off(l, stage);
    return most < ALIKE * least && (kind_is_guessed(l, stage) || (part == devices && !off));
}

/* Stages of one kind count together, once. */
static void kind_learn(struct lesson *l, int stage)
{
    const char *kind = stage_kind(l, stage);
    struct stage_seconds sum = {0};
    for (int k = 0; k < l->d->n_stages; k++) {
        bool same = strcmp(stage_kind(l, k), kind) == 0;
        if (same && k < stage)
            return;
        sum.planned += same ? l->stages[k].planned : 0;
        sum.measured += same ? l->stages[k].measured : 0;
    }
    double factor = plan_drift_add(l->drift, kind, sum.measured / sum.planned);
    if (factor <= 0)
        return;
    struct err e = {0};
    if (planner_profile_correct(l->c, l->d, &l->d->stages[stage], factor, &e) < 0)
        log_warn("coordinator", "profile_lost", "kind=\"%s\" why=\"%s\"", kind, e.text);
    log_info("coordinator", "profile_corrected", "deployment=%s kind=\"%s\" factor=%.3f",
             l->d->name, kind, factor);
    l->changes++;
}

static void ratios_find(struct lesson *l, bool compared)
{
    for (int j = 0; j < l->d->n_stages; j++)
        if (l->stages[j].planned > 0 && !member_paced_as(l->d->stages[j].agent)[0])
            l->ratios[j] = l->stages[j].measured / l->stages[j].planned;
    if (compared && l->d->n_stages > 1)
        ratios_compare(l);
    else if (compared && l->ratios[0] > 0)
        ratio_bound(l);
}

uint64_t plan_learn_part(struct coord *c, struct deployment *d, struct plan_drift *drift,
                         const struct stage_seconds *stages, int stage, bool shared)
{
    struct lesson l = {.c = c, .d = d, .drift = drift, .stages = stages};
    ratios_find(&l, shared);
    if (l.ratios[stage] >= COMPARED_GROSS && !kind_is_guessed(&l, stage))
        pace_learn(&l, stage);
    if (l.changes)
        slices_forget(d);
    return l.changes;
}

uint64_t plan_learn(struct coord *c, struct deployment *d, struct plan_drift *drift,
                    const struct stage_seconds *stages, uint32_t tokens, bool shared)
{
    struct lesson l = {.c = c, .d = d, .drift = drift, .stages = stages};
    bool compared = shared || tokens < PLAN_DRIFT_TOKENS;
    if (compared && !plan_learning_compares(tokens))
        return 0;
    ratios_find(&l, compared);
    for (int j = 0; j < d->n_stages; j++) {
        if (l.ratios[j] > 0 && !compared && kind_is_judged(&l, j))
            kind_learn(&l, j);
        else if (l.ratios[j] > 0)
            pace_learn(&l, j);
    }
    if (l.changes)
        slices_forget(d);
    return l.changes;
}
