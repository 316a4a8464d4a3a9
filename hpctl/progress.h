/* A bar on standard error, redrawn in place on a terminal; elsewhere a line for each matter, or one
 * for all of them (progress_once), if they take more than a second. Nothing with `quiet`. */
#ifndef HP_HPCTL_PROGRESS_H
#define HP_HPCTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress_bar {
    bool quiet, terminal, open;
    const char *once; /* the whole matter's one line where there is no terminal; NULL: lines */
    uint64_t since_ns;
    char last[160];
    int last_percent;
};
/* `quiet`: nothing is shown. */
void progress_init(struct progress_bar *p, bool quiet);
/* What takes long is the beginning of something else, whose output is all that a program that reads
 * it wants: `what` is the one line that it gets. */
void progress_once(struct progress_bar *p, const char *what);
/* `done` of `total` (0: unknown). */
void progress_show(struct progress_bar *p, const char *what, double done, double total);
void progress_end(struct progress_bar *p);

#endif
