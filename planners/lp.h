/* Linear and mixed-integer programmes, solved by lp_solve 5.5: build one row and column at a time,
 * write it as a .lp file, solve it within a time limit.
 *
 * Columns and rows are named by the index that adding them returned. A programme has one owner and
 * is used by one thread at a time; several programmes may be solved by several threads. Nothing
 * here opens a file: the .lp text goes to the caller's function, and time is read only through the
 * env that the caller hands in.
 *
 * Which outcome to expect: a mixed-integer programme that ran out of time with a plan in hand is
 * LP_FEASIBLE, with the best bound on the objective that the search proved in `bound`. */
#ifndef HP_PLANNERS_LP_H
#define HP_PLANNERS_LP_H

#include <stdbool.h>
#include <stddef.h>

#include "common/env.h"
#include "common/status.h"

struct lp_program;

enum lp_sense { LP_AT_MOST, LP_AT_LEAST, LP_EQUAL };

enum lp_outcome {
    LP_OPTIMAL,    /* values are the optimum (within the gap that was asked for) */
    LP_FEASIBLE,   /* time ran out; values are the best found */
    LP_INFEASIBLE, /* proven: no values satisfy the rows */
    LP_UNBOUNDED,
    LP_NOTHING, /* time ran out, or the numbers defeated the solver, before any values were found */
};

struct lp_result {
    enum lp_outcome outcome;
    double objective;
    double bound;   /* of a programme with integers: the relaxation's objective (no values can be
                       better); else = objective */
    double seconds; /* spent, by the env's clock */
    double *values; /* [columns]; owned by the programme, until it is solved again or destroyed;
                       NULL without values */
    double *duals;  /* [rows]: change of the objective per unit of the right side; only without
                       integer columns, else NULL */
};

struct lp_limits {
    double seconds; /* 0: none */
    double
        relative_gap; /* stop when the best found is this near to its bound; 0: solve to the end */
    /* Values known to be possible whose objective must be beaten or met: the search leaves out
     * branches that are worse. */
    bool has_known;
    double known_objective;
};

/* HP_ENOMEM, or 0. `name` appears in the .lp text. */
int lp_program_create(const char *name, bool maximise, struct lp_program **out, struct err *e);
void lp_program_destroy(struct lp_program **p);

/* Adds a variable and gives its index. `upper` may be INFINITY, `lower` -INFINITY. A name may be
 * NULL ("C1", "C2", ...); it is letters, digits and _[]., at most 24 characters. HP_ENOMEM. */
int lp_column_add(struct lp_program *p, const char *name, double objective, double lower,
                  double upper, bool integer, struct err *e);
/* Adds a row without terms and gives its index. HP_ENOMEM. */
int lp_row_add(struct lp_program *p, const char *name, enum lp_sense sense, double right,
               struct err *e);
/* Adds coefficient * column to a row; several terms of one row and column add up. HP_ENOMEM, or 0.
 */
int lp_term_add(struct lp_program *p, int row, int column, double coefficient, struct err *e);

/* How many were added. */
int lp_program_columns(const struct lp_program *p);
int lp_program_rows(const struct lp_program *p);

/* Writes the programme in lp_solve's LP format, piece by piece. HP_EIO when `put` says false,
 * HP_ENOMEM. */
typedef bool (*lp_put_fn)(void *ctx, const char *text, size_t size);
int lp_program_write(const struct lp_program *p, lp_put_fn put, void *ctx, struct err *e);

/* Solves. Every outcome above is a success (0); HP_ENOMEM otherwise. The time limit is kept to
 * about 10 ms. */
int lp_program_solve(struct lp_program *p, const struct lp_limits *limits, const struct env *env,
                     struct lp_result *out, struct err *e);

#endif
