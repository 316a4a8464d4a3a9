/* What `hpctl chaos` does to a local cluster, and when: drawn from a seed, so that it can be done
 * again. Nothing is done here. */
#ifndef HP_HPCTL_CHAOS_SCRIPT_H
#define HP_HPCTL_CHAOS_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum chaos_kind {
    CHAOS_KILL,             /* SIGKILL of an agent, which is started again */
    CHAOS_STOP,             /* SIGSTOP of an agent: its connections stay, and nothing moves */
    CHAOS_SLOW,             /* an agent runs a tenth of the time */
    CHAOS_DISK,             /* an agent's files cannot grow */
    CHAOS_KILL_COORDINATOR, /* SIGKILL, and started again */
    CHAOS_STOP_COORDINATOR, /* SIGSTOP */
    CHAOS_DELAY,            /* what an agent sends to others comes later */
    CHAOS_HANG,             /* it comes when the fault is over */
    CHAOS_LOSS,             /* some of it is lost, and sent again */
    CHAOS_DISK_COORDINATOR, /* the coordinator's files cannot grow */
    CHAOS_KINDS
};
extern const char *const chaos_words[]; /* "kill", "stop", "slow" and so on, NULL */

enum { CHAOS_MAX_FAULTS = 10000 };

struct chaos_fault {
    enum chaos_kind kind;
    int agent;          /* its number; -1: the coordinator */
    double at_s, for_s; /* after the start; how long it lasts */
    double late_s;      /* CHAOS_DELAY: by how much */
    double lost;        /* CHAOS_LOSS: the share */
    /* What became of it (chaos_faults.h): */
    double begun_s, healed_s; /* 0: not yet */
    char why[160];            /* it could not be done; "" */
};

struct chaos_options {
    uint64_t seed;
    double seconds, every_s, hold_s; /* on average from one's begin to the next's, and each */
    double delay_s, loss;            /* of CHAOS_DELAY, CHAOS_LOSS */
    unsigned kinds;                  /* bits of enum chaos_kind */
    int n_agents;
};

struct chaos_script {
    struct chaos_fault *faults; /* in order of time: one ends before the next begins */
    size_t n;
};

/* "kill,stop": bits. HP_EUSAGE names the word that is none. */
int chaos_kinds_parse(const char *text, unsigned *out, struct err *e);
/* At half to one and a half times `every_s` after one another, each for half to one and a half
 * times `hold_s`; none begins in the last `hold_s`. HP_ENOMEM; HP_EINVAL: not one. */
int chaos_script_draw(const struct chaos_options *o, struct chaos_script *out, struct err *e);
void chaos_script_free(struct chaos_script *s);

#endif
