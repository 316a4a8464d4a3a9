#include "hpctl/command.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/suggestion.h"
#include "hpctl/command_help.h"

/* How many words of argv the path of `c` is, when they are its path; else 0. */
static int words_matched(const struct command *c, int argc, char **argv)
{
    int words = 0;
    for (const char *at = c->path; *at; words++) {
        size_t n = strcspn(at, " ");
        if (1 + words >= argc || strncmp(argv[1 + words], at, n) != 0 || argv[1 + words][n] != '\0')
            return 0;
        at += n + (at[n] == ' ');
    }
    return words;
}

static const struct command *find_command(int argc, char **argv,
                                          const struct command *const *tables, int *words)
{
    const struct command *best = NULL;
    *words = 0;
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            int n = words_matched(c, argc, argv);
            if (n > *words) {
                *words = n;
                best = c;
            }
        }
    return best;
}

enum {
    OWN_OPTION = 500,
    COMMON_OPTION = 1000
}; /* getopt's values: a row of the verb's table, or of ours */

static void add_long_options(const struct command_option *list, int base, struct option *out,
                             int *n, char *letters)
{
    for (int i = 0; list && list[i].name; i++) {
        assert(*n < COMMAND_MAX_OPTIONS + 8);
        out[(*n)++] = (struct option){list[i].name, list[i].value ? required_argument : no_argument,
                                      NULL, base + i};
        if (list[i].letter) {
            size_t at = strlen(letters);
            letters[at] = list[i].letter;
            letters[at + 1] = list[i].value ? ':' : '\0';
            letters[at + 2] = '\0';
        }
    }
    out[*n] = (struct option){0};
}

static int option_of_letter(const struct command *c, int letter)
{
    for (int i = 0; c->options && c->options[i].name; i++)
        if (c->options[i].letter == letter)
            return OWN_OPTION + i;
    for (int i = 0; command_common_options[i].name; i++)
        if (command_common_options[i].letter == letter)
            return COMMON_OPTION + i;
    return -1;
}

static void options_near(const struct command_option *list, const char *typed, size_t n,
                         struct suggestion *s)
{
    size_t distance;
    for (int i = 0; list && list[i].name; i++)
        if (suggestion_distance(typed, n, list[i].name, strlen(list[i].name), &distance))
            suggestion_offer(s, list[i].name, distance);
}

/* `word` is what getopt refused; only of long options is it known which one. */
static int option_unknown(const struct command *c, const char *word, bool no_value, struct err *e)
{
    struct suggestion near = {0};
    err_set(e, HP_EUSAGE, "hpctl %s: option %s %s", c->path, word,
            no_value ? "lacks its value"
            : optopt ? "is unknown, or takes no value"
                     : "is unknown");
    if (!no_value && !optopt && strncmp(word, "--", 2) == 0) {
        size_t n = strcspn(word + 2, "=");
        options_near(c->options, word + 2, n, &near);
        options_near(command_common_options, word + 2, n, &near);
    }
    if (near.best)
        return err_hint(e, "did you mean --%s? see `hpctl %s --help`", near.best, c->path);
    return err_hint(e, "see `hpctl %s --help`", c->path);
}

/* What other programs call their forms of output. A file of such a name is hardly meant. */
static bool output_is_format(const char *word)
{
    static const char *const forms[] = {"yaml", "yml",  "table", "text", "wide",
                                        "csv",  "name", "jsonl", "JSON", "pretty"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(word, forms[i]) == 0)
            return true;
    return false;
}

static int output_take(struct invocation *in, char *word, struct err *e)
{
    if (output_is_format(word)) {
        err_set(e, HP_EUSAGE, "-o %s: there is no such form; there is json", word);
        return err_hint(e, "a file of that name is -o ./%s", word);
    }
    in->json = strcmp(word, "json") == 0 || strcmp(word, "-") == 0;
    in->output = in->json ? NULL : word;
    in->json |= !in->command->makes_file;
    return 0;
}

/* `value` NULL: it takes none. */
static int option_take(struct invocation *in, int option, const char *value, struct err *e)
{
    if (in->n_given == COMMAND_MAX_GIVEN)
        return err_set(e, HP_EUSAGE, "hpctl %s: more than %d options", in->command->path,
                       COMMAND_MAX_GIVEN);
    in->values[option] = value ? value : "";
    in->given[in->n_given].option = option;
    in->given[in->n_given++].value = in->values[option];
    return 0;
}

