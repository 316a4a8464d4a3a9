/* Lists that are shown again and again. */
#ifndef HP_HPCTL_WATCHED_H
#define HP_HPCTL_WATCHED_H

#include "hpctl/command.h"

#define WATCH_OPTION                                                                               \
    {                                                                                              \
        "watch", NULL, "again every two seconds, until Ctrl-C", 0                                  \
    }

/* Shows once; with WATCH_OPTION it goes on until that fails, or is interrupted: a terminal shows
 * the latest alone. */
int watched_run(const struct invocation *in,
                int (*show)(const void *ctx, const struct invocation *in, struct err *e),
                const void *ctx, struct err *e);

#endif
