#include "agent/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t member;
    bool needed;
} functions[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), true},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), true},
    {"nvmlSystemGetDriverVersion", offsetof(struct nvml, driver_version), true},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, count), true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, by_index), true},
    {"nvmlDeviceGetName", offsetof(struct nvml, name), true},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory), true},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci), true},
    {"nvmlDeviceGetCurrPcieLinkGeneration", offsetof(struct nvml, generation_now), true},
    {"nvmlDeviceGetMaxPcieLinkGeneration", offsetof(struct nvml, generation_best), true},
    {"nvmlDeviceGetCurrPcieLinkWidth", offsetof(struct nvml, width_now), true},
    {"nvmlDeviceGetMaxPcieLinkWidth", offsetof(struct nvml, width_best), true},
    {"nvmlDeviceGetP2PStatus", offsetof(struct nvml, peer_status), false},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state), false},
};

bool nvml_open(struct nvml *out)
{
    bool whole = true;
    memset(out, 0, sizeof *out);
    out->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!out->library)
        return false;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(out->library, functions[i].name);
        memcpy((char *)out + functions[i].member, &f, sizeof f);
        whole = whole && (f || !functions[i].needed);
    }
    if (whole && out->init() == 0)
        return true;
    dlclose(out->library);
    memset(out, 0, sizeof *out);
    return false;
}

void nvml_close(struct nvml *n)
{
    if (!n->library)
        return;
    n->shutdown();
    dlclose(n->library);
    memset(n, 0, sizeof *n);
}
