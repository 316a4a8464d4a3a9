/* Verbs of this program as children of it. */
#ifndef HP_HPCTL_VERB_RUN_H
#define HP_HPCTL_VERB_RUN_H

#include <jansson.h>

#include "common/status.h"

enum { VERB_MAX_ARGUMENTS = 16 };

/* Runs `hpctl ARGUMENTS -o json` (ended by NULL) and waits for it; *result (may be NULL) is the
 * caller's. A failure is the child's own. */
int verb_run(const char *const *arguments, json_t **result, struct err *e);

#endif
