/* What `hpctl local up` is asked for. */
#ifndef HP_HPCTL_LOCAL_OPTIONS_H
#define HP_HPCTL_LOCAL_OPTIONS_H

#include "hpctl/command.h"
#include "hpctl/local_cluster.h"

/* Fills a cluster that is all zero: names, folder, ports, agents and their memory; `cores` is what
 * was asked for each agent (0: an equal part). */
int local_read_options(const struct invocation *in, struct local_cluster *c, uint64_t *cores,
                       struct err *e);
/* Where the state of a cluster of this name lies unless one says. HP_EUSAGE: nothing says where the
 * user keeps such things. */
int local_default_dir(const char *name, char *out, size_t size, struct err *e);
/* HP_EEXIST where a cluster of that name runs. */
int local_refuse_running(const struct local_cluster *c, struct err *e);
/* Deals the cores of this box out, `each` to every agent; shares them where there are too few.
 * HP_EUSAGE: fewer than an agent has devices. */
int local_deal_cores(struct local_cluster *c, uint64_t each, struct err *e);

#endif
