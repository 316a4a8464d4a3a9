/* `hpctl completion|man`: what is made of the command table itself. */
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "hpctl/command_help.h"
#include "hpctl/command_man.h"
#include "hpctl/verbs.h"

static int run_completion(struct invocation *in, struct err *e)
{
    if (in->n_arguments == 1 && strcmp(in->arguments[0], "bash") != 0)
        return err_set(e, HP_EUNSUPPORTED, "there is no completion for \"%s\"; there is for bash",
                       in->arguments[0]);
    struct buffer script = {0};
    command_completion(in->tables, &script);
    int rc = script.failed ? err_no_memory(e, "the completion") : 0;
    if (rc == 0 && in->json)
        rc = invocation_print_json(
            in,
            json_pack("{s:s, s:s%}", "shell", "bash", "script", buffer_cstr(&script), script.size),
            e);
    else if (rc == 0 && in->output)
        rc = fs_buffer_save(in->output, &script, e);
    else if (rc == 0)
        fputs(buffer_cstr(&script), stdout);
    buffer_free(&script);
    return rc;
}

static int run_man(struct invocation *in, struct err *e)
{
    int rc = command_man_write(in->tables, in->arguments[0], e);
    return rc == 0 && in->json
               ? invocation_print_json(in, json_pack("{s:s}", "folder", in->arguments[0]), e)
               : rc;
}

const struct command self_verbs[] = {
    {.path = "completion",
     .arguments = "[bash]",
     .max_arguments = 1,
     .summary = "print the completion of this command line for bash",
     .examples = "  hpctl completion bash > /etc/bash_completion.d/hpctl",
     .run = run_completion,
     .makes_file = true},
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
