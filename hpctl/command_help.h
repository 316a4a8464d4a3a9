/* What is made of the command table beside running it: help. */
#ifndef HP_HPCTL_COMMAND_HELP_H
#define HP_HPCTL_COMMAND_HELP_H

#include <stdio.h>

#include "hpctl/command.h"

/* The options that every verb has, ended by a zero row. */
extern const struct command_option command_common_options[];

/* One verb: usage, options, examples. */
void command_print_usage(FILE *out, const struct command *c);
/* All verbs, or those whose path begins with `under`. */
void command_print_overview(FILE *out, const struct command *const *tables, const char *under);

#endif