static int arguments_take(struct invocation *in, char **argv, int n, struct err *e)
{
    const struct command *c = in->command;
    for (int i = 0; i < n; i++) {
        if (in->n_arguments == COMMAND_MAX_ARGUMENTS)
            return err_set(e, HP_EUSAGE, "hpctl %s: more than %d arguments", c->path,
                           COMMAND_MAX_ARGUMENTS);
        in->arguments[in->n_arguments++] = argv[i];
    }
    if (in->n_arguments >= c->min_arguments && in->n_arguments <= c->max_arguments)
        return 0;
    err_set(e, HP_EUSAGE, "hpctl %s takes %s, got %d argument%s", c->path,
            c->arguments && *c->arguments ? c->arguments : "no arguments", in->n_arguments,
            in->n_arguments == 1 ? "" : "s");
    return err_hint(e, "see `hpctl %s --help`", c->path);
}

/* 0: run it; 1: help was asked for; negative: usage error. */
static int invocation_parse(int argc, char **argv, int words, struct invocation *in, struct err *e)
{
    struct option long_options[COMMAND_MAX_OPTIONS + 9];
    char letters[2 * COMMAND_MAX_OPTIONS + 32] = ":"; /* a value that lacks is told apart */
    int n = 0, got, rc = 0;
    add_long_options(in->command->options, OWN_OPTION, long_options, &n, letters);
    add_long_options(command_common_options, COMMON_OPTION, long_options, &n, letters);
    opterr = 0;
    optind = 1 + words;
    while (rc == 0 && (got = getopt_long(argc, argv, letters, long_options, NULL)) >= 0) {
        if (got == '?' || got == ':')
            return option_unknown(in->command, argv[optind - 1], got == ':', e);
        int which = got < OWN_OPTION ? option_of_letter(in->command, got) : got;
        if (which == COMMON_OPTION + 1)
            return 1;
        rc = which == COMMON_OPTION ? output_take(in, optarg, e)
                                    : option_take(in, which - OWN_OPTION, optarg, e);
    }
    return rc < 0 ? rc : arguments_take(in, argv + optind, argc - optind, e);
}

static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-ojson") == 0 || strcmp(argv[i], "--output=json") == 0 ||
            (i + 1 < argc && (strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0) &&
             (strcmp(argv[i + 1], "json") == 0 || strcmp(argv[i + 1], "-") == 0)))
            return true;
    return false;
}

static int error_report(int rc, const struct err *e, bool json)
{
    fprintf(stderr, "hpctl: %s\n", e->text[0] ? e->text : status_word(rc));
    if (e->hint[0])
        fprintf(stderr, "  %s\n", e->hint);
    if (json) {
        json_t *o = json_pack("{s:{s:s, s:s, s:s}}", "error", "code", status_word(rc), "message",
                              e->text, "hint", e->hint);
        struct err ignored;
        if (o && json_save(o, "-", &ignored) < 0 && strcmp(ignored.text, e->text) != 0)
            fprintf(stderr, "hpctl: %s\n", ignored.text);
        json_decref(o);
    }
    return status_exit_code(rc);
}

/* "node" and "node token" are no verbs, but begin some: these are listed. */
static bool print_group(int argc, char **argv, const struct command *const *tables)
{
    char under[128] = "";
    size_t n = 0;
    int words = 1;
    for (; words < argc && argv[words][0] != '-' && n < sizeof under; words++)
        n += (size_t)snprintf(under + n, sizeof under - n, "%s ", argv[words]);
    bool help =
        words == argc - 1 && (strcmp(argv[words], "--help") == 0 || strcmp(argv[words], "-h") == 0);
    if (n == 0 || n >= sizeof under || (words < argc && !help))
        return false;
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++)
            if (strncmp(c->path, under, n) == 0) {
                command_print_overview(stdout, tables, under);
                return true;
            }
    return false;
}

/* "help VERB" and "--version" are said as well as "VERB --help" and "version". */
static void words_usual(int argc, char **argv)
{
    static char help[] = "--help", version[] = "version";
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof *argv);
        argv[argc - 1] = help;
    } else if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
                             strcmp(argv[1], "-v") == 0)) {
        argv[1] = version;
    }
}

/* How far the first words of argv are from a verb's; false: one of them is none of its words. */
static bool verb_distance(const struct command *c, int argc, char **argv, size_t *out)
{
    size_t one;
    int word = 1;
    *out = 0;
    for (const char *at = c->path; *at; word++) {
        size_t n = strcspn(at, " ");
        if (word >= argc || !suggestion_distance(argv[word], strlen(argv[word]), at, n, &one))
            return false;
        *out += one;
        at += n + (at[n] == ' ');
    }
    return true;
}

static bool word_begins_verbs(const char *word, const struct command *const *tables)
{
    size_t n = strlen(word);
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++)
            if (strncmp(c->path, word, n) == 0 && c->path[n] == ' ')
                return true;
    return false;
}

/* The nearest verb, the first of several; else, where argv[1] begins none and ends one alone,
 * that one. */
