#include "hpctl/watched.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hpctl/local_process.h"

enum { WATCH_MS = 2000 };

/* Whether the command may be watched, and is. */
static bool is_watched(const struct invocation *in)
{
    const struct command_option *o = in->command->options;
    for (int i = 0; o && o[i].name; i++)
        if (strcmp(o[i].name, "watch") == 0)
            return in->values[i] != NULL;
    return false;
}

int watched_run(const struct invocation *in,
                int (*show)(const void *ctx, const struct invocation *in, struct err *e),
                const void *ctx, struct err *e)
{
    static const char clear[] = "\x1b[H\x1b[2J";
    if (!is_watched(in))
        return show(ctx, in, e);
    for (bool alone = !in->json && isatty(STDOUT_FILENO);;) {
        if (alone)
            fputs(clear, stdout);
        int rc = show(ctx, in, e);
        if (rc < 0)
            return rc;
        if (!alone && !in->json)
            putchar('\n');
        if (fflush(stdout) != 0)
            return err_set(e, HP_EIO, "nobody reads what is shown");
        local_pause_ms(WATCH_MS);
    }
}
