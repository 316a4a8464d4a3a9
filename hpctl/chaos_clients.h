/* What clients see of a cluster that is being disturbed: whether each answer is the one that the
 * same prompt got before, and how long they waited between two tokens. */
#ifndef HP_HPCTL_CHAOS_CLIENTS_H
#define HP_HPCTL_CHAOS_CLIENTS_H

#include <stdbool.h>

#include "common/bytes.h"
#include "hpctl/chaos_script.h"
#include "hpctl/load_run.h"

/* Shorter waits are nothing to speak of, and not kept. */
#define CHAOS_PAUSE_S 0.1

struct chaos_pause { /* of one client: nothing came between the two */
    double from_s, to_s;
};

struct chaos_clients {
    const struct load_run *run; /* the load that is heard */
    struct buffer *answers;     /* [n_prompts]: undisturbed */
    size_t n_prompts;
    bool learning;  /* what is heard is kept as the answers, not compared with them */
    size_t *said;   /* [run->plan->n]: bytes of each answer so far */
    double *last_s; /* [run->plan->n]: when its last text came; 0: none did */
    bool *differs;  /* [run->plan->n] */
    struct chaos_pause *pauses;
    size_t n_pauses, room_pauses;
    bool no_memory;
};

struct chaos_counts {
    size_t whole, different, refused, failed, open; /* requests that were sent */
    uint64_t tokens;
};

/* Begins with a load: first to learn what the n_prompts answers are, then (`learning` false) to
 * compare. HP_ENOMEM. */
int chaos_clients_begin(struct chaos_clients *c, const struct load_run *run, bool learning,
                        struct err *e);
/* load_run.heard; ctx is the clients. */
void chaos_clients_hear(struct chaos_clients *c, size_t index, const char *text, size_t n,
                        double now_s);
/* After the load. An answer that came whole and is shorter than the undisturbed one is different,
 * and so is one that began differently, whatever became of it. */
struct chaos_counts chaos_clients_count(const struct chaos_clients *c);
/* The longest wait of any client that a fault falls into; below CHAOS_PAUSE_S: 0. */
double chaos_clients_pause(const struct chaos_clients *c, const struct chaos_fault *f);
void chaos_clients_free(struct chaos_clients *c);

#endif
