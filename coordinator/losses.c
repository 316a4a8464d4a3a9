#include "coordinator/losses.h"

#include "common/log.h"
#include "coordinator/member.h"

/* Since the last sign of the agent of it that is lost; 0: none is. */
static double silence_s(const struct coord *c, const struct deployment *d)
{
    double most = 0;
    for (int i = 0; i < d->n_stages; i++) {
        const struct member *m = d->stages[i].agent;
        double silent = m->state == MEMBER_LOST ? (double)(coord_now(c) - m->heard_ns) * 1e-9 : 0;
        most = silent > most ? silent : most;
    }
    return most;
}

void losses_place_lost(const struct coord *c, struct deployment *d, const struct err *why)
{
    if (!deployment_serves(d))
        return;
    d->losses.places++;
    d->losses.at_ns = coord_now(c);
    d->losses.found_s = silence_s(c, d);
    d->losses.last_place_s = 0;
    d->losses.why = *why;
}

void losses_place_found(const struct coord *c, struct deployment *d)
{
    if (!d->losses.at_ns)
        return;
    d->losses.last_place_s = (double)(coord_now(c) - d->losses.at_ns) * 1e-9;
    d->losses.at_ns = 0;
    log_info("coordinator", "place_recovered",
             "deployment=%s generation=%llu found_s=%.3f place_s=%.3f", d->name,
             (unsigned long long)d->generation, d->losses.found_s, d->losses.last_place_s);
}

json_t *losses_json(const struct deployment *d)
{
    double n = (double)d->losses.recovered;
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s}", "places",
                     (json_int_t)d->losses.places, "sequences", (json_int_t)d->losses.sequences,
                     "recovered", (json_int_t)d->losses.recovered, "mean_pause_s",
                     n > 0 ? d->losses.pause_s / n : 0.0, "last_pause_s", d->losses.last_pause_s,
                     "last_found_s", d->losses.found_s, "last_place_s", d->losses.last_place_s,
                     "last_why", d->losses.why.text);
}
