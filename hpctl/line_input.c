#include "hpctl/line_input.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "hpctl/interrupts.h"
#include "hpctl/local_options.h"

enum { REMEMBERED = 1000, AHEAD_MAX_BYTES = 64 << 10, CTRL_C = 3, CTRL_D = 4 };

static const char block[] = "\"\"\"";

struct line_input {
    EditLine *edit; /* NULL: no terminal */
    History *history;
    char file[600];      /* "" : nothing is remembered */
    struct buffer ahead; /* typed behind lines that were read, and not edited yet */
    bool stopped;        /* by a Ctrl-C that stood before it */
    bool forgotten;      /* the lines so far, by a Ctrl-C among them */
    struct buffer said;
    char *line; /* getline's */
    size_t capacity;
    bool pasting;       /* a terminal's paste: its lines are one */
    bool in_block, any; /* lines of what is said */
    bool goes_on;       /* the next line belongs to what has come */
};

static char *prompt_of(EditLine *edit)
{
    static char first[] = "> ", more[] = ". ";
    struct line_input *l = NULL;
    el_get(edit, EL_CLIENTDATA, &l);
    return l && l->goes_on ? more : first;
}

/* Ctrl-C: the line goes, and those that it was to go on with; the editor is given its end then. */
static unsigned char line_forget(EditLine *edit, int key)
{
    struct line_input *l = NULL;
    const LineInfoW *line = el_wline(edit);
    (void)key;
    el_get(edit, EL_CLIENTDATA, &l);
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    el_deletestr(edit, (int)(line->lastchar - line->buffer));
    l->forgotten = l->goes_on;
    if (l->forgotten)
        el_push(edit, "\n");
    return CC_REFRESH;
}

static unsigned char paste_begin(EditLine *edit, int key)
{
    struct line_input *l = NULL;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &l);
    l->pasting = true;
    return CC_NORM;
}

static unsigned char paste_end(EditLine *edit, int key)
{
    struct line_input *l = NULL;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &l);
    l->pasting = false;
    return CC_NORM;
}

/* The terminal puts marks around what is pasted, as long as the editor has it. */
static void paste_marks(bool wanted)
{
    const char *kind = getenv("TERM");
    if (!kind || strcmp(kind, "dumb") != 0)
        fputs(wanted ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* The editor takes what the locale has letters for and drops the rest, while models are asked in
 * UTF-8, which terminals send that name no locale, too. */
static void letters_all(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* Where it lies is made first, so that it is for nobody else's eyes. */
static void history_open(struct line_input *l)
{
    HistEvent ev;
    struct err ignored;
    history(l->history, &ev, H_SETSIZE, REMEMBERED);
    history(l->history, &ev, H_SETUNIQUE, 1);
    if (local_default_dir("chat-history", l->file, sizeof l->file, &ignored) < 0)
        l->file[0] = '\0';
    char *slash = strrchr(l->file, '/');
    if (!slash)
        return;
    *slash = '\0';
    int rc = fs_folder_make(l->file, 0700, &ignored);
    *slash = '/';
    int fd = rc == 0 ? open(l->file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0) {
        l->file[0] = '\0';
        return;
    }
    fchmod(fd, 0600);
    close(fd);
    history(l->history, &ev, H_LOAD, l->file);
}

int line_input_open(bool terminal, struct line_input **out, struct err *e)
{
    struct line_input *l = calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return err_no_memory(e, "what is typed");
    if (!terminal)
        return 0;
    letters_all();
    l->edit = el_init("hpctl", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history) {
        line_input_close(out);
        return err_no_memory(e, "what is typed");
    }
    history_open(l);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_PROMPT, prompt_of);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_SETTY, "-d", "-isig", NULL); /* Ctrl-C forgets the line, and no more */
    el_set(l->edit, EL_ADDFN, "hp-forget", "Forget what was typed", line_forget);
    el_set(l->edit, EL_BIND, "^C", "hp-forget", NULL);
    el_set(l->edit, EL_ADDFN, "hp-paste-begin", "A paste begins", paste_begin);
    el_set(l->edit, EL_ADDFN, "hp-paste-end", "A paste is over", paste_end);
    el_set(l->edit, EL_BIND, "\\e[200~", "hp-paste-begin", NULL);
    el_set(l->edit, EL_BIND, "\\e[201~", "hp-paste-end", NULL);
    el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(l->edit, NULL);
    return 0;
}

static void ahead_drop(struct line_input *l, size_t n)
{
    l->ahead.size -= n;
    memmove(l->ahead.data, l->ahead.data + n, l->ahead.size);
}

/* The next line of what was typed ahead goes to the editor, as if it were typed now. */
static void ahead_give(struct line_input *l)
{
    const char *ahead = buffer_cstr(&l->ahead);
    size_t n = strcspn(ahead, "\r\n");
    n += n < l->ahead.size;
    char *next = n ? strndup(ahead, n) : NULL;
    if (!next)
        return;
    el_push(l->edit, next);
    free(next);
    ahead_drop(l, n);
}

/* What came behind the end of a line while the editor still had the terminal. A Ctrl-C among it was
 * no signal there: it stops what the line asks for and forgets what was typed before it, as it does
 * a moment later. */
static void ahead_take(struct line_input *l)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char bytes[512];
    while (l->ahead.size < AHEAD_MAX_BYTES && poll(&input, 1, 0) == 1) {
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        bytes[0] = n > 0 ? bytes[0] : CTRL_D; /* as a line it would have been the end */
        buffer_append(&l->ahead, bytes, n > 0 ? (size_t)n : 1);
        if (n <= 0)
            break;
    }
    const char *ahead = buffer_cstr(&l->ahead),
               *stop = l->ahead.size ? memrchr(ahead, CTRL_C, l->ahead.size) : NULL;
    l->stopped = stop != NULL;
    if (!stop)
        return;
    ahead_drop(l, (size_t)(stop + 1 - ahead));
    raise(SIGINT);
}

