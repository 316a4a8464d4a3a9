/* A profile as a test writes it. */
#ifndef HP_TESTS_PROFILE_FIXTURE_H
#define HP_TESTS_PROFILE_FIXTURE_H

#include <string.h>

#include "common/json.h"
#include "common/profile.h"
#include "tests/test.h"

/* What profile_from_json() says of it; a text that is no JSON fails the test. */
static inline int profile_read(const char *text, struct profile *out, struct err *e)
{
    json_t *root;
    struct json_at at;
    if (json_parse_at("p.json", text, strlen(text), &root, &at, e) < 0)
        fail_msg("%s", e->text);
    int rc = profile_from_json(&at, out, e);
    json_decref(root);
    return rc;
}

#endif
