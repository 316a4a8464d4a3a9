/* One hpctl at a time changes what local clusters are made of: it reads which processes there are,
 * starts or ends some, and writes that down. Whoever came between would start what runs already, or
 * write a process out of the file, which nobody could find and end any more. */
#ifndef HP_HPCTL_LOCAL_LOCK_H
#define HP_HPCTL_LOCAL_LOCK_H

#include <signal.h>

#include "common/status.h"

/* Waits until no other hpctl has it; of all local clusters of this user's configuration.
 * HP_EBUSY: for a minute. HP_ECANCELED: local_interrupted() meanwhile. Errors as of fs.h. */
int local_lock_take(int *out, struct err *e);
void local_lock_drop(int *lock);

/* From here on Ctrl-C, SIGTERM and the terminal's end wait for local_interrupt_allow(), so that no
 * process is started that is not written down; of the calling thread. */
void local_interrupt_delay(sigset_t *before);
void local_interrupt_allow(const sigset_t *before);

#endif
