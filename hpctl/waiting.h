/* What takes long and tells nothing of itself meanwhile: from its second second on a thread of its
 * own shows how long it has been going on, as progress is shown (progress.h): in place on a
 * terminal, as one line elsewhere. */
#ifndef HP_HPCTL_WAITING_H
#define HP_HPCTL_WAITING_H

#include <stdbool.h>

struct waiting;

/* `what`, up to a colon, is copied. `limit_s`: when it ends at the latest, as a bar; 0: nobody
 * knows. `quiet`: nothing is shown. NULL, which waiting_end takes, where there is nothing to show
 * or no thread for it. */
struct waiting *waiting_begin(const char *what, double limit_s, bool quiet);
/* Before anything else is written: what stands on the terminal is taken away. */
void waiting_end(struct waiting **w);

#endif
