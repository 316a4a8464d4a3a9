#include "coordinator/gateway/rpc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLUGIN_PATH_BYTES = 1024 };

/* The folder of the program, and what lies there. */
static void path_beside(const char *name, char *out)
{
    char self[PLUGIN_PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *end = strrchr(self, '/');
    if (end)
        *end = '\0';
    snprintf(out, PLUGIN_PATH_BYTES, "%s/%s", end ? self : ".", name);
}

static void *object_open(char *said, size_t size)
{
    static const char *const names[] = {"libhp-grpc.so", "../lib/hodgepodge/libhp-grpc.so"};
    char path[PLUGIN_PATH_BYTES];
    const char *given = getenv("HP_GRPC_PLUGIN");
    void *object = given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; !given && !object && i < sizeof names / sizeof *names; i++) {
        path_beside(names[i], path);
        if (access(path, F_OK) == 0 && !(object = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
            break;
    }
    const char *why = object ? NULL : dlerror();
    snprintf(said, size, "%s",
             why ? why : "libhp-grpc.so is neither beside the program nor in its library folder");
    return object;
}

int rpc_plugin_load(const struct rpc_table **out, struct err *e)
{
    static const struct rpc_table *loaded;
    char said[512] = "";
    if (!loaded) {
        void *object = object_open(said, sizeof said);
        const struct rpc_table *p = object ? dlsym(object, RPC_SYMBOL) : NULL;
        if (!object) {
            err_set(e, HP_EUNSUPPORTED, "gRPC cannot be loaded: %s", said);
            return err_hint(e, "`make` builds it where Debian's libgrpc-dev is installed; "
                               "HP_GRPC_PLUGIN says where it lies otherwise");
        }
        if (!p || strncmp(p->magic, RPC_MAGIC, sizeof p->magic) != 0 || p->bytes != sizeof *p ||
            strcmp(p->version, HP_VERSION) != 0) {
            dlclose(object);
            err_set(e, HP_EUNSUPPORTED,
                    "libhp-grpc.so is not of this version of hp-coordinator, " HP_VERSION);
            return err_hint(e, "build both from one copy of the repository");
        }
        loaded = p;
    }
    *out = loaded;
    return 0;
}
