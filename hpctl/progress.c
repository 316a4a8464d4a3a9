#include "hpctl/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"

enum { ONCE_AFTER_MS = 1000 };

void progress_init(struct progress_bar *p, bool quiet)
{
    *p = (struct progress_bar){
        .quiet = quiet, .terminal = isatty(STDERR_FILENO), .last_percent = -1};
}

void progress_once(struct progress_bar *p, const char *what)
{
    p->once = what;
    p->since_ns = env_now_ns(&env_real);
}

/* In a log. `same`: as what was shown last. */
static void line_show(struct progress_bar *p, const char *what, bool same)
{
    if (p->once) {
        if ((env_now_ns(&env_real) - p->since_ns) / 1000000 < ONCE_AFTER_MS)
            return;
        fprintf(stderr, "%s\n", p->once);
        p->quiet = true; /* that was it */
    } else if (!same) {
        fprintf(stderr, "%.*s\n", (int)strcspn(what, ":"), what);
    }
}

void progress_show(struct progress_bar *p, const char *what, double done, double total)
{
    enum { BAR = 28 };
    int percent = total > 0 ? (int)(100 * done / total) : -1;
    if (p->quiet || (percent == p->last_percent && strcmp(p->last, what) == 0))
        return;
    bool same = strncmp(p->last, what, strcspn(what, ":")) ==
                0; /* what follows a colon changes all the time */
    if (!p->terminal) {
        line_show(p, what, same);
    } else {
        char bar[BAR + 1];
        int filled = percent > 0 ? percent * BAR / 100 : 0;
        for (int i = 0; i < BAR; i++)
            bar[i] = i < filled ? '#' : '.';
        bar[BAR] = '\0';
        if (percent >= 0)
            fprintf(stderr, "\r\033[K[%s] %3d %%  %.*s", bar, percent, 90, what);
        else
            fprintf(stderr, "\r\033[K%s", what);
        fflush(stderr);
        p->open = true;
    }
    snprintf(p->last, sizeof p->last, "%s", what);
    p->last_percent = percent;
}

void progress_end(struct progress_bar *p)
{
    if (p->open)
        fprintf(stderr, "\r\033[K");
    p->open = false;
}
