/* `hpctl top`: what the cluster does, live. */
#include <curses.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hpctl/ask.h"
#include "hpctl/client.h"
#include "hpctl/shown.h"
#include "hpctl/top_figures.h"
#include "hpctl/verbs.h"

enum { ASK_MS = 2000, CTRL_C = 3, CTRL_D = 4, CTRL_L = 12 };
#define LEAST_INTERVAL_S 0.1
#define MOST_INTERVAL_S 3600.0

struct top {
    const struct invocation *in;
    struct client *client; /* NULL: the coordinator does not answer */
    json_t *last;          /* what was seen before; NULL: nothing */
    double last_s, interval_s;
};

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void clock_wait(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* ---- looks ---- */

static int top_ask(struct top *t, const char *verb, json_t **out, struct err *e)
{
    struct client_ask ask = {.verb = verb, .patience_ms = ASK_MS};
    return client_ask(t->client, &ask, out, NULL, e);
}

static int top_look(struct top *t, json_t **out, struct err *e)
{
    json_t *deployments = NULL, *agents = NULL, *topology = NULL;
    int rc = t->client ? 0 : client_open(invocation_option(t->in, "context"), &t->client, e);
    rc = rc < 0 ? rc : top_ask(t, "deployment.ls", &deployments, e);
    rc = rc < 0 ? rc : top_ask(t, "node.ls", &agents, e);
    rc = rc < 0 ? rc : top_ask(t, "topo", &topology, e);
    if (rc < 0) {
        json_decref(deployments);
        json_decref(agents);
        json_decref(topology);
        client_close(&t->client);
        return rc;
    }
    *out = json_pack("{s:o, s:o, s:o}", "deployments", deployments, "agents", agents, "topology",
                     topology);
    return *out ? 0 : err_no_memory(e, "what the cluster does");
}

/* What happened since the look before; the caller's. */
static int top_next(struct top *t, json_t **figures, struct err *e)
{
    json_t *now = NULL;
    int rc = top_look(t, &now, e);
    double at = clock_s();
    if (rc < 0)
        return rc;
    *figures = top_figures(t->last, now, t->last ? at - t->last_s : 0);
    json_decref(t->last);
    t->last = now;
    t->last_s = at;
    return *figures ? 0 : err_no_memory(e, "what the cluster does");
}

/* ---- once ---- */

static int top_print(struct top *t, struct err *e)
{
    json_t *figures = NULL;
    struct buffer text = {0};
    int rc = top_next(t, &figures, e);
    json_decref(figures);
    figures = NULL;
    if (rc == 0) {
        clock_wait(t->interval_s);
        rc = top_next(t, &figures, e);
    }
    if (rc == 0 && t->in->json)
        return invocation_print_json(t->in, figures, e);
    rc = rc < 0 ? rc : top_figures_write(figures, &text, e);
    if (rc == 0)
        fputs(buffer_cstr(&text), stdout);
    buffer_free(&text);
    json_decref(figures);
    return rc;
}

/* ---- on a terminal ---- */

static volatile sig_atomic_t top_ends;

static void on_end(int number)
{
    (void)number;
    top_ends = 1;
}

/* Lines of `text` from number `first` on, cut at the screen's edges: what ran on into the row below
 * is taken away again. How many there are. */
static int screen_draw(const char *title, const char *text, int first)
{
    int n = 0;
    erase();
    attron(A_BOLD);
    mvaddnstr(0, 0, title, COLS);
    attroff(A_BOLD);
    for (const char *line = text; *line; n++) {
        size_t bytes = strcspn(line, "\n");
        int row = 1 + n - first;
        if (row >= 1 && row < LINES) {
            move(row, 0);
            clrtobot();
            addnstr(line, (int)bytes);
        }
        line += bytes + (line[bytes] == '\n');
    }
    if (move(1 + n - first, 0) == OK)
        clrtobot();
    refresh();
    return n;
}

static void screen_title(const struct top *t, struct buffer *out)
{
    time_t now = time(NULL);
    struct tm day;
    char clock[16] = "";
    if (localtime_r(&now, &day))
        strftime(clock, sizeof clock, "%H:%M:%S", &day);
    buffer_printf(out, "hodgepodge %s  %s   every %s; q ends, arrows move",
                  t->client ? client_context(t->client)->name : "-", clock,
                  shown_seconds(t->interval_s).s);
}

/* One look on the screen; who does not answer is said in place of it. */
static int screen_look(struct top *t, int *first)
{
    json_t *figures = NULL;
    struct buffer text = {0}, title = {0};
    struct err e = {0};
    if (top_next(t, &figures, &e) < 0 || top_figures_write(figures, &text, &e) < 0) {
        text.size = 0;
        buffer_printf(&text, "%s\n%s", e.text, e.hint);
    }
    screen_title(t, &title);
    int n = screen_draw(buffer_cstr(&title), buffer_cstr(&text), *first);
    while (*first > 0 && n - *first < LINES - 1)
        n = screen_draw(buffer_cstr(&title), buffer_cstr(&text), --*first);
    json_decref(figures);
    buffer_free(&title);
    buffer_free(&text);
    return n;
}

static void screen_run(struct top *t)
{
    int first = 0;
    while (!top_ends) {
        int n = screen_look(t, &first);
        double until = clock_s() + (t->last_s > 0 ? t->interval_s : 1);
        for (bool waits = true; waits && !top_ends;) {
            double left = until - clock_s();
            timeout(left > 0 ? (int)(left * 1e3) + 1 : 0);
            int key = getch();
            if (key == CTRL_L)
                clearok(curscr, TRUE);
            if (key == 'q' || key == CTRL_C || key == CTRL_D)
                return;
            first += key == KEY_DOWN && n - first >= LINES ? 1
                     : key == KEY_UP && first > 0          ? -1
                                                           : 0;
            waits = key == ERR
                        ? left > 0
                        : key != KEY_DOWN && key != KEY_UP && key != KEY_RESIZE && key != CTRL_L;
        }
    }
}

/* What the client says of a coordinator that is silent would be written across the screen. */
static int stderr_mute(void)
{
    int kept = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
    return kept;
}

static void stderr_unmute(int kept)
{
    if (kept < 0)
        return;
    dup2(kept, STDERR_FILENO);
    close(kept);
}

static int top_show(struct top *t, struct err *e)
{
    struct sigaction end = {.sa_handler = on_end};
    setlocale(LC_CTYPE, "");
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        err_set(e, HP_EUSAGE, "this terminal (TERM=%s) cannot be drawn on",
                getenv("TERM") ? getenv("TERM") : "");
        return err_hint(e, "hpctl top --once");
    }
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    int kept = stderr_mute();
    raw();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    screen_run(t);
    endwin();
    delscreen(screen);
    stderr_unmute(kept);
    return 0;
}

