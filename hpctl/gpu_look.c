#include "hpctl/gpu_look.h"

#include <string.h>

#include "agent/nvml.h"

/* What the driver calls its first card; false: it knows none. */
static bool card_find(char name[PLUGIN_NAME])
{
    struct nvml driver;
    unsigned n = 0;
    void *gpu;
    if (!nvml_open(&driver))
        return false;
    bool found = driver.count(&n) == 0 && n > 0 && driver.by_index(0, &gpu) == 0 &&
                 driver.name(gpu, name, PLUGIN_NAME) == 0;
    nvml_close(&driver);
    return found;
}

void gpu_look(struct gpu_look *out)
{
    const struct device_part whole = {0};
    struct err e = {0};
    memset(out, 0, sizeof *out);
    int rc = plugin_cuda(&out->plugin, &e);
    bool loaded = rc == 0;
    rc = rc < 0 ? rc : out->plugin->facts(0, &whole, &out->facts, &e);
    out->why = e;
    if (rc == 0)
        out->state = GPU_USABLE;
    else if (loaded || card_find(out->card) || plugin_cuda_is_there())
        out->state = GPU_UNUSABLE;
}
