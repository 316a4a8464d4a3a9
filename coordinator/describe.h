/* What people see of members and deployments. */
#ifndef HP_COORDINATOR_DESCRIBE_H
#define HP_COORDINATOR_DESCRIBE_H

#include <jansson.h>
#include <stdbool.h>

struct coord;
struct deployment;
struct member;

/* `whole`: with models and node. */
json_t *describe_member(const struct coord *c, const struct member *m, bool whole);
json_t *describe_deployment(const struct deployment *d, bool with_plan);
json_t *describe_stages(const struct deployment *d);

#endif
