/* Tells an agent of a local cluster that its links are to be bad for a while
 * (common/link_fault.h). */
#ifndef HP_HPCTL_CHAOS_LINKS_H
#define HP_HPCTL_CHAOS_LINKS_H

#include <sys/types.h>

#include "common/status.h"

/* For the next `for_s` what the process sends to other agents leaves `late_s` later (INFINITY: at
 * the end of these), and so many of its frames are lost (a share) and sent again; all 0: from now
 * on nothing is disturbed. */
struct chaos_links {
    double late_s, lost, for_s;
};
/* HP_EUNSUPPORTED: it takes no such orders, and none was given; HP_EIO. */
int chaos_links_disturb(pid_t pid, const struct chaos_links *how, struct err *e);

#endif
