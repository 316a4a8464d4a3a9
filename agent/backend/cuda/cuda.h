/* The backend of NVIDIA's GPUs: a plugin, libhp-cuda.so, that hp-agent loads where a device is
 * asked for (agent/backend/plugin.h). Host code is C here; CUDA stands behind gpu.h and kernels.h.
 *
 * Weights lie on the device as the file has them and are read in place; all arithmetic is float32.
 * Mixtures of experts and products by head are not run: op_supports says so. */
#ifndef HP_AGENT_BACKEND_CUDA_CUDA_H
#define HP_AGENT_BACKEND_CUDA_CUDA_H

#include "agent/backend/backend.h"
#include "agent/backend/plugin.h"

extern const struct backend cuda_backend;

#endif