/* ---- the verb ---- */

static int run_top(struct invocation *in, struct err *e)
{
    struct top t = {.in = in};
    int rc = invocation_duration(in, "interval", 1, &t.interval_s, e);
    if (rc == 0 && !(t.interval_s >= LEAST_INTERVAL_S && t.interval_s <= MOST_INTERVAL_S))
        rc = err_set(e, HP_EUSAGE, "--interval: %g s is out of range: 0.1s to 3600s", t.interval_s);
    rc = rc < 0 ? rc : client_open(invocation_option(in, "context"), &t.client, e);
    bool live =
        !in->json && !invocation_flag(in, "once") && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (rc == 0)
        rc = live ? top_show(&t, e) : top_print(&t, e);
    json_decref(t.last);
    client_close(&t.client);
    return rc;
}

static const struct command_option top_options[] = {
    {"interval", "TIME", "between two looks (default 1s)", 0},
    {"once", NULL, "print what happens in one interval, and end", 0},
    CONTEXT_OPTION,
    {0}};

const struct command top_verbs[] = {
    {"top", "", 0, 0, "show live what deployments, agents and links do",
     "Tokens a second, what runs and waits, how full the KV cache is; what each stage computes, "
     "and "
     "the link to the next one as it was measured; how busy each agent is and what it sends.\n"
     "Where the output is no terminal, and with -o json, one interval is printed.",
     "  hpctl top\n  hpctl top --interval 5s\n  hpctl top --once -o json", top_options, run_top,
     false},
    {0},
};