/* The editor has the terminal before its prompt is shown: what is typed behind that is not echoed
 * twice, and a Ctrl-C before it was meant for nothing that is still to come. */
static const char *line_edit(struct line_input *l)
{
    int n = 0;
    el_set(l->edit, EL_PREP_TERM, 1);
    if (interrupts_heard() && !l->stopped)
        l->ahead.size = 0; /* as the terminal forgets what it has */
    interrupts_forget();
    ahead_give(l);
    paste_marks(true);
    const char *got = el_gets(l->edit, &n);
    paste_marks(false);
    if (!got || n <= 0) {
        fputc('\n', stdout); /* behind the ^D that the editor shows */
        return NULL;
    }
    free(l->line);
    l->line = strndup(got, strcspn(got, "\r\n"));
    ahead_take(l);
    return l->line;
}

/* One line without its end; NULL: there is none. */
static const char *line_read(struct line_input *l)
{
    if (l->edit)
        return line_edit(l);
    if (getline(&l->line, &l->capacity, stdin) < 0)
        return NULL;
    l->line[strcspn(l->line, "\r\n")] = '\0';
    return l->line;
}

static void line_remember(struct line_input *l)
{
    HistEvent ev;
    if (!l->history || !l->said.size)
        return;
    history(l->history, &ev, H_ENTER, buffer_cstr(&l->said));
    if (l->file[0])
        history(l->history, &ev, H_SAVE, l->file);
}

static void said_forget(struct line_input *l)
{
    l->said.size = 0;
    l->any = l->in_block = l->pasting = l->goes_on = l->forgotten = false;
}

static void said_add(struct line_input *l, const char *line)
{
    size_t n = strlen(line), mark = strlen(block);
    bool literal = l->pasting, opens = !literal && !l->in_block && strncmp(line, block, mark) == 0;
    line += opens ? mark : 0;
    n -= opens ? mark : 0;
    bool closes = !literal && (opens || l->in_block) && n >= mark &&
                  memcmp(line + n - mark, block, mark) == 0;
    n -= closes ? mark : 0;
    l->in_block = (l->in_block || opens) && !closes;
    bool more = !literal && !l->in_block && !closes && n && line[n - 1] == '\\';
    if (n || (!opens && !closes)) { /* a mark alone is no line */
        if (l->any)
            buffer_append(&l->said, "\n", 1);
        buffer_append(&l->said, line, more ? n - 1 : n);
        l->any = true;
    }
    l->goes_on = l->in_block || more || literal;
}

const char *line_input_next(struct line_input *l)
{
    const char *line;
    said_forget(l);
    while ((line = line_read(l)) != NULL) {
        if (!l->forgotten)
            said_add(l, line);
        if (l->forgotten || (l->goes_on && l->stopped))
            said_forget(l);
        if (!l->goes_on)
            break;
    }
    l->goes_on = false;
    if (!line && !l->any)
        return NULL;
    line_remember(l);
    return buffer_cstr(&l->said);
}

void line_input_close(struct line_input **out)
{
    struct line_input *l = *out;
    if (!l)
        return;
    if (l->edit)
        el_end(l->edit);
    if (l->history)
        history_end(l->history);
    buffer_free(&l->ahead);
    buffer_free(&l->said);
    free(l->line);
    free(l);
    *out = NULL;
}
