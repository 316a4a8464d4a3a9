#include "coordinator/gateway/rpc.h"

#include <dlfcn.h>
#include <string.h>

#include "common/plugin_object.h"

int rpc_plugin_load(const struct rpc_table **out, struct err *e)
{
    static const struct rpc_table *loaded;
    char said[512] = "";
    if (!loaded) {
        void *object = plugin_object_open("libhp-grpc.so", "HP_GRPC_PLUGIN", said, sizeof said);
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
