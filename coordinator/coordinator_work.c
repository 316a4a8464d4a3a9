/* Work of the core (work.h), on other threads. */
#include <stdlib.h>

#include "coordinator/coordinator_int.h"

struct work_job {
    uv_work_t uv;
    struct coordinator *owner;
    struct coord_work *work;
};

static void work_run(uv_work_t *uv)
{
    struct work_job *j = uv->data;
    j->work->run(j->work);
}

static void work_done(uv_work_t *uv, int status)
{
    (void)status;
    struct work_job *j = uv->data;
    struct coordinator *c = j->owner;
    coord_worked(c->core, j->work);
    free(j);
    c->job_ended(c);
}

void coordinator_work_start(struct coordinator *c, struct coord_work *w)
{
    struct work_job *j = calloc(1, sizeof *j);
    if (!j) { /* slowly is better than not at all */
        w->run(w);
        coord_worked(c->core, w);
        return;
    }
    *j = (struct work_job){.owner = c, .work = w};
    j->uv.data = j;
    c->jobs++;
    uv_queue_work(c->loop, &j->uv, work_run, work_done);
}
