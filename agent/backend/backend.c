/* The backends that this build knows, by name. */
#include "agent/backend/backend.h"

#include <string.h>

#include "agent/backend/cpu/cpu.h"

static const struct backend *const backends[] = {&cpu_backend};

int device_open(const struct device_config *c, struct device **out, struct err *e)
{
    const char *name = c->backend ? c->backend : "cpu";
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i]->device_open(c, out, e);
    return err_set(e, HP_ENOENT, "there is no backend \"%s\"; this build has: cpu", name);
}

void device_close(struct device **d)
{
    if (*d)
        (*d)->backend->device_close(d);
}
