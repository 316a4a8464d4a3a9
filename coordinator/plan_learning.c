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

/* ---- stages compared ---- */

bool plan_learning_compares(int n_stages, uint32_t tokens)
{
    return n_stages > 1 && tokens >= COMPARED_LEAST_TOKENS;
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

/* ---- lessons ---- */

static void pace_learn(struct lesson *l, int stage)
{
    struct deployment_stage *s = &l->d->stages[stage];
    char key[DEVICE_KIND];
    snprintf(key, sizeof key, "%s/%d", s->agent->name, s->device);
    pace_hear(l->c, l->d, s->agent, s->device);
    double factor = plan_drift_add(l->drift, key, l->ratios[stage]);
    if (factor <= 0)
        return;
    pace_change(l->c, l->d, s->agent, s->device, factor);
    l->changes++;
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

/* Whether the prompt says something of the stage's kind: all devices of it took part and are alike,
 * or its profile is but a guess. */
static bool kind_is_judged(const struct lesson *l, int stage)
{
    const char *kind = stage_kind(l, stage);
    double least = l->ratios[stage], most = least;
    int part = 0;
    for (int k = 0; k < l->d->n_stages; k++) {
        if (strcmp(stage_kind(l, k), kind) != 0)
            continue;
        part += stage_is_first(l->d, k);
        least = fmin(least, l->ratios[k]);
        most = fmax(most, l->ratios[k]);
    }
    bool guessed =
        !profiles_find(l->c, l->d->model->id, kind, deployment_spec_compute(&l->d->spec));
    return most < ALIKE * least && (guessed || part == devices_of_kind(l->c, kind));
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

uint64_t plan_learn(struct coord *c, struct deployment *d, struct plan_drift *drift,
                    const struct stage_seconds *stages, uint32_t tokens, bool shared)
{
    struct lesson l = {.c = c, .d = d, .drift = drift, .stages = stages};
    bool compared = shared || tokens < PLAN_DRIFT_TOKENS;
    if (compared && !plan_learning_compares(d->n_stages, tokens))
        return 0;
    for (int j = 0; j < d->n_stages; j++)
        if (stages[j].planned > 0 && !member_paced_as(d->stages[j].agent)[0])
            l.ratios[j] = stages[j].measured / stages[j].planned;
    if (compared)
        ratios_compare(&l);
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
