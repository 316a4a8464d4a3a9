/* `model logits|greedy --deployment NAME`: the same on live agents. */
#ifndef HP_HPCTL_MODEL_LIVE_H
#define HP_HPCTL_MODEL_LIVE_H

#include "hpctl/command.h"

int model_live_logits(const struct invocation *in, struct err *e);
int model_live_greedy(const struct invocation *in, struct err *e);

#endif
