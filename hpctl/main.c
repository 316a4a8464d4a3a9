/* hpctl: the command line. Its verbs are the rows of tables (verbs.c). */
#include "hpctl/command.h"
#include "hpctl/verbs.h"

int main(int argc, char **argv)
{
    return command_main(argc, argv, command_tables);
}
