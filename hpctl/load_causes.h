/* Why requests of a load were not answered: counted by kind, with what the first of its kind said.
 */
#ifndef HP_HPCTL_LOAD_CAUSES_H
#define HP_HPCTL_LOAD_CAUSES_H

#include <stddef.h>

enum { LOAD_MAX_CAUSES = 24 };
struct load_cause {
    char kind[48];  /* "429 busy", "connection" */
    char text[160]; /* what the first of its kind said */
};

/* The row of this kind, made where it lacks; when the list is full, its last row stands for all
 * others. */
int load_cause_of(struct load_cause *causes, int *n, const char *kind, const char *text);

/* As many connections as this process may have open, its limit of files raised to what it may be.
 */
size_t load_connections_most(void);

#endif
