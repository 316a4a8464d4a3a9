#include "agent/backend/plugin.h"

#include <dlfcn.h>
#include <string.h>

#include "common/plugin_object.h"

static const char file[] = "libhp-cuda.so", variable[] = "HP_CUDA_PLUGIN";

int plugin_cuda(const struct plugin **out, struct err *e)
{
    static const struct plugin *loaded;
    char said[512] = "";
    if (!loaded) {
        void *object = plugin_object_open(file, variable, said, sizeof said);
        const struct plugin *p = object ? dlsym(object, PLUGIN_SYMBOL) : NULL;
        if (!object) {
            err_set(e, HP_EDEVICE, "the cuda backend cannot be loaded: %s", said);
            return err_hint(e, "`make cuda` builds it where CUDA's nvcc is; HP_CUDA_PLUGIN says "
                               "where it lies otherwise");
        }
        if (!p || strncmp(p->magic, PLUGIN_MAGIC, sizeof p->magic) != 0 || p->bytes != sizeof *p ||
            strcmp(p->version, HP_VERSION) != 0) {
            dlclose(object);
            err_set(e, HP_EDEVICE, "libhp-cuda.so is not of this version of hp-agent, " HP_VERSION);
            return err_hint(e, "build both from one copy of the repository");
        }
        if (strcmp(p->interface, plugin_interface) != 0) {
            dlclose(object);
            err_set(e, HP_EDEVICE,
                    "libhp-cuda.so was built of other headers than hp-agent, though both are "
                    "of version " HP_VERSION);
            return err_hint(e, "build both from one copy of the repository: make all cuda");
        }
        loaded = p;
    }
    *out = loaded;
    return 0;
}

bool plugin_cuda_is_there(void)
{
    return plugin_object_is_there(file, variable);
}
