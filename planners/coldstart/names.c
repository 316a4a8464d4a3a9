/* Words of methods, as options and plans spell them. */
#include "planners/coldstart/coldstart.h"

const char *coldstart_method_word(enum coldstart_method m)
{
    static const char *const words[COLDSTART_METHODS] = {
        "best", "serial", "pipeline", "dha", "pt", "pt-dha", "milp", "interleaved", "list"};
    return words[m];
}
