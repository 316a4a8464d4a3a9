#include "hpctl/model_manifest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "hpctl/context.h"
#include "hpctl/local_process.h"
#include "hpctl/progress.h"
#include "model/manifest_build.h"
#include "model/manifest_onnx.h"
#include "model/text_network.h"

enum { LOOK_MS = 5, LOOKS_UNSHOWN = 10 };

static void hashing_show(struct progress_bar *bar, uint64_t done, uint64_t total)
{
    progress_show_bytes(bar, "naming the model's content", (double)done, (double)total);
}

static int on_hashing(void *ctx, uint64_t done, uint64_t total)
{
    hashing_show(ctx, done, total);
    return 0;
}

static int manifest_make(const char *path, const char *names, manifest_progress_fn progress,
                         void *ctx, struct buffer *out, struct err *e)
{
    struct model *model;
    int rc = model_open(path, &model, e);
    if (rc < 0)
        return rc;
    /* What the coordinator will need of it is missed here, before every byte has been read. */
    rc = model_text_prepare(model, e);
    rc = rc < 0 ? rc : manifest_build(model, *names ? names : NULL, progress, ctx, out, e);
    model_close(&model);
    return rc;
}

int model_manifest_make(const char *path, struct progress_bar *bar, struct buffer *out,
                        struct err *e)
{
    char names[2100];
    bool kept = context_folder("names", names, sizeof names, NULL) == 0;
    return manifest_make(path, kept ? names : "", on_hashing, bar, out, e);
}

int network_manifest_make(const char *path, struct progress_bar *bar, struct buffer *out,
                          struct err *e)
{
    return text_network_is(path) ? model_manifest_make(path, bar, out, e)
                                 : manifest_onnx_build(path, on_hashing, bar, out, e);
}

struct manifest_maker {
    const char *path, *names;
    pthread_t thread;
    struct buffer out;
    struct err e;
    int rc;
    _Atomic uint64_t done, total;
    atomic_bool over;
};

static int on_maker_hashing(void *ctx, uint64_t done, uint64_t total)
{
    struct manifest_maker *m = ctx;
    m->done = done;
    m->total = total;
    return 0;
}

static void *maker_run(void *ctx)
{
    struct manifest_maker *m = ctx;
    m->rc = manifest_make(m->path, m->names, on_maker_hashing, m, &m->out, &m->e);
    m->over = true;
    return NULL;
}

struct manifest_maker *manifest_maker_start(const char *path, const char *names)
{
    struct manifest_maker *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->path = path;
    m->names = names;
    if (pthread_create(&m->thread, NULL, maker_run, m) == 0)
        return m;
    free(m);
    return NULL;
}

int manifest_maker_finish(struct manifest_maker **self, struct progress_bar *bar,
                          struct buffer *out, struct err *e)
{
    struct manifest_maker *m = *self;
    *self = NULL;
    for (int looks = 0; !m->over; looks++) {
        local_pause_ms(LOOK_MS);
        if (looks >= LOOKS_UNSHOWN)
            hashing_show(bar, m->done, m->total);
    }
    pthread_join(m->thread, NULL);
    int rc = m->rc;
    if (rc < 0 && e)
        *e = m->e;
    if (rc == 0)
        *out = m->out;
    else
        buffer_free(&m->out);
    free(m);
    return rc;
}
