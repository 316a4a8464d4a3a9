/* How many files and connections this process may have open at once. */
#ifndef HP_COMMON_DESCRIPTORS_H
#define HP_COMMON_DESCRIPTORS_H

#include "common/status.h"

/* Libraries take descriptors without asking, and some do not bear that there are none: a process
 * that may have fewer than these does not begin. */
enum { DESCRIPTORS_LEAST = 128 };

/* As many as the system lets this process have: the soft limit (1024 on most systems) is there for
 * programs that use select. HP_ELIMIT: fewer than DESCRIPTORS_LEAST. */
int descriptors_raise(struct err *e);

#endif
