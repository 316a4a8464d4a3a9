/* Lines of a conversation. On a terminal they are edited as in a shell, and those of earlier
 * conversations are remembered (libedit); elsewhere they are read as they stand. */
#ifndef HP_HPCTL_LINE_INPUT_H
#define HP_HPCTL_LINE_INPUT_H

#include <stdbool.h>

#include "common/status.h"

struct line_input;

/* `terminal`: standard input is one. Lines are remembered in a file below the user's state folder,
 * where there is such a folder, for their owner's eyes. */
int line_input_open(bool terminal, struct line_input **out, struct err *e);
/* What a person says next, without its end: a line that ends in \ goes on in the next one, and what
 * stands between two """, on lines of their own or not, is one. NULL: the end. Valid until the next
 * call. */
const char *line_input_next(struct line_input *l);
void line_input_close(struct line_input **l);

#endif
