/* `hpctl plan check`: judges a plan file, whoever made it. */
#include "hpctl/verbs.h"

const struct command plan_verbs[] = {{0}};
