/* The fields that an answer is to have, as llama-server's "response_fields" names them: paths such
 * as "content" or "timings/predicted_n". Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_RESPONSE_FIELDS_H
#define HP_COORDINATOR_GATEWAY_RESPONSE_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "common/bytes.h"
#include "common/status.h"

enum { RESPONSE_MAX_FIELDS = 64, RESPONSE_MAX_FIELD_BYTES = 128 };

struct response_fields {
    char **paths; /* [n] */
    size_t n;     /* 0: all that there are */
};

/* Copies them. HP_EINVAL names the field in *param; HP_ENOMEM. */
int response_fields_read(const json_t *root, struct response_fields *out, const char **param,
                         struct err *e);
void response_fields_free(struct response_fields *f);
/* Leaves of the JSON object that stands in `out` from `from` on what is at these paths, each under
 * its path; what is not there is left out. Without paths nothing changes. `failed`: no memory. */
void response_fields_pick(const struct response_fields *f, struct buffer *out, size_t from);
/* Whether a member is among them as a whole; all are where there are no paths. */
bool response_fields_have(const struct response_fields *f, const char *member);

#endif
