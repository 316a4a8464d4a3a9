#include "hpctl/model_manifest.h"

#include "hpctl/context.h"
#include "hpctl/progress.h"
#include "model/manifest_build.h"

static int on_hashing(void *ctx, uint64_t done, uint64_t total)
{
    progress_show(ctx, "naming the model's content", (double)done, (double)total);
    return 0;
}

int model_manifest_make(const char *path, struct progress_bar *bar, struct buffer *out,
                        struct err *e)
{
    struct model *model;
    char cache[2100];
    int rc = model_open(path, &model, e);
    if (rc < 0)
        return rc;
    bool cached = context_folder("names", cache, sizeof cache, NULL) == 0;
    /* What the coordinator will need of it is missed here, before every byte has been read. */
    rc = model_text_prepare(model, e);
    rc = rc < 0 ? rc : manifest_build(model, cached ? cache : NULL, on_hashing, bar, out, e);
    model_close(&model);
    return rc;
}
