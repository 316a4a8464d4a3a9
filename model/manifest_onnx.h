/* Names an ONNX model by its content: the file and the files of external data that it reads, all of
 * which whoever runs any of it needs. */
#ifndef HP_MODEL_MANIFEST_ONNX_H
#define HP_MODEL_MANIFEST_ONNX_H

#include "common/bytes.h"
#include "model/manifest_source.h"

/* Appends the encoded manifest of the model at `path` to `out`, after it was opened and checked.
 * What onnx_open fails with; HP_ENOMEM, HP_ECANCELED, HP_ELIMIT; HP_EPARSE: the names of
 * its files lead out of its folder, or have parts like "./". */
int manifest_onnx_build(const char *path, manifest_progress_fn progress, void *progress_ctx,
                        struct buffer *out, struct err *e);

#endif
