#include "coordinator/works.h"

#include "coordinator/effects.h"
#include "coordinator/model_slots.h"

int works_add(struct coord *c, struct coord_work *w, struct model_slot *uses, struct err *e)
{
    if (c->n_works >= COORD_MAX_WORK)
        return err_set(e, HP_EBUSY, "%u pieces of work wait for a thread already: try again later",
                       c->n_works);
    struct coord_action *a = effects_add(c, COORD_WORK, NULL, 0);
    if (!a)
        return err_set(e, HP_ENOMEM, "no memory for another piece of work");
    a->work = w;
    w->uses = uses;
    if (uses)
        uses->users++;
    w->next = c->works;
    c->works = w;
    c->n_works++;
    return 0;
}

static void work_end(struct coord *c, struct coord_work *w, bool dropped)
{
    for (struct coord_work **p = &c->works; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            c->n_works--;
            break;
        }
    if (w->uses)
        w->uses->users--;
    w->done(w, dropped);
}

bool works_end(struct coord *c, struct coord_work *w)
{
    bool used = w->uses != NULL;
    work_end(c, w, false);
    return used;
}

void works_cancel(struct coord *c)
{
    for (struct coord_work *w = c->works; w; w = w->next)
        atomic_store(&w->canceled, true);
}

void works_drop(struct coord *c)
{
    while (c->works)
        work_end(c, c->works, true);
}
