/* Verbs that are one question to the coordinator and its answer as a table, a line or a text: each
 * is a row of data. With -o json the answer is printed as it came. */
#ifndef HP_HPCTL_ASK_H
#define HP_HPCTL_ASK_H

#include <jansson.h>

#include "hpctl/command.h"
#include "hpctl/table.h"

struct ask_verb {
    const char *path; /* of the command */
    const char *verb; /* of the coordinator */
    const char *key;  /* under which the command's argument goes; NULL: it takes none */
    /* Puts the command's options into the question; NULL: it has none that matter there. */
    int (*options)(const struct invocation *in, json_t *question, struct err *e);
    /* How the answer is shown, one of three: */
    const struct table_column *columns; /* a list */
    const char *said;                   /* "ARGUMENT said"; for an empty list the line instead */
    int (*print)(const struct invocation *in, const json_t *answer, struct err *e);
};

/* Runs the row of this command; `rows` end with a NULL path and must have it. With WATCH_OPTION it
 * goes on until it fails, or is interrupted: a terminal shows the latest alone. */
int ask_verb_run(const struct ask_verb *rows, const struct invocation *in, struct err *e);

/* Puts a value (taken) into a question; HP_ENOMEM, also for no value. */
int ask_option(json_t *question, const char *key, json_t *value, struct err *e);

/* Every verb that speaks of a cluster has this option. */
#define CONTEXT_OPTION                                                                             \
    {                                                                                              \
        "context", "NAME", "of the cluster (default: the current one)", 0                          \
    }

#endif
