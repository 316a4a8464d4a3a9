/* A bar on standard error, redrawn in place on a terminal, a line now and then elsewhere. Nothing
 * at all with `quiet`. */
#ifndef HP_HPCTL_PROGRESS_H
#define HP_HPCTL_PROGRESS_H

#include <stdbool.h>

struct progress_bar {
    bool quiet, terminal, open;
    char last[160];
    int last_percent;
};
/* `quiet`: nothing is shown. */
void progress_init(struct progress_bar *p, bool quiet);
/* `done` of `total` (0: unknown). */
void progress_show(struct progress_bar *p, const char *what, double done, double total);
void progress_end(struct progress_bar *p);

#endif
