/* `hpctl chat`: what is said, what is answered, and the commands between. */
#ifndef HP_HPCTL_CONVERSATION_H
#define HP_HPCTL_CONVERSATION_H

#include "hpctl/talk.h"

/* Until /exit or the end of standard input. Where that is no terminal, a turn that fails ends it:
 * HP_EINVAL. */
int conversation_hold(const struct invocation *in, struct talk *t, struct err *e);

#endif
