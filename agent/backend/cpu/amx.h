/* Tiles of 8-bit integers (AMX): whether this CPU and its system let the process use them, and
 * whether they pay. Their products are to the bit those of AVX-512 (blocks_amx.c), so which of the
 * two computes is nobody's business but time's, and is measured once. */
#ifndef HP_AGENT_BACKEND_CPU_AMX_H
#define HP_AGENT_BACKEND_CPU_AMX_H

#include <stdbool.h>

#include "agent/backend/cpu/blocks.h"

/* Asks the system for the registers, once for the process. Any thread. */
bool amx_is_usable(void);
/* How many times as long products of a few tiles of rows take with `others` as with `own`, over a
 * few formats. About ten milliseconds, on the calling thread. 0: no memory. */
double amx_blocks_gain(const struct block_kernels *own, const struct block_kernels *others);
/* The same of AMX beside AVX-512, measured at the first call; amx_is_usable. */
double amx_gain(void);
/* Less is noise, and not worth other instructions. */
#define AMX_LEAST_GAIN 1.1

#endif
