/* Shared objects of our own that a program loads where they are asked for, so that it does not
 * carry what these stand on. */
#ifndef HP_COMMON_PLUGIN_OBJECT_H
#define HP_COMMON_PLUGIN_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

/* Loads `file` from where the environment's `variable` says, and from nowhere else then; without it
 * from beside the program, from ../lib/hodgepodge, or from where the linker looks. It stays. NULL:
 * `said` has why. One thread at a time. */
void *plugin_object_open(const char *file, const char *variable, char *said, size_t size);
/* Whether there is something to load, if only a file that is none: the variable says where, or it
 * lies beside the program or in ../lib/hodgepodge. */
bool plugin_object_is_there(const char *file, const char *variable);

#endif
