/* The manifest of a model on this box: which files, which chunks, by their content. */
#ifndef HP_HPCTL_MODEL_MANIFEST_H
#define HP_HPCTL_MODEL_MANIFEST_H

#include "common/bytes.h"
#include "common/status.h"

struct progress_bar;

/* Reads the whole model once; the chunks' names are kept in the user's state folder, so that the
 * next time is quick. Errors of model_open and manifest_build. */
int model_manifest_make(const char *path, struct progress_bar *bar, struct buffer *out,
                        struct err *e);

#endif
