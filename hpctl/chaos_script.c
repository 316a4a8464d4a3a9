#include "hpctl/chaos_script.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"

const char *const chaos_words[] = {"kill",
                                   "stop",
                                   "slow",
                                   "disk",
                                   "kill-coordinator",
                                   "stop-coordinator",
                                   "delay",
                                   "hang",
                                   "loss",
                                   "disk-coordinator",
                                   NULL};

int chaos_kinds_parse(const char *text, unsigned *out, struct err *e)
{
    *out = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t n = strcspn(at, ",");
        int k = 0;
        while (chaos_words[k] &&
               (strlen(chaos_words[k]) != n || strncmp(chaos_words[k], at, n) != 0))
            k++;
        if (!chaos_words[k]) {
            err_set(e, HP_EUSAGE, "--faults: \"%.*s\" is no fault", (int)(n > 40 ? 40 : n), at);
            return err_hint(e, "they are kill, stop, slow, disk, delay, hang, loss, "
                               "kill-coordinator, stop-coordinator and disk-coordinator");
        }
        *out |= 1u << k;
    }
    return 0;
}

static double time_around(double middle, uint64_t *random)
{
    return middle * (0.5 + random_unit(random));
}

static enum chaos_kind kind_draw(unsigned kinds, uint64_t *random)
{
    int n = __builtin_popcount(kinds), nth = (int)(random_unit(random) * n), k = 0;
    for (;; k++)
        if ((kinds & 1u << k) && nth-- == 0)
            return (enum chaos_kind)k;
}

static bool kind_is_of_coordinator(enum chaos_kind kind)
{
    return kind == CHAOS_KILL_COORDINATOR || kind == CHAOS_STOP_COORDINATOR ||
           kind == CHAOS_DISK_COORDINATOR;
}

int chaos_script_draw(const struct chaos_options *o, struct chaos_script *out, struct err *e)
{
    uint64_t random = o->seed * UINT64_C(0x9E3779B97F4A7C15) + 7;
    double at_s = 0, free_s = 0;
    *out = (struct chaos_script){.faults = calloc(CHAOS_MAX_FAULTS, sizeof *out->faults)};
    if (!out->faults)
        return err_no_memory(e, "a script of faults");
    while (out->n < CHAOS_MAX_FAULTS) {
        struct chaos_fault f = {.for_s = time_around(o->hold_s, &random)};
        at_s = fmax(at_s + time_around(o->every_s, &random), free_s);
        f.at_s = at_s;
        f.kind = kind_draw(o->kinds, &random);
        f.agent = (int)(random_unit(&random) * o->n_agents);
        if (kind_is_of_coordinator(f.kind))
            f.agent = -1;
        f.late_s = f.kind == CHAOS_DELAY ? o->delay_s : 0;
        f.lost = f.kind == CHAOS_LOSS ? o->loss : 0;
        free_s = at_s + f.for_s;
        if (at_s > o->seconds - o->hold_s)
            break;
        out->faults[out->n++] = f;
    }
    if (out->n)
        return 0;
    chaos_script_free(out);
    err_set(e, HP_EINVAL, "%g s have no room for one fault every %g s that lasts %g s", o->seconds,
            o->every_s, o->hold_s);
    return err_hint(e, "more --seconds, or a smaller --every or --hold");
}

void chaos_script_free(struct chaos_script *s)
{
    free(s->faults);
    *s = (struct chaos_script){0};
}
