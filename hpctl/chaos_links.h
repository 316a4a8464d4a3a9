/* Tells an agent of a local cluster that its links are to be slow for a while
 * (common/link_fault.h). */
#ifndef HP_HPCTL_CHAOS_LINKS_H
#define HP_HPCTL_CHAOS_LINKS_H

#include <sys/types.h>

#include "common/status.h"

/* What the process sends to other agents leaves `late_s` later for the next `for_s` (INFINITY: at
 * the end of these); 0 and 0: from now on at once. HP_EUNSUPPORTED: it takes no such orders, and
 * none was given; HP_EIO. */
int chaos_links_delay(pid_t pid, double late_s, double for_s, struct err *e);

#endif
