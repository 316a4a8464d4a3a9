/* Where a value of a section lies on a device. */
#ifndef HP_AGENT_ENGINE_SECTION_TENSOR_H
#define HP_AGENT_ENGINE_SECTION_TENSOR_H

#include "agent/backend/backend.h"
#include "model/graph/section.h"

/* The value with so many rows, in the section's buffers; part of another's rows where it is a view.
 */
struct tensor section_tensor(const struct graph_section *s, const struct memory *buffers, int value,
                             uint64_t rows);

#endif
