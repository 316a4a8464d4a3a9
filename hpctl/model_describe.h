/* What `hpctl model describe` says of a model file: architecture, sizes, tensors by type,
 * tokenizer, template, layers and bytes.
 */
#ifndef HP_HPCTL_MODEL_DESCRIBE_H
#define HP_HPCTL_MODEL_DESCRIBE_H

#include "hpctl/command.h"

int model_describe_run(struct invocation *in, struct err *e);

#endif
