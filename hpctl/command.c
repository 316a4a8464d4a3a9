#include "hpctl/command.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

static const struct command_option common_options[] = {
    {"output", "json|FILE", "JSON on standard output, or into a file", 'o'},
    {"help", NULL, "show this", 'h'},
    {0},
};

/* ---- options of an invocation
 * ------------------------------------------------------------------------------- */

const char *invocation_option(const struct invocation *in, const char *name)
{
    for (int i = 0; in->command->options && in->command->options[i].name; i++)
        if (strcmp(in->command->options[i].name, name) == 0)
            return in->values[i];
    assert(false && "the verb declares this option");
    return NULL;
}

bool invocation_flag(const struct invocation *in, const char *name)
{
    return invocation_option(in, name) != NULL;
}

int invocation_required(const struct invocation *in, const char *name, const char **out,
                        struct err *e)
{
    *out = invocation_option(in, name);
    if (*out)
        return 0;
    err_set(e, HP_EUSAGE, "hpctl %s needs --%s", in->command->path, name);
    return err_hint(e, "see `hpctl %s --help`", in->command->path);
}

int invocation_number(const struct invocation *in, const char *name, double fallback, double *out,
                      struct err *e)
{
    const char *text = invocation_option(in, name);
    *out = fallback;
    if (!text)
        return 0;
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a number", name, text);
    *out = v;
    return 0;
}

int invocation_u64(const struct invocation *in, const char *name, uint64_t fallback, uint64_t *out,
                   struct err *e)
{
    double v;
    int rc = invocation_number(in, name, 0, &v, e);
    if (rc < 0)
        return rc;
    if (!invocation_option(in, name)) {
        *out = fallback;
        return 0;
    }
    if (v < 0 || v != floor(v) || v > 0x1p53)
        return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a whole number of 0 or more", name,
                       invocation_option(in, name));
    *out = (uint64_t)v;
    return 0;
}

int invocation_bytes(const struct invocation *in, const char *name, uint64_t fallback,
                     uint64_t *out, struct err *e)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},         {"B", 1},        {"k", 1e3},      {"kB", 1e3},    {"M", 1e6},
                 {"MB", 1e6},     {"G", 1e9},      {"GB", 1e9},     {"T", 1e12},    {"TB", 1e12},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    const char *text = invocation_option(in, name);
    *out = fallback;
    if (!text)
        return 0;
    char *end;
    double v = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].suffix) == 0 && v >= 0 && v * units[i].factor < 0x1p62) {
            *out = (uint64_t)(v * units[i].factor);
            return 0;
        }
    return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a size such as 500MB or 4GiB", name, text);
}

int invocation_choice(const struct invocation *in, const char *name, const char *const *choices,
                      int fallback, int *out, struct err *e)
{
    const char *text = invocation_option(in, name);
    *out = fallback;
    if (!text)
        return 0;
    char list[256] = "";
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", choices[i]);
    }
    return err_set(e, HP_EUSAGE, "--%s: \"%s\" is none of %s", name, text, list);
}

int invocation_print_json(const struct invocation *in, json_t *value, struct err *e)
{
    if (!value)
        return err_set(e, HP_ENOMEM, "out of memory while writing JSON");
    int rc = json_save(value, in->output ? in->output : "-", e);
    json_decref(value);
    return rc;
}

/* ---- help
 * -----------------------------------------------------------------------------------------------------
 */

static void print_options(FILE *out, const struct command_option *options)
{
    for (int i = 0; options && options[i].name; i++) {
        char left[80];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", options[i].letter ? '-' : ' ',
                 options[i].letter ? options[i].letter : ' ', options[i].letter ? "," : " ",
                 options[i].name, options[i].value ? " " : "",
                 options[i].value ? options[i].value : "");
        fprintf(out, "  %-34s %s\n", left, options[i].help);
    }
}

static void print_usage_of(FILE *out, const struct command *c)
{
    fprintf(out, "usage: hpctl %s%s%s [options]\n\n%s\n", c->path,
            c->arguments && *c->arguments ? " " : "", c->arguments ? c->arguments : "", c->summary);
    if (c->details)
        fprintf(out, "\n%s\n", c->details);
    fprintf(out, "\noptions:\n");
    print_options(out, c->options);
    print_options(out, common_options);
    if (c->examples)
        fprintf(out, "\nexamples:\n%s\n", c->examples);
}

static void print_overview(FILE *out, const struct command *const *tables, const char *under)
{
    fprintf(out, "usage: hpctl VERB [options]\n\nHodgepodge serves large models on the mixed "
                 "machines that people already own.\n\n");
    for (; *tables; tables++)
        for (const struct command *c = *tables; c->path; c++)
            if (!under || strncmp(c->path, under, strlen(under)) == 0)
                fprintf(out, "  %-22s %s\n", c->path, c->summary);
    fprintf(out, "\n`hpctl VERB --help` shows a verb's options and examples; `-o json` gives JSON "
                 "everywhere.\n");
}

/* ---- completion
 * -------------------------------------------------------------------------------------------------
 */

static int words_of(const char *path)
{
    int n = 1;
    for (; *path; path++)
        n += *path == ' ';
    return n;
}

/* The options of each verb, verbs of most words first, since the shell takes the first that fits.
 */
static void print_completion_options(const struct command *const *tables)
{
    for (int words = 3; words > 0; words--)
        for (const struct command *const *t = tables; *t; t++)
            for (const struct command *c = *t; c->path; c++) {
                if (words_of(c->path) != words)
                    continue;
                printf("    \"%s \"*) words=\"--help -o", c->path);
                for (int i = 0; c->options && c->options[i].name; i++)
                    printf(" --%s", c->options[i].name);
                printf("\" ;;\n");
            }
}

