/* Names a model by its content: reads its weights once, cuts them into chunks and names each by its
 * BLAKE2b-256 (common/manifest.h). What was found out is kept in a folder by path, size and time of
 * the model's files, so that a second call reads nothing. */
#ifndef HP_MODEL_MANIFEST_BUILD_H
#define HP_MODEL_MANIFEST_BUILD_H

#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/manifest_source.h"
#include "model/model.h"

/* Appends the encoded manifest of a model that is open to `out`. `cache_folder` (NULL: none) is
 * made where it is missing; that it cannot be written is no error. HP_EIO, HP_ENOMEM, HP_ECANCELED,
 * HP_ELIMIT (more chunks than a manifest may have). */
int manifest_build(const struct model *m, const char *cache_folder, manifest_progress_fn progress,
                   void *progress_ctx, struct buffer *out, struct err *e);

#endif
