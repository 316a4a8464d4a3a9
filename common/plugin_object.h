/* Shared objects of our own that a program loads where they are asked for, so that it does not
 * carry what these stand on. */
#ifndef HP_COMMON_PLUGIN_OBJECT_H
#define HP_COMMON_PLUGIN_OBJECT_H

#include <stddef.h>

/* Loads `file` from where the environment's `variable` says, and from nowhere else then; without it
 * from beside the program, from ../lib/hodgepodge, or from where the linker looks. It stays. NULL:
 * `said` has why. One thread at a time. */
void *plugin_object_open(const char *file, const char *variable, char *said, size_t size);

#endif
