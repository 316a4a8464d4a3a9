#include "hpctl/command_help.h"

#include <string.h>

#include "hpctl/shown.h"

const struct command_option command_common_options[] = {
    {"output", "json|FILE", "JSON on standard output, or into a file", 'o'},
    {"help", NULL, "show this", 'h'},
    {0},
};

/* ---- help ---- */

enum { NARROW_COLUMNS = 64, NARROW_INDENT = 8 };

/* Words from column `at` on; where a terminal is at its edge the next line begins at `indent`. */
static void print_words(FILE *out, const char *text, size_t at, size_t indent)
{
    size_t columns = shown_columns(fileno(out), SIZE_MAX), n;
    indent = indent && columns < NARROW_COLUMNS ? NARROW_INDENT : indent;
    for (const char *word = text; *word; word += n) {
        n = *word == ' ' ? 1 : strcspn(word, " \n");
        size_t next = *word == ' ' ? strcspn(word + 1, " \n") : 0;
        if (*word == '\n') {
            n = 1;
            at = 0;
            fputc('\n', out);
        } else if (next && at > indent && next < columns - indent && at + 1 + next > columns) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else {
            fprintf(out, "%.*s", (int)n, word);
            at += n;
        }
    }
    fputc('\n', out);
}

static void print_options(FILE *out, const struct command_option *options)
{
    enum { LEFT = 34 };
    for (int i = 0; options && options[i].name; i++) {
        char left[80];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", options[i].letter ? '-' : ' ',
                 options[i].letter ? options[i].letter : ' ', options[i].letter ? "," : " ",
                 options[i].name, options[i].value ? " " : "",
                 options[i].value ? options[i].value : "");
        fprintf(out, "  %-*s ", LEFT, left);
        print_words(out, options[i].help, strlen(left) > LEFT ? strlen(left) + 3 : LEFT + 3,
                    LEFT + 3);
    }
}

void command_print_usage(FILE *out, const struct command *c)
{
    fprintf(out, "usage: hpctl %s%s%s [options]\n\n", c->path,
            c->arguments && *c->arguments ? " " : "", c->arguments ? c->arguments : "");
    print_words(out, c->summary, 0, 0);
    if (c->details) {
        fputc('\n', out);
        print_words(out, c->details, 0, 0);
    }
    fprintf(out, "\noptions:\n");
    print_options(out, c->options);
    print_options(out, command_common_options);
    if (c->examples)
        fprintf(out, "\nexamples:\n%s\n", c->examples);
}

void command_print_overview(FILE *out, const struct command *const *tables, const char *under)
{
    fprintf(out, "usage: hpctl VERB [options]\n\nHodgepodge serves large models on the mixed "
                 "machines that people already own.\n\n");
    for (const struct command *const *t = tables; *t; t++) {
        if (!under && !(*t)->path && (*t)->summary)
            fprintf(out, "%s%s:\n", t == tables ? "" : "\n", (*t)->summary);
        for (const struct command *c = *t; c->path; c++)
            if (!under || strncmp(c->path, under, strlen(under)) == 0) {
                fprintf(out, "  %-22s ", c->path);
                print_words(out, c->summary, 25, 25);
            }
    }
    print_words(out,
                "\n`hpctl VERB --help` shows a verb's options and examples; `-o json` gives JSON "
                "everywhere.\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no coordinator "
                "answers, 4 no such thing, 5 not allowed,\n6 no plan exists or none fits, 7 out "
                "of time, 130 interrupted.",
                0, 0);
}
