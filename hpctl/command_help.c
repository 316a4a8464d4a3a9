#include "hpctl/command_help.h"

#include <string.h>

const struct command_option command_common_options[] = {
    {"output", "json|FILE", "JSON on standard output, or into a file", 'o'},
    {"help", NULL, "show this", 'h'},
    {0},
};

/* ---- help ---- */

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

void command_print_usage(FILE *out, const struct command *c)
{
    fprintf(out, "usage: hpctl %s%s%s [options]\n\n%s\n", c->path,
            c->arguments && *c->arguments ? " " : "", c->arguments ? c->arguments : "", c->summary);
    if (c->details)
        fprintf(out, "\n%s\n", c->details);
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
            if (!under || strncmp(c->path, under, strlen(under)) == 0)
                fprintf(out, "  %-22s %s\n", c->path, c->summary);
    }
    fprintf(out, "\n`hpctl VERB --help` shows a verb's options and examples; `-o json` gives JSON "
                 "everywhere.\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no coordinator "
                 "answers, 4 no such thing, 5 not allowed,\n6 no plan exists or none fits, 7 out "
                 "of time, 130 interrupted.\n");
}
