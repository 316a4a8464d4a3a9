/* Files of what is spilled: their names, their heads, and their bytes, checked. */
#ifndef HP_AGENT_SPILL_FILES_H
#define HP_AGENT_SPILL_FILES_H

#include "agent/spill_entry.h"
#include "common/env.h"

enum { SPILL_PATH_ROOM = 1300 };

void spill_entry_path(const char *folder, const struct spill_entry *x, char out[SPILL_PATH_ROOM]);

/* An entry of a file in the folder, with no parent yet, wanted when the file was written. NULL:
 * HP_EPARSE where it is none of this program's, HP_ENOENT where there is no file of that name,
 * HP_ENOMEM, HP_EIO and its likes where it cannot be read. */
struct spill_entry *spill_entry_of_file(const char *folder, const char *name, struct err *e);
/* The bytes of an entry's file, in *took_s. NULL: HP_EPARSE where they are not what was written,
 * HP_ENOMEM, HP_EIO and its likes. */
struct spill_image *spill_entry_read(const char *folder, const struct spill_entry *x,
                                     atomic_ullong *counted, double *took_s, struct err *e);

#endif
