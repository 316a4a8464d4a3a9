/* hpctl: the command line. Its verbs are the rows of these tables. */
#include "hpctl/command.h"
#include "hpctl/verbs.h"

int main(int argc, char **argv)
{
    static const struct command *const tables[] = {
        plan_verbs,
        plan_pipeline_verbs,
        model_run_verbs,
        NULL,
    };
    return command_main(argc, argv, tables);
}
