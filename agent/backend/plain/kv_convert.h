/* Keys and values from one of their number formats to another, as they would have been written had
 * they been computed here: to f16 to the nearest, ties to even (an error of 2^-11 of the number at
 * most), to q8_0 as loop_q8_0 has it (of 1/254 of the largest of 32, and 2^-11 of the number);
 * wider formats keep every number as it is. */
#ifndef HP_AGENT_BACKEND_PLAIN_KV_CONVERT_H
#define HP_AGENT_BACKEND_PLAIN_KV_CONVERT_H

#include <stddef.h>

#include "common/kv_format.h"

/* n elements, whole blocks of either; no alignment assumed. */
void kv_convert(enum kv_format from, const void *in, size_t n, enum kv_format to, void *out);

#endif
