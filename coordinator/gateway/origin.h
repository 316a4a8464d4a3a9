/* Whose page is asking? On loopback every program of the box reaches the API, browsers among them,
 * and a browser runs what strangers wrote. A page of another site says so in its Origin; one whose
 * name was made to point here (DNS rebinding) has that name in its Host. Pure functions over text.
 */
#ifndef HP_COORDINATOR_GATEWAY_ORIGIN_H
#define HP_COORDINATOR_GATEWAY_ORIGIN_H

#include <stdbool.h>

/* Names beside those of loopback that are this server's: `--http-host`. */
struct origin_names {
    const char *const *names;
    int n;
};

/* A Host header ("localhost:8080", "[::1]:8080", "api.example"): a name of loopback, or one of
 * those given. Ports do not matter.
 */
bool host_is_own(const char *value, const struct origin_names *names);
/* An Origin header ("http://localhost:3000"): the same by its host; "null" is nobody's. */
bool origin_is_own(const char *value, const struct origin_names *names);

/* Whether a page of that origin is one of those given, as a whole: scheme, host and port. */
bool origin_is_listed(const char *value, const struct origin_names *origins);
/* Whether it can stand in such a list: "https://app.example", "http://10.0.0.5:3000". */
bool origin_is_whole(const char *value);

#endif