static const char *verb_meant(int argc, char **argv, const struct command *const *tables)
{
    struct suggestion near = {0}, ends = {0};
    size_t distance, n_ends = 0;
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            const char *last = strrchr(c->path, ' ');
            if (verb_distance(c, argc, argv, &distance))
                suggestion_offer(&near, c->path, distance);
            if (last && strcmp(last + 1, argv[1]) == 0) {
                suggestion_offer(&ends, c->path, 0);
                n_ends++;
            }
        }
    return near.best                                            ? near.best
           : n_ends == 1 && !word_begins_verbs(argv[1], tables) ? ends.best
                                                                : NULL;
}

/* What other programs call a verb of ours; NULL: it is none of theirs, or we have no such verb. */
static const char *verb_elsewhere(const char *word, const struct command *const *tables)
{
    static const char *const words[][2] = {
        {"pull", "deploy"},   {"list", "ps"},       {"models", "ps"},       {"status", "ps"},
        {"stop", "undeploy"}, {"rm", "undeploy"},   {"remove", "undeploy"}, {"delete", "undeploy"},
        {"show", "describe"}, {"info", "describe"}, {"generate", "run"},
    };
    const char *ours = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], word) == 0)
            ours = words[i][1];
    for (const struct command *const *t = tables; ours && *t; t++)
        for (const struct command *c = *t; c->path; c++)
            if (strcmp(c->path, ours) == 0)
                return c->path;
    return NULL;
}

static int verb_unknown(int argc, char **argv, const struct command *const *tables, struct err *e)
{
    if (argv[1][0] == '-') {
        err_set(e, HP_EUSAGE, "hpctl takes a verb first, and options after it: not \"%s\"",
                argv[1]);
        return err_hint(
            e, "such as `hpctl ps --context NAME -o json`; `hpctl --help` lists the verbs");
    }
    bool more = argc > 2 && argv[2][0] != '-';
    err_set(e, HP_EUSAGE, "there is no verb \"%s%s%s\"", argv[1], more ? " " : "",
            more ? argv[2] : "");
    const char *meant = verb_elsewhere(argv[1], tables);
    meant = meant ? meant : verb_meant(argc, argv, tables);
    if (meant)
        return err_hint(e, "did you mean `hpctl %s`? `hpctl --help` lists the verbs", meant);
    if (word_begins_verbs(argv[1], tables))
        return err_hint(e, "`hpctl %s --help` lists the verbs that begin so", argv[1]);
    return err_hint(e, "`hpctl --help` lists the verbs");
}

/* `bench pipelin` is `bench` of a file of that name, which there is not: the verb that goes on from
 * this one was meant. */
static void verb_longer_hint(const struct command *c, int argc, char **argv,
                             const struct command *const *tables, struct err *e)
{
    struct suggestion near = {0};
    size_t distance, n = strlen(c->path);
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *d = *t; d->path; d++)
            if (strncmp(d->path, c->path, n) == 0 && d->path[n] == ' ' &&
                verb_distance(d, argc, argv, &distance))
                suggestion_offer(&near, d->path, distance);
    if (near.best)
        err_hint(e, "did you mean `hpctl %s`? see `hpctl %s --help`", near.best, c->path);
}

/* What was said has to have come through: the disk may be full. */
static int output_check(struct err *e)
{
    errno = 0;
    bool flushed = fflush(stdout) == 0;
    if (flushed && !ferror(stdout))
        return 0;
    return err_set(e, HP_EIO, "standard output: %s",
                   flushed || !errno ? "not all of it could be written" : strerror(errno));
}

int command_main(int argc, char **argv, const struct command *const *tables)
{
    struct err e = {0};
    struct invocation in = {0};
    int words = 0;
    bool json = wants_json(argc, argv);
    in.tables = tables;
    words_usual(argc, argv);
    in.command = find_command(argc, argv, tables, &words);
    if (!in.command) {
        bool help = argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                    strcmp(argv[1], "help") == 0;
        if (print_group(argc, argv, tables))
            return argc > 2 && argv[argc - 1][0] == '-' ? 0 : 2;
        if (help) {
            command_print_overview(stdout, tables, NULL);
            return output_check(&e) < 0 ? error_report(e.code, &e, json) : 0;
        }
        verb_unknown(argc, argv, tables, &e);
        return error_report(HP_EUSAGE, &e, json);
    }
    int rc = invocation_parse(argc, argv, words, &in, &e);
    if (rc > 0)
        command_print_usage(stdout, in.command);
    else if (rc == 0)
        rc = in.command->run(&in, &e);
    if (rc == HP_EUSAGE || rc == HP_ENOENT || rc == HP_ENOCLUSTER)
        verb_longer_hint(in.command, argc, argv, tables, &e);
    rc = rc < 0 ? rc : output_check(&e);
    return rc < 0 ? error_report(rc, &e, json && !in.told) : 0;
}
