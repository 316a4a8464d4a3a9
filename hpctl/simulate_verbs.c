/* `hpctl simulate` and `hpctl profile split`. */
#include "hpctl/verbs.h"

const struct command simulate_verbs[] = {{0}};
