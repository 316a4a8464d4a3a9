/* Work that takes longer than the loop may wait (a plan, a long prompt's tokens): made on the loop,
 * run once on another thread, and handed back on the loop.
 *
 * The core stays pure: it only says COORD_WORK. The shell runs it on its threads, a simulation in
 * its own time, a unit test on the spot.
 *
 *     struct plan { struct coord_work work; ... };                  embed it first
 *     plan->work = (struct coord_work){.run = plan_run, .done = plan_done};
 *     works_add(core, &plan->work, NULL)                  or requests.h's `work`, for a gateway
 *
 * The work belongs to the core from then on and to `done` at the end, which is called exactly once.
 * Nothing runs on a thread after coord_destroy: whoever destroys the core has waited for its
 * threads. */
#ifndef HP_COORDINATOR_WORK_H
#define HP_COORDINATOR_WORK_H

#include <stdatomic.h>
#include <stdbool.h>

struct model_slot; /* model_slots.h */

struct coord_work {
    /* On any thread. Touches nothing but what the work holds: what it points at is copied, counted,
     * or never changes. */
    void (*run)(struct coord_work *w);
    /* On the loop, as an event; owns the work. `dropped`: the coordinator ends, the work may not
     * have run and nobody wants it: only free it. */
    void (*done)(struct coord_work *w, bool dropped);
    atomic_bool canceled; /* set by anybody; `run` looks at it between its steps and ends early */

    struct model_slot *uses; /* the core's: a model that stays open meanwhile */
    struct coord_work *next;
};

#endif
