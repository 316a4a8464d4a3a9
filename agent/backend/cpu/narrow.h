/* Narrowing with vectors, to the bits of the plain loops. (Back to float32 it goes by the kernels'
 * `unpack`.) */
#ifndef HP_AGENT_BACKEND_CPU_NARROW_H
#define HP_AGENT_BACKEND_CPU_NARROW_H

#include "agent/backend/plain/narrow.h"

extern const struct narrow_kernels narrow_avx2, narrow_avx512;

#endif
