#include "hpctl/conversation.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/suggestion.h"
#include "hpctl/answer.h"
#include "hpctl/interrupts.h"
#include "hpctl/line_input.h"
#include "hpctl/shown.h"

enum { SAVED_MAX_BYTES = 64 << 20 };

struct conversation {
    const struct invocation *in;
    struct talk *talk;
    json_t *messages;
    bool terminal, styled, wraps, stats, ends;
};

/* ---- turns ---- */

static const char *message_role(const struct conversation *c, size_t i)
{
    return string_member(json_array_get(c->messages, i), "role");
}

/* The last message, where it is of that role; NULL otherwise. */
static json_t *message_last(const struct conversation *c, const char *role)
{
    size_t n = json_array_size(c->messages);
    return n && strcmp(message_role(c, n - 1), role) == 0 ? json_array_get(c->messages, n - 1)
                                                          : NULL;
}

static bool message_add(struct conversation *c, const char *role, const char *text, size_t n)
{
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", text, n);
    return m && json_array_append_new(c->messages, m) == 0;
}

static void message_drop_last(struct conversation *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static void error_show(const struct err *e)
{
    fprintf(stderr, "hpctl: %s\n%s%s%s", e->text, e->hint[0] ? "  " : "", e->hint,
            e->hint[0] ? "\n" : "");
}

/* Asks for an answer to what stands there. One that is stopped stands as far as it came. */
static int answer_turn(struct conversation *c)
{
    struct answer a = {.quiet = c->in->json, .styled = c->styled, .wraps = c->wraps};
    struct err e = {0};
    int rc = answer_ask(c->in, &c->talk->where, c->talk->name, c->messages, NULL, &a, &e);
    bool stopped = rc == HP_ECANCELED && c->terminal && a.text.size;
    answer_show_end(&a);
    if (rc == 0 && c->in->json)
        rc = invocation_print_json(c->in, answer_json(&a, c->talk->name), &e);
    fflush(stdout);
    if (stopped)
        fprintf(stderr, "(stopped; /regen asks again)\n");
    else if (rc < 0)
        error_show(&e);
    if (rc == 0 && c->stats)
        answer_print_timings(&a);
    if (rc == 0 || stopped)
        message_add(c, "assistant", buffer_cstr(&a.text), a.text.size);
    else
        message_drop_last(c);
    answer_free(&a);
    return stopped ? 0 : rc;
}

static int text_refuse(void)
{
    fprintf(stderr, "that is not valid UTF-8: it was not sent\n");
    return HP_EPARSE;
}

static int said_turn(struct conversation *c, const char *text, size_t n)
{
    return message_add(c, "user", text, n) ? answer_turn(c) : text_refuse();
}

/* ---- commands ---- */

static int command_help(struct conversation *c, const char *rest);

static int command_exit(struct conversation *c, const char *rest)
{
    (void)rest;
    c->ends = true;
    return 0;
}

/* What cannot be said leaves what was said. */
static int system_set(struct conversation *c, const char *text)
{
    json_t *m = text && *text ? json_pack("{s:s, s:s}", "role", "system", "content", text) : NULL;
    if (!m && text && *text)
        return text_refuse();
    if (json_array_size(c->messages) && strcmp(message_role(c, 0), "system") == 0)
        json_array_remove(c->messages, 0);
    if (m)
        json_array_insert_new(c->messages, 0, m);
    return 0;
}

/* As it is before anything is said. */
static int conversation_empty(struct conversation *c)
{
    json_array_clear(c->messages);
    return system_set(c, invocation_option(c->in, "system"));
}

static int command_reset(struct conversation *c, const char *rest)
{
    (void)rest;
    fprintf(stderr, "the conversation begins anew\n");
    return conversation_empty(c);
}

static int command_system(struct conversation *c, const char *rest)
{
    int rc = system_set(c, rest);
    if (rc == 0)
        fprintf(stderr, "from now on the model is told %s before all else\n",
                *rest ? "this" : "nothing");
    return rc;
}

static int command_stats(struct conversation *c, const char *rest)
{
    (void)rest;
    c->stats = !c->stats;
    fprintf(stderr, "tokens and times are %s after each answer\n",
            c->stats ? "shown" : "no longer shown");
    return 0;
}

/* The last question and its answer, which another turn was to replace; either may be NULL. */
static void turn_restore(struct conversation *c, json_t *question, json_t *answer)
{
    if (question)
        json_array_append(c->messages, question);
    if (answer)
        json_array_append(c->messages, answer);
}

static int command_regen(struct conversation *c, const char *rest)
{
    (void)rest;
    int rc = 0;
    json_t *answer = json_incref(message_last(c, "assistant"));
    if (answer)
        message_drop_last(c);
    json_t *question = json_incref(message_last(c, "user"));
    if (question)
        rc = answer_turn(c);
    else
        fprintf(stderr, "nothing has been asked yet\n");
    if (rc < 0 || !question)
        turn_restore(c, question, answer);
    json_decref(question);
    json_decref(answer);
    return rc;
}

static int command_save(struct conversation *c, const char *rest)
{
    struct err e = {0};
    json_t *all = json_pack("{s:s, s:O}", "model", c->talk->name, "messages", c->messages);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    int rc = !*rest ? err_set(&e, HP_EUSAGE, "/save FILE: where to?")
             : text ? fs_file_write(rest, text, strlen(text), 0600, &e)
                    : err_no_memory(&e, "the conversation");
    if (rc < 0)
        error_show(&e);
    else
        fprintf(stderr, "%zu messages are in %s\n", json_array_size(c->messages), rest);
    free(text);
    json_decref(all);
    return 0;
}

/* A list of {"role", "content"}, both strings. */
static bool messages_are_sane(const json_t *messages)
{
    size_t i;
    json_t *m;
    if (!json_is_array(messages))
        return false;
    json_array_foreach(messages, i, m)
    {
        if (!json_is_string(json_object_get(m, "role")) ||
            !json_is_string(json_object_get(m, "content")))
            return false;
    }
    return true;
}

static int command_load(struct conversation *c, const char *rest)
{
    struct buffer text = {0};
    struct err e = {0};
    int rc = *rest ? fs_file_read(rest, SAVED_MAX_BYTES, &text, &e)
                   : err_set(&e, HP_EUSAGE, "/load FILE: which?");
    json_t *all = rc == 0 ? json_loadb((const char *)text.data, text.size, 0, NULL) : NULL;
    json_t *messages = json_object_get(all, "messages");
    if (rc == 0 && !messages_are_sane(messages))
        rc = err_set(&e, HP_EPARSE, "%s: not a conversation that /save wrote", rest);
    if (rc < 0) {
        error_show(&e);
    } else {
        json_decref(c->messages);
        c->messages = json_incref(messages);
        fprintf(stderr, "%zu messages of %s\n", json_array_size(c->messages), rest);
    }
    json_decref(all);
    buffer_free(&text);
    return 0;
}

/* The editor on a file; whether it ended well. */
static bool editor_run(const char *file)
{
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
    const char *program = visual && *visual ? visual : editor && *editor ? editor : "vi";
    char command[700];
    int status = -1;
    snprintf(command, sizeof command, "%s '%s'", program, file);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    bool done = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    interrupts_forget(); /* those were the editor's */
    return done;
}

/* The last question, changed, in place of it and of its answer. */
static int command_edit(struct conversation *c, const char *rest)
{
    (void)rest;
    char file[] = "/tmp/hpctl-edit-XXXXXX";
    struct buffer text = {0};
    struct err e = {0};
    json_t *answer = json_incref(message_last(c, "assistant"));
    if (answer)
        message_drop_last(c);
    json_t *question = json_incref(message_last(c, "user"));
    const char *was = question ? string_member(question, "content") : "";
    int fd = mkstemp(file), rc = 0, asked = 0;
    if (fd < 0 || write(fd, was, strlen(was)) != (ssize_t)strlen(was))
        rc = err_set(&e, HP_EIO, "%s cannot be written", file);
    else if (!editor_run(file))
        rc = err_set(&e, HP_EIO, "the editor did not end well (VISUAL, EDITOR, or vi)");
    else
        rc = fs_file_read(file, SAVED_MAX_BYTES, &text, &e);
    if (fd >= 0) {
        close(fd);
        unlink(file);
    }
    while (text.size && strchr("\r\n \t", text.data[text.size - 1]))
        text.size--;
    if (rc < 0)
        error_show(&e);
    if (rc < 0 || !text.size) {
        if (answer)
            json_array_append(c->messages, answer);
    } else {
        if (question)
            message_drop_last(c);
        asked = said_turn(c, buffer_cstr(&text), text.size);
        if (asked < 0)
            turn_restore(c, question, answer);
    }
    json_decref(question);
    json_decref(answer);
    buffer_free(&text);
    return asked;
}

static const struct {
    const char *word, *argument, *help;
    int (*run)(struct conversation *c, const char *rest);
} commands[] = {
    {"/help", "", "this list", command_help},
    {"/regen", "", "another answer to the last question", command_regen},
    {"/edit", "", "change the last question in $EDITOR, and ask it instead", command_edit},
    {"/system", " TEXT", "what the model is told before all else; without TEXT: nothing",
     command_system},
    {"/stats", "", "show tokens and times after each answer, or no longer", command_stats},
    {"/save", " FILE", "write the conversation to a file", command_save},
    {"/load", " FILE", "go on with a conversation that was saved", command_load},
    {"/reset", "", "forget the conversation", command_reset},
    {"/exit", "", "end, as Ctrl-D does", command_exit},
    {"/quit", "", NULL, command_exit}, /* these three as others call them */
    {"/bye", "", NULL, command_exit},
    {"/clear", "", NULL, command_reset},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int command_help(struct conversation *c, const char *rest)
{
    (void)c, (void)rest;
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].help)
            printf("  %s%-*s%s\n", commands[i].word, 16 - (int)strlen(commands[i].word),
                   commands[i].argument, commands[i].help);
    printf("  \\ at a line's end goes on in the next one; \"\"\" before and after makes several "
           "lines one\n  Ctrl-C stops an answer\n");
    fflush(stdout);
    return 0;
}