static void print_bash_completion(const struct command *const *tables)
{
    printf("# bash completion for hpctl; made by `hpctl completion bash`\n_hpctl_verbs='");
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++)
            printf("%s\n", c->path);
    printf("'\n_hpctl() {\n"
           "    local typed=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\" word=${COMP_WORDS[COMP_CWORD]} "
           "words= verb next=\n"
           "    case \"$typed \" in\n");
    print_completion_options(tables);
    printf("    esac\n"
           "    while read -r verb; do\n"
           "        case $verb in \"${typed:+$typed }\"?*) verb=${verb#\"${typed:+$typed }\"}; "
           "next+=\" ${verb%%%% *}\" ;; esac\n"
           "    done <<< \"$_hpctl_verbs\"\n"
           "    if [ -z \"$next\" ] && [[ $word != -* ]]; then COMPREPLY=($(compgen -f -- "
           "\"$word\"))\n"
           "    else COMPREPLY=($(compgen -W \"$words $next\" -- \"$word\")); fi\n"
           "}\ncomplete -o filenames -F _hpctl hpctl\n");
}

/* ---- parsing
 * ----------------------------------------------------------------------------------------------------
 */

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
    for (int i = 0; common_options[i].name; i++)
        if (common_options[i].letter == letter)
            return COMMON_OPTION + i;
    return -1;
}

/* 0: run it; 1: help was asked for; negative: usage error. */
static int parse(int argc, char **argv, int words, struct invocation *in, struct err *e)
{
    struct option long_options[COMMAND_MAX_OPTIONS + 9];
    char letters[2 * COMMAND_MAX_OPTIONS + 32] = "";
    int n = 0;
    add_long_options(in->command->options, OWN_OPTION, long_options, &n, letters);
    add_long_options(common_options, COMMON_OPTION, long_options, &n, letters);
    opterr = 0;
    optind = 1 + words;
    for (;;) {
        int got = getopt_long(argc, argv, letters, long_options, NULL);
        if (got < 0)
            break;
        if (got == '?') {
            err_set(e, HP_EUSAGE, "hpctl %s: option %s is unknown or lacks its value",
                    in->command->path, argv[optind - 1]);
            return err_hint(e, "see `hpctl %s --help`", in->command->path);
        }
        int which = got < OWN_OPTION ? option_of_letter(in->command, got) : got;
        if (which == COMMON_OPTION + 1)
            return 1;
        if (which == COMMON_OPTION) {
            in->json = strcmp(optarg, "json") == 0 || strcmp(optarg, "-") == 0;
            in->output = in->json ? NULL : optarg;
            in->json |= !in->command->makes_file;
        } else {
            in->values[which - OWN_OPTION] = optarg ? optarg : "";
        }
    }
    for (; optind < argc; optind++) {
        if (in->n_arguments == COMMAND_MAX_ARGUMENTS)
            return err_set(e, HP_EUSAGE, "hpctl %s: more than %d arguments", in->command->path,
                           COMMAND_MAX_ARGUMENTS);
        in->arguments[in->n_arguments++] = argv[optind];
    }
    if (in->n_arguments < in->command->min_arguments ||
        in->n_arguments > in->command->max_arguments) {
        err_set(e, HP_EUSAGE, "hpctl %s takes %s, got %d argument%s", in->command->path,
                in->command->arguments && *in->command->arguments ? in->command->arguments
                                                                  : "no arguments",
                in->n_arguments, in->n_arguments == 1 ? "" : "s");
        return err_hint(e, "see `hpctl %s --help`", in->command->path);
    }
    return 0;
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

static int report(int rc, const struct err *e, bool json)
{
    fprintf(stderr, "hpctl: %s\n", e->text[0] ? e->text : status_word(rc));
    if (e->hint[0])
        fprintf(stderr, "  %s\n", e->hint);
    if (json) {
        json_t *o = json_pack("{s:{s:s, s:s, s:s}}", "error", "code", status_word(rc), "message",
                              e->text, "hint", e->hint);
        struct err ignored;
        if (o && json_save(o, "-", &ignored) < 0)
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
                print_overview(stdout, tables, under);
                return true;
            }
    return false;
}

int command_main(int argc, char **argv, const struct command *const *tables)
{
    struct err e = {0};
    struct invocation in = {0};
    int words = 0;
    bool json = wants_json(argc, argv);
    if (argc > 1 && strcmp(argv[1], "completion") == 0) {
        print_bash_completion(tables);
        return 0;
    }
    in.command = find_command(argc, argv, tables, &words);
    if (!in.command) {
        bool help = argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                    strcmp(argv[1], "help") == 0;
        if (print_group(argc, argv, tables))
            return argc > 2 && argv[argc - 1][0] == '-' ? 0 : 2;
        if (help) {
            print_overview(stdout, tables, NULL);
            return 0;
        }
        err_set(&e, HP_EUSAGE, "there is no verb \"%s%s%s\"", argv[1], argc > 2 ? " " : "",
                argc > 2 ? argv[2] : "");
        err_hint(&e, "`hpctl --help` lists the verbs");
        return report(HP_EUSAGE, &e, json);
    }
    int rc = parse(argc, argv, words, &in, &e);
    if (rc > 0) {
        print_usage_of(stdout, in.command);
        return 0;
    }
    if (rc == 0)
        rc = in.command->run(&in, &e);
    if (rc < 0)
        return report(rc, &e, json);
    if (fflush(stdout) != 0)
        return 1;
    return 0;
}
