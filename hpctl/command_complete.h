/* What may be typed next, by the command table: verbs, options, their words, and names of what
 * there is. Shells ask `hpctl completion words`. */
#ifndef HP_HPCTL_COMMAND_COMPLETE_H
#define HP_HPCTL_COMMAND_COMPLETE_H

#include "common/bytes.h"
#include "hpctl/command.h"

/* What names are of. */
enum complete_names {
    COMPLETE_NONE,
    COMPLETE_DEPLOYMENTS,
    COMPLETE_AGENTS,
    COMPLETE_KEYS,
    COMPLETE_CONTEXTS,
    COMPLETE_POOL_MODELS,
    COMPLETE_WEIGHTS,  /* models that agents' stores have */
    COMPLETE_PROFILES, /* models that were measured */
};

/* Appends names, a line each, where they can be had in no time. */
typedef void (*complete_names_fn)(enum complete_names what, struct buffer *out);

/* `words` is what stands behind "hpctl", the last the beginning of a word ("" for a new one).
 * Appends to `out` all that it may become, a line each; COMPLETE_FILES alone is for files. */
#define COMPLETE_FILES ":files"
void command_complete(const struct command *const *tables, const char *const *words, int n,
                      complete_names_fn names, struct buffer *out);

/* The script that makes a shell ask; NULL: there is none for it. */
const char *command_complete_script(const char *shell);

#endif
