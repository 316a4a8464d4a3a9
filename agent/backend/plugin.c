#include "agent/backend/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLUGIN_PATH = 1024 };

/* The folder of the program, and what lies there. */
static void path_beside(const char *name, char *out)
{
    char self[PLUGIN_PATH];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *end = strrchr(self, '/');
    if (end)
        *end = '\0';
    snprintf(out, PLUGIN_PATH, "%s/%s", end ? self : ".", name);
}

static void *object_open(char *said, size_t size)
{
    static const char *const names[] = {"libhp-cuda.so", "../lib/hodgepodge/libhp-cuda.so"};
    const char *given = getenv("HP_CUDA_PLUGIN");
    char path[PLUGIN_PATH];
    void *object = NULL;
    if (given) {
        object = dlopen(given, RTLD_NOW | RTLD_LOCAL);
        if (!object)
            snprintf(said, size, "%s", dlerror());
        return object;
    }
    for (size_t i = 0; !object && i < sizeof names / sizeof *names; i++) {
        path_beside(names[i], path);
        if (access(path, F_OK) != 0)
            continue;
        object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!object) {
            snprintf(said, size, "%s", dlerror());
            return NULL;
        }
    }
    if (!object && !(object = dlopen(names[0], RTLD_NOW | RTLD_LOCAL)))
        snprintf(said, size,
                 "libhp-cuda.so is neither beside the program nor in its library "
                 "folder");
    return object;
}

int plugin_cuda(const struct plugin **out, struct err *e)
{
    static const struct plugin *loaded;
    char said[512] = "";
    if (!loaded) {
        void *object = object_open(said, sizeof said);
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
        loaded = p;
    }
    *out = loaded;
    return 0;
}
