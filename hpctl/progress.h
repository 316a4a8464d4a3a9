/* A bar on standard error with rate and time left, redrawn in place on a terminal; elsewhere a line
 * for each matter, or one for all of them (progress_once), if they take more than a second. Nothing
 * with `quiet`. */
#ifndef HP_HPCTL_PROGRESS_H
#define HP_HPCTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct env;

struct progress_mark {
    uint64_t at_ns;
    double done;
};

struct progress_bar {
    bool quiet, terminal, open;
    const char *once; /* the whole matter's one line where there is no terminal; NULL: lines */
    uint64_t since_ns;
    const struct env *env;           /* the machine's clock */
    char matter[160];                /* up to its colon, as it was shown last */
    char line[512];                  /* that stands on the terminal */
    struct progress_mark from, next; /* between which and now it goes how fast */
};
/* `quiet`: nothing is shown. */
void progress_init(struct progress_bar *p, bool quiet);
/* What takes long is the beginning of something else, whose output is all that a program that reads
 * it wants: `what` is the one line that it gets. */
void progress_once(struct progress_bar *p, const char *what);
/* `done` of `total` (0: unknown), of anything. What follows a colon in `what` may change all the
 * time. */
void progress_show(struct progress_bar *p, const char *what, double done, double total);
/* The same of bytes, whose rate is shown, too. */
void progress_show_bytes(struct progress_bar *p, const char *what, double done, double total);
void progress_end(struct progress_bar *p);

#endif
