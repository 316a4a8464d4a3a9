/* Safetensors: the JSON header of one file to weights. Nothing but the header is read; weights are
 * mapped. Every offset, size and dimension is checked before use; memory is bounded by a small
 * multiple of the header's size, which is at most SAFETENSORS_HEADER_MAX_BYTES. */
#ifndef HP_MODEL_FILES_SAFETENSORS_H
#define HP_MODEL_FILES_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"
#include "model/weights.h"

enum { SAFETENSORS_HEADER_MAX_BYTES = 32 << 20 };

struct safetensors {
    struct weight *weights; /* in the order of their bytes; in the arena */
    size_t n_weights;
    uint64_t header_bytes; /* length field and JSON together: where the data begins */
};

/* Beside the plain formats: F8_E4M3 and F8_E5M2 (weights of dtype F32, without scales yet), U8
 * (dtype DTYPE_COUNT, for hub_scales.h to make something of or refuse).
 *
 * Parses `size` bytes of a file (all of it, mapped). `file` is for messages, `file_index` goes into
 * the weights. The map must outlive them. HP_EPARSE, HP_EUNSUPPORTED (number format), HP_ENOMEM. */
int safetensors_parse(const char *file, int file_index, const uint8_t *map, uint64_t size,
                      struct arena *arena, struct safetensors *out, struct err *e);

#endif
