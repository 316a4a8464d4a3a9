/* NVIDIA's management library as a table of functions, found at run time so that one build serves
 * boxes with and without GPUs. The types and numbers are those of its documented binary interface
 * (NVML API Reference). Every function returns 0 when it worked. Tests hand in a table of their
 * own. */
#ifndef HP_AGENT_NVML_H
#define HP_AGENT_NVML_H

#include <stdbool.h>

enum { NVML_TEXT = 96, NVML_MOST_LINKS = 18, NVML_P2P_BY_NVLINK = 2, NVML_P2P_OK = 0 };

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32]; /* "00000000:17:00.0" */
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned size);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned i, void **gpu);
    int (*name)(void *gpu, char *text, unsigned size);
    int (*memory)(void *gpu, struct nvml_memory *out);
    int (*pci)(void *gpu, struct nvml_pci *out);
    /* PCIe generation and width now (an idle GPU lets both drop) and at best. */
    int (*generation_now)(void *gpu, unsigned *out);
    int (*generation_best)(void *gpu, unsigned *out);
    int (*width_now)(void *gpu, unsigned *out);
    int (*width_best)(void *gpu, unsigned *out);
    /* Old drivers lack these: NULL then. */
    int (*peer_status)(void *a, void *b, int by, int *status);
    int (*link_state)(void *gpu, unsigned link, int *active);
};

/* False where the library, or a function that is needed, is not there or does not start. */
bool nvml_open(struct nvml *out);
void nvml_close(struct nvml *n);

#endif
