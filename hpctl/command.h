/* The command line of hpctl as one table: every verb is a row, and parsing, --help, completion and
 * the manual come from the rows.
 *
 * A file of verbs (`plan_pools_verbs.c`) exports one NULL-terminated table; verbs.c lists the
 * tables. One without verbs, whose last row has a summary, is the heading of those behind it. */
#ifndef HP_HPCTL_COMMAND_H
#define HP_HPCTL_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct invocation;

struct command_option {
    const char *name;  /* "cluster": --cluster */
    const char *value; /* "C.json": what follows it in the help; NULL for a flag */
    const char *help;
    char letter; /* 'o': also -o; 0: none */
};

struct command {
    const char *path;      /* "plan pools": one to three words */
    const char *arguments; /* "MODEL [PROMPT]": for the usage line */
    int min_arguments, max_arguments;
    const char *summary;                  /* one line */
    const char *details;                  /* more of it, may be NULL */
    const char *examples;                 /* whole command lines, one a line */
    const struct command_option *options; /* ends with a zero row; NULL: none */
    int (*run)(struct invocation *in, struct err *e);
    bool makes_file; /* -o FILE is the file that the verb makes; else its JSON goes there */
};

enum { COMMAND_MAX_ARGUMENTS = 64, COMMAND_MAX_OPTIONS = 40, COMMAND_MAX_GIVEN = 64 };

/* One command line, parsed. Strings are argv's. */
struct invocation {
    const struct command *command;
    const struct command *const *tables; /* that it was found in */
    const char *arguments[COMMAND_MAX_ARGUMENTS];
    int n_arguments;
    const char *values[COMMAND_MAX_OPTIONS]; /* by row of command->options; flags hold ""; of one
                                                that was given more than once the last */
    struct {
        int option; /* row of command->options */
        const char *value;
    } given[COMMAND_MAX_GIVEN]; /* in the order of the command line */
    int n_given;
    bool json;          /* -o json or -o -: JSON on standard output */
    bool told;          /* the verb's JSON is printed: an error after it is not added */
    const char *output; /* -o FILE otherwise; NULL when not given */
};

/* Every verb has -o without declaring it: `-o json` and `-o -` set `json`, any other value is
 * `output`; a verb that makes no file of its own gets `json` then too, and its JSON goes to that
 * file. */

/* The value of an option of this verb, or NULL when it was not given. Naming an option that the
 * verb does not declare is our bug. */
const char *invocation_option(const struct invocation *in, const char *name);
static inline const char *invocation_option_or(const struct invocation *in, const char *name,
                                               const char *fallback)
{
    const char *v = invocation_option(in, name);
    return v ? v : fallback;
}
/* All values of an option that may be given more than once, in their order: at most `room` to
 * `out`. Returns how many there are, which may be more. */
int invocation_values(const struct invocation *in, const char *name, const char **out, int room);
bool invocation_flag(const struct invocation *in, const char *name);
/* The value of an option that must be there: HP_EUSAGE when not. */
int invocation_required(const struct invocation *in, const char *name, const char **out,
                        struct err *e);
/* Numbers, checked; `fallback` where the option is missing. HP_EUSAGE names the option and what it
 * got. Sizes are above 0 and written as common/units.h says: 4GiB, 500MB, 12e9. */
int invocation_u64(const struct invocation *in, const char *name, uint64_t fallback, uint64_t *out,
                   struct err *e);
/* From `least` to `most`; the fallback may lie outside. */
int invocation_range(const struct invocation *in, const char *name, uint64_t fallback,
                     uint64_t least, uint64_t most, uint64_t *out, struct err *e);
int invocation_number(const struct invocation *in, const char *name, double fallback, double *out,
                      struct err *e);
/* Above 0, and at most `most` (INFINITY: any); the fallback may lie outside. */
int invocation_above_zero(const struct invocation *in, const char *name, double fallback,
                          double most, double *out, struct err *e);
/* Above 0, out in seconds: "0.1s", "100ms"; a number alone could mean either and is refused. */
int invocation_duration(const struct invocation *in, const char *name, double fallback_s,
                        double *out_s, struct err *e);
int invocation_bytes(const struct invocation *in, const char *name, uint64_t fallback,
                     uint64_t *out, struct err *e);
/* One of the words in `choices` (NULL-terminated): its index. */
int invocation_choice(const struct invocation *in, const char *name, const char *const *choices,
                      int fallback, int *out, struct err *e);

/* "A,B" as a list of texts; empty where the option is missing. NULL: no memory. */
json_t *invocation_names(const struct invocation *in, const char *name);

/* Prints a JSON value to standard output (or to in->output when that is set) and releases it. */
int invocation_print_json(const struct invocation *in, json_t *value, struct err *e);

/* Runs argv against the tables (NULL-terminated list of tables) and gives the exit code. Errors are
 * printed: as text on standard error, with -o json as {"error": {"code", "message", "hint"}} on
 * standard output too. */
int command_main(int argc, char **argv, const struct command *const *tables);

#endif
