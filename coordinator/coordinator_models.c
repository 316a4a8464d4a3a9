/* Models of deployments, opened on a thread of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/coordinator_int.h"
#include "coordinator/model_heads.h"

/* A model whose heads are open. */
struct open_model {
    struct open_model *next;
    char id[80];
    struct model *model;
};

struct open_job {
    uv_work_t work;
    struct coordinator *owner;
    char id[80], folder[SHELL_PATH_BYTES + 16];
    int expert_groups;
    uint8_t *manifest;
    size_t size;
    struct arena arena;
    struct model *model;
    struct model_facts facts;
    struct err failure;
};

static void open_job_run(uv_work_t *work)
{
    struct open_job *j = work->data;
    const struct model_heads_order o = {.folder = j->folder,
                                        .id = j->id,
                                        .manifest = j->manifest,
                                        .manifest_size = j->size,
                                        .expert_groups = j->expert_groups};
    if (model_heads_open(&o, &j->arena, &j->model, &j->facts, &j->failure) < 0)
        j->model = NULL;
}

static void open_job_done(uv_work_t *work, int status)
{
    (void)status;
    struct open_job *j = work->data;
    struct coordinator *c = j->owner;
    struct open_model *m = j->model && !c->closing ? calloc(1, sizeof *m) : NULL;
    if (m) {
        snprintf(m->id, sizeof m->id, "%s", j->id);
        m->model = j->model;
        m->next = c->models;
        c->models = m;
        coord_model_opened(c->core, j->id, &j->facts, NULL);
    } else {
        model_close(&j->model);
        if (!c->closing)
            coord_model_opened(c->core, j->id, NULL, &j->failure);
    }
    arena_free(&j->arena);
    free(j->manifest);
    free(j);
    c->job_ended(c);
}

void coordinator_model_open(struct coordinator *c, const struct coord_action *a)
{
    struct open_job *j = calloc(1, sizeof *j);
    uint8_t *copy = malloc(a->size);
    struct err e = {0};
    if (!j || !copy) {
        free(j);
        free(copy);
        err_set(&e, HP_ENOMEM, "no memory to open a model");
        coord_model_opened(c->core, a->key, NULL, &e);
        return;
    }
    memcpy(copy, a->bytes, a->size);
    *j = (struct open_job){
        .owner = c, .manifest = copy, .size = a->size, .expert_groups = (int)a->expert_groups};
    j->work.data = j;
    snprintf(j->id, sizeof j->id, "%s", a->key);
    snprintf(j->folder, sizeof j->folder, "%s", c->models_dir);
    c->jobs++;
    uv_queue_work(c->loop, &j->work, open_job_run, open_job_done);
}

void coordinator_model_close(struct coordinator *c, const char *id)
{
    for (struct open_model **p = &c->models; *p; p = &(*p)->next)
        if (strcmp((*p)->id, id) == 0) {
            struct open_model *m = *p;
            *p = m->next;
            model_close(&m->model);
            free(m);
            break;
        }
    model_heads_remove(c->models_dir, id);
}

void coordinator_models_free(struct coordinator *c)
{
    while (c->models) {
        struct open_model *m = c->models;
        c->models = m->next;
        model_close(&m->model);
        free(m);
    }
}
