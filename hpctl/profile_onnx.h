/* `hpctl profile model MODEL.onnx --local`: what a network costs on one core of this machine. */
#ifndef HP_HPCTL_PROFILE_ONNX_H
#define HP_HPCTL_PROFILE_ONNX_H

#include "hpctl/command.h"

/* Measures, groups into blocks, prints or writes hp-profile/1. The verb has the options batches,
 * dim, kind, blocks and budget. */
int profile_onnx(struct invocation *in, struct err *e);

#endif