/* A word after a slash; a path or a sum with one is not. */
static bool is_command(const char *text)
{
    size_t n = strcspn(text, " ");
    return text[0] == '/' && n > 1 && strspn(text + 1, "abcdefghijklmnopqrstuvwxyz") == n - 1;
}

static int command_missing(const char *text, size_t n)
{
    struct suggestion near = {0};
    char typed[SUGGESTION_MAX_WORD + 1];
    snprintf(typed, sizeof typed, "%.*s", (int)(n < sizeof typed ? n : sizeof typed - 1), text);
    for (int i = 0; i < COMMANDS; i++)
        suggestion_try(&near, typed, commands[i].word);
    fprintf(stderr, "there is no command %.40s; ", typed);
    if (near.best)
        fprintf(stderr, "did you mean %s? ", near.best);
    fprintf(stderr, "/help lists them\n");
    return 0;
}

static int command_turn(struct conversation *c, const char *text)
{
    size_t n = strcspn(text, " ");
    for (int i = 0; i < COMMANDS; i++)
        if (strlen(commands[i].word) == n && strncmp(commands[i].word, text, n) == 0)
            return commands[i].run(c, text + n + strspn(text + n, " "));
    return command_missing(text, n);
}

/* ---- all of it ---- */

int conversation_hold(const struct invocation *in, struct talk *t, struct err *e)
{
    const char *plain = getenv("NO_COLOR"), *kind = getenv("TERM");
    struct conversation c = {.in = in, .talk = t, .messages = json_array()};
    struct line_input *input = NULL;
    struct sigaction before;
    const char *text;
    c.terminal = isatty(STDIN_FILENO) && !in->json;
    c.wraps = c.terminal && isatty(STDOUT_FILENO) && !(kind && strcmp(kind, "dumb") == 0);
    c.styled = c.terminal && isatty(STDOUT_FILENO) && !(plain && *plain);
    /* Ctrl-C stops an answer or forgets a line; between the two there is nothing for it to stop,
     * the conversation least of all. */
    if (c.terminal)
        interrupts_hear(&before);
    int rc = c.messages ? line_input_open(c.terminal, &input, e) : err_no_memory(e, "a chat");
    if (rc == 0 && conversation_empty(&c) < 0)
        rc = err_set(e, HP_EUSAGE, "--system: not valid UTF-8");
    if (rc == 0 && c.terminal)
        printf("talking to %s; /help lists commands, /exit or Ctrl-D ends\n", t->name);
    fflush(stdout);
    while (rc == 0 && !c.ends && (text = line_input_next(input)) != NULL) {
        int done = is_command(text) ? command_turn(&c, text)
                   : *text          ? said_turn(&c, text, strlen(text))
                                    : 0;
        if (done < 0 && !c.terminal)
            rc = err_set(e, HP_EINVAL, "the conversation broke off");
    }
    line_input_close(&input);
    if (c.terminal)
        sigaction(SIGINT, &before, NULL);
    json_decref(c.messages);
    return rc;
}
