#include "hpctl/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "hpctl/shown.h"

enum {
    ONCE_AFTER_MS = 1000,
    RATE_AFTER_MS = 1000,
    RATE_OVER_MS = 5000, /* at least, and twice as long at most */
    BAR = 28,
    COLUMNS_UNKNOWN = 120
};

void progress_init(struct progress_bar *p, bool quiet)
{
    *p = (struct progress_bar){.quiet = quiet, .terminal = isatty(STDERR_FILENO), .env = &env_real};
}

void progress_once(struct progress_bar *p, const char *what)
{
    p->once = what;
    p->since_ns = env_now_ns(p->env);
}

static uint64_t ms_since(const struct progress_bar *p, uint64_t then_ns)
{
    return (env_now_ns(p->env) - then_ns) / 1000000;
}

/* Whether or not anything has changed since the last look: it may be one step that takes long. */
static void once_show(struct progress_bar *p)
{
    if (ms_since(p, p->since_ns) < ONCE_AFTER_MS)
        return;
    fprintf(stderr, "%s\n", p->once);
    p->quiet = true; /* that was it */
}

/* ---- how fast ---- */

/* So much a second; negative: not known yet. */
static double rate_find(struct progress_bar *p, bool begins, double done)
{
    struct progress_mark now = {env_now_ns(p->env), done};
    if (begins || done < p->next.done) {
        p->from = p->next = now;
    } else if (ms_since(p, p->next.at_ns) >= RATE_OVER_MS) {
        p->from = p->next;
        p->next = now;
    }
    uint64_t ms = ms_since(p, p->from.at_ns);
    return ms < RATE_AFTER_MS ? -1 : (done - p->from.done) * 1e3 / (double)ms;
}

static struct shown left_text(double seconds)
{
    return seconds < 100    ? shown_of("%.0f s left", ceil(seconds))
           : seconds < 6000 ? shown_of("%.0f min left", seconds / 60)
                            : shown_of("%.1f h left", seconds / 3600);
}

/* "12 MB/s, 34 s left", as far as it is known. */
static struct shown pace_text(double rate, double left, bool bytes)
{
    struct shown fast = bytes && rate >= 0 ? shown_rate(rate) : shown_of("%s", ""),
                 soon = rate > 0 && left > 0 ? left_text(left / rate) : shown_of("%s", "");
    return shown_of("%s%s%s%s", fast.s, fast.s[0] && soon.s[0] ? ", " : "", soon.s,
                    fast.s[0] || soon.s[0] ? "  " : "");
}

/* ---- what stands there ---- */

/* On one line of the terminal: of what is wrapped the beginning would stay for ever. */
static void line_cut(char *line, size_t columns)
{
    size_t n = 0;
    for (; *line && (n < columns || (*line & 0xC0) == 0x80); line++)
        n += (*line & 0xC0) != 0x80;
    *line = '\0';
}

static void line_draw(struct progress_bar *p, const char *what, double part, const char *pace)
{
    char bar[BAR + 1], line[sizeof p->line];
    int filled = part > 0 ? (int)(part * BAR) : 0;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR] = '\0';
    if (part >= 0)
        snprintf(line, sizeof line, "[%s] %3d %%  %s%.300s", bar, (int)(100 * part + 1e-9), pace,
                 what);
    else
        snprintf(line, sizeof line, "%.400s", what);
    line_cut(line, shown_columns(STDERR_FILENO, COLUMNS_UNKNOWN) - 1);
    if (strcmp(line, p->line) == 0)
        return;
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    p->open = true;
    snprintf(p->line, sizeof p->line, "%s", line);
}

static void matter_show(struct progress_bar *p, const char *what, double done, double total,
                        bool bytes)
{
    char matter[sizeof p->matter];
    snprintf(matter, sizeof matter, "%.*s", (int)strcspn(what, ":"), what);
    if (p->quiet)
        return;
    if (p->once && !p->terminal) {
        once_show(p);
        return;
    }
    bool begins = strcmp(matter, p->matter) != 0;
    snprintf(p->matter, sizeof p->matter, "%s", matter);
    if (p->terminal)
        line_draw(p, what, total > 0 ? fmin(done / total, 1) : -1,
                  pace_text(rate_find(p, begins, done), total - done, bytes).s);
    else if (begins)
        fprintf(stderr, "%s\n", matter);
}

void progress_show(struct progress_bar *p, const char *what, double done, double total)
{
    matter_show(p, what, done, total, false);
}

void progress_show_bytes(struct progress_bar *p, const char *what, double done, double total)
{
    matter_show(p, what, done, total, true);
}

void progress_end(struct progress_bar *p)
{
    if (p->open)
        fprintf(stderr, "\r\033[K");
    p->open = false;
    p->line[0] = '\0';
}
