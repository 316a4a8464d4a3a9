/* Work that is out: whose model it holds open, and how it comes back. */
#include "coordinator/work.h"

#include "coordinator/core_int.h"

int core_work_add(struct core *c, struct work *w, struct core_model_slot *uses, struct err *e)
{
    if (c->n_works >= CORE_MAX_WORK)
        return err_set(e, HP_EBUSY, "%u pieces of work wait for a thread already: try again later",
                       c->n_works);
    struct core_action *a = core_action_add(c, CORE_WORK, NULL, 0);
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

static void work_end(struct core *c, struct work *w, bool dropped)
{
    for (struct work **p = &c->works; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            c->n_works--;
            break;
        }
    if (w->uses)
        w->uses->users--;
    w->done(w, dropped);
}

void core_worked(struct core *c, struct work *w)
{
    bool used = w->uses != NULL;
    core_woke(c);
    work_end(c, w, false);
    if (used)
        core_models_sweep(c);
    deployments_advance(c);
}

void core_works_cancel(struct core *c)
{
    for (struct work *w = c->works; w; w = w->next)
        atomic_store(&w->canceled, true);
}

void core_works_drop(struct core *c)
{
    while (c->works)
        work_end(c, c->works, true);
}

int core_requests_work(void *ctx, const struct model *model, struct work *w, struct err *e)
{
    struct core *c = ctx;
    core_woke(c);
    struct core_model_slot *uses = NULL;
    for (size_t i = 0; model && i < c->n_models; i++)
        if (c->models[i]->open && c->models[i]->facts.handle == model)
            uses = c->models[i];
    if (model && !uses)
        return err_set(e, HP_ENOENT, "this model is not open any more");
    return core_work_add(c, w, uses, e);
}
