/* The backends that this build knows, by name. */
#include "agent/backend/backend.h"

#include <string.h>

#include "agent/backend/cpu/cpu.h"
#include "agent/backend/plain/plain.h"

static const struct backend *const backends[] = {&cpu_backend, &plain_backend};

static const struct backend *backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

/* NULL: there is none of that name. */
static const struct backend *backend_of(const struct device_config *c)
{
    bool plain = c->kernels && strcmp(c->kernels, "plain") == 0;
    if (c->of)
        return c->of;
    const struct backend *b = backend_find(plain ? "plain" : c->backend ? c->backend : "cpu");
    return b == &cpu_backend && !c->kernels && !cpu_is_usable() ? &plain_backend : b;
}

int device_open(const struct device_config *c, struct device **out, struct err *e)
{
    const struct backend *b = backend_of(c);
    return b ? b->device_open(c, out, e)
             : err_set(e, HP_ENOENT, "there is no backend \"%s\"; this build has: cpu, plain",
                       c->backend);
}

int backend_runs(const struct device_config *c, const char **names, int room)
{
    const struct backend *b = backend_of(c);
    int n = 0;
    for (int k = 0; b && k < OP_KIND_COUNT && n < room; k++)
        if (b->op_supports((enum op_kind)k, DTYPE_F32))
            names[n++] = op_kind_info((enum op_kind)k)->name;
    for (int t = 0; b && t < DTYPE_WEIGHT_COUNT && n < room; t++)
        if (b->op_supports(OP_MATMUL, (enum dtype)t))
            names[n++] = dtype_info((enum dtype)t)->name;
    return n;
}

void device_close(struct device **d)
{
    if (*d)
        (*d)->backend->device_close(d);
}
