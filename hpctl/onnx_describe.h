/* What `hpctl model describe` says of an ONNX file: inputs and outputs with their sizes, those that
 * are free by name; operators, and which of them we lack; weights by type. */
#ifndef HP_HPCTL_ONNX_DESCRIBE_H
#define HP_HPCTL_ONNX_DESCRIBE_H

#include <stdbool.h>

#include "hpctl/command.h"

/* By the name alone: "*.onnx". */
bool onnx_describe_takes(const char *path);
/* Reads the file of the verb's first argument, runs nothing. Errors of onnx_open; HP_ENOMEM. */
int onnx_describe_run(struct invocation *in, struct err *e);

#endif
