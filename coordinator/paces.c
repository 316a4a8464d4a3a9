#include "coordinator/paces.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/model_slots.h"

enum { PACE_MOST_STEPS = 48 /* 1.1^48 is 97 */, PACE_DOUBLINGS = 6 };

static bool pace_is_of(const struct member_pace *p, const struct deployment *d, int device)
{
    return p->heard_ns && p->device == device && p->f32 == d->spec.f32 &&
           strcmp(p->model, d->model->id) == 0;
}

static const struct member_pace *pace_find(const struct deployment *d, const struct member *m,
                                           int device)
{
    for (int i = 0; i < MEMBER_PACES; i++)
        if (pace_is_of(&m->paces[i], d, device))
            return &m->paces[i];
    return NULL;
}

/* In the place of the one that was heard of longest ago. */
static struct member_pace *pace_make(const struct deployment *d, struct member *m, int device)
{
    struct member_pace *p = &m->paces[0];
    for (int i = 0; i < MEMBER_PACES; i++) {
        if (pace_is_of(&m->paces[i], d, device))
            return &m->paces[i];
        p = m->paces[i].heard_ns < p->heard_ns ? &m->paces[i] : p;
    }
    *p = (struct member_pace){.device = device, .f32 = d->spec.f32};
    utf8_copy(p->model, sizeof p->model, d->model->id);
    return p;
}

static double pace_times(const struct member_pace *p)
{
    return pow(PACE_STEP, p->steps);
}

static bool pace_is_gross(const struct member_pace *p)
{
    double times = p ? pace_times(p) : 1;
    return times >= PACE_GROSS || times <= 1 / PACE_GROSS;
}

double pace_of(const struct deployment *d, const struct member *m, int device)
{
    const struct member_pace *p = pace_find(d, m, device);
    return p ? pace_times(p) : 1;
}

bool pace_is_degraded(const struct deployment *d, const struct member *m, int device, int *told)
{
    const struct member_pace *p = pace_find(d, m, device);
    *told = p ? p->told : 0;
    return p && p->degraded;
}

bool pace_change(struct coord *c, const struct deployment *d, struct member *m, int device,
                 double factor)
{
    struct member_pace *p = pace_make(d, m, device);
    char on[DEVICE_TEXT];
    long steps = p->steps + lround(log(factor) / log(PACE_STEP));
    int bounded = (int)(steps > PACE_MOST_STEPS    ? PACE_MOST_STEPS
                        : steps < -PACE_MOST_STEPS ? -PACE_MOST_STEPS
                                                   : steps);
    bool was = pace_is_gross(p);
    p->heard_ns = coord_now(c);
    if (bounded == p->steps)
        return false;
    p->steps = bounded;
    bool is = pace_is_gross(p);
    if (is != was || (is && abs(p->steps - p->told) >= PACE_TOLD_STEPS))
        p->told = is ? p->steps : 0;
    p->losses += is && !was;
    p->degraded = pace_times(p) >= PACE_DEGRADED || (p->degraded && pace_times(p) >= PACE_GROSS);
    c->paces_version++;
    member_device_text(m, device, on);
    log_info("coordinator", "pace_changed", "on=%s deployment=%s times=%.3g", on, d->name,
             pace_times(p));
    if (is && !was)
        log_warn("coordinator", "device_off_pace",
                 "on=%s deployment=%s times=%.3g why=\"prompts take that many times what the "
                 "profile of its kind says\"",
                 on, d->name, pace_times(p));
    return true;
}

void pace_hear(struct coord *c, const struct deployment *d, struct member *m, int device)
{
    for (int i = 0; i < MEMBER_PACES; i++)
        if (pace_is_of(&m->paces[i], d, device))
            m->paces[i].heard_ns = coord_now(c);
}

const char *pace_kind(const struct deployment *d, const struct member *m, int device,
                      char out[PACE_KIND])
{
    double times = pace_of(d, m, device);
    if (fabs(times - 1) < 1e-9)
        snprintf(out, PACE_KIND, "%s", member_kind(m, device));
    else
        snprintf(out, PACE_KIND, "%s (taking %.3g times as long)", member_kind(m, device), times);
    return out;
}

struct pace_hashes paces_hash(const struct coord *c, const struct deployment *d)
{
    struct pace_hashes h = {0};
    for (size_t i = 0; i < c->n_members; i++)
        for (int k = 0; k < member_device_count(c->members[i]); k++) {
            const struct member_pace *p = pace_find(d, c->members[i], k);
            h.which = h.which * UINT64_C(0x100000001b3) + pace_is_gross(p);
            h.told = h.told * UINT64_C(0x100000001b3) + (uint64_t)(p ? p->told : 0);
        }
    return h;
}

static void pace_forget(struct coord *c, struct member *m, struct member_pace *p)
{
    unsigned doublings = p->losses > 1 ? p->losses - 1 : 0;
    doublings = doublings < PACE_DOUBLINGS ? doublings : PACE_DOUBLINGS;
    if (!p->steps || coord_now(c) - p->heard_ns < coord_ms(PACE_KEPT_MS) << doublings)
        return;
    log_info("coordinator", "pace_forgotten", "agent=%s times=%.3g", m->name, pace_times(p));
    p->steps = p->told = 0;
    p->degraded = false;
    c->paces_version++;
}

void paces_tick(struct coord *c)
{
    for (size_t i = 0; i < c->n_members; i++)
        for (int k = 0; k < MEMBER_PACES; k++)
            if (c->members[i]->paces[k].heard_ns)
                pace_forget(c, c->members[i], &c->members[i]->paces[k]);
}
