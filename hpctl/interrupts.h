/* Ctrl-C where it ends what was asked for and not the program. One thread hears and forgets. */
#ifndef HP_HPCTL_INTERRUPTS_H
#define HP_HPCTL_INTERRUPTS_H

#include <signal.h>
#include <stdbool.h>

/* From here on SIGINT is remembered and does nothing else, until *before is put back (sigaction).
 * What came earlier is forgotten, unless it was being heard already: a conversation hears from its
 * beginning to its end, so that none is lost between two requests. Nothing that waits to be read or
 * written is disturbed, and a program that is run inherits nothing of it. */
void interrupts_hear(struct sigaction *before);
bool interrupts_heard(void);
void interrupts_forget(void);

#endif
