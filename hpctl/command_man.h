/* Manual pages of hpctl, made from the command table: hpctl(1), and one page a verb, hpctl-VERB(1).
 */
#ifndef HP_HPCTL_COMMAND_MAN_H
#define HP_HPCTL_COMMAND_MAN_H

#include "common/bytes.h"
#include "hpctl/command.h"

enum { COMMAND_MAN_NAME = 80 };

/* "hpctl-node-token-create" for "node token create". */
void command_man_name(const char *path, char out[COMMAND_MAN_NAME]);

/* The page of a verb, and that of the program. */
void command_man_verb(const struct command *c, struct buffer *out);
void command_man_overview(const struct command *const *tables, struct buffer *out);

/* Writes all of them into a folder, NAME.1 each. */
int command_man_write(const struct command *const *tables, const char *folder, struct err *e);

#endif
