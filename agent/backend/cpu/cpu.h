/* The CPU as a device: float32 and bfloat16 on the cores that it was given. Operators run at once,
 * on the calling thread and the pool. */
#ifndef HP_AGENT_BACKEND_CPU_CPU_H
#define HP_AGENT_BACKEND_CPU_CPU_H

#include "agent/backend/backend.h"

extern const struct backend cpu_backend;
/* Whether this CPU has the instructions that the kernels need. */
bool cpu_is_usable(void);

#endif
