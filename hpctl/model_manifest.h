/* The manifest of a model on this box: which files, which chunks, by their content. */
#ifndef HP_HPCTL_MODEL_MANIFEST_H
#define HP_HPCTL_MODEL_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"

struct progress_bar;

/* Reads the whole model once; the chunks' names are kept in the user's state folder, so that the
 * next time is quick. Errors of model_open and manifest_build. */
int model_manifest_make(const char *path, struct progress_bar *bar, struct buffer *out,
                        struct err *e);

/* Of what pools serve: such a model, or an ONNX model with its files. */
int network_manifest_make(const char *path, struct progress_bar *bar, struct buffer *out,
                          struct err *e);

/* The same beside what the caller does, on a thread; the chunks' names are kept in `names` ("":
 * nowhere). NULL: there is no thread, or no memory. */
struct manifest_maker;
struct manifest_maker *manifest_maker_start(const char *path, const char *names);
/* Waits for it, with a bar, and frees it. Errors as above. */
int manifest_maker_finish(struct manifest_maker **m, struct progress_bar *bar, struct buffer *out,
                          struct err *e);

#endif
