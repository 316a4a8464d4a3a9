/* `hpctl completion|man`: what is made of the command table itself. */
#include <stdio.h>
#include <string.h>

#include "hpctl/command_help.h"
#include "hpctl/command_man.h"
#include "hpctl/verbs.h"

static int run_completion(struct invocation *in, struct err *e)
{
    if (in->n_arguments == 1 && strcmp(in->arguments[0], "bash") != 0)
        return err_set(e, HP_EUNSUPPORTED, "there is no completion for \"%s\"; there is for bash",
                       in->arguments[0]);
    command_print_completion(in->tables);
    return 0;
}

static int run_man(struct invocation *in, struct err *e)
{
    return command_man_write(in->tables, in->arguments[0], e);
}

const struct command self_verbs[] = {
    {.path = "completion",
     .arguments = "[bash]",
     .max_arguments = 1,
     .summary = "print the completion of this command line for bash",
     .examples = "  hpctl completion bash > /etc/bash_completion.d/hpctl",
     .run = run_completion},
    {.path = "man",
     .arguments = "FOLDER",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "write the manual pages of all verbs",
     .details = "`make install` does it; `man hpctl`, `man hpctl-deploy` show them.",
     .examples = "  hpctl man /usr/local/share/man/man1",
     .run = run_man},
    {0},
};
