/* Fields of completions that are known and not built: with another value than what happens anyway
 * they would be disobeyed in silence. Only openai_body.c includes this. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_UNBUILT_H
#define HP_COORDINATOR_GATEWAY_BODY_UNBUILT_H

#include <jansson.h>

#include "common/status.h"

/* HP_EINVAL: the body asks for one of them, which *param names. */
int body_unbuilt_check(const json_t *root, const char **param, struct err *e);

#endif
