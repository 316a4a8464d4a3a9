#include "planners/lp.h"

#include <assert.h>
#include <lp_lib.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

enum { NAME_BYTES = 25 };

struct term {
    int row, column;
    double coefficient;
};

struct column {
    char name[NAME_BYTES];
    double objective, lower, upper;
    bool integer;
};

struct lp_row {
    char name[NAME_BYTES];
    enum lp_sense sense;
    double right;
};

struct lp_program {
    char name[NAME_BYTES];
    bool maximise;
    struct column *columns;
    struct lp_row *rows;
    struct term *terms;
    int n_columns, n_rows, n_terms;
    int room_columns, room_rows, room_terms;
    double *values, *duals; /* of the last solve */
};

static void name_copy(char *to, const char *from)
{
    size_t n = from ? strnlen(from, NAME_BYTES - 1) : 0;
    if (n)
        memcpy(to, from, n);
    to[n] = '\0';
}

int lp_program_create(const char *name, bool maximise, struct lp_program **out, struct err *e)
{
    struct lp_program *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(e, "a linear programme");
    name_copy(p->name, name);
    p->maximise = maximise;
    *out = p;
    return 0;
}

void lp_program_destroy(struct lp_program **p)
{
    if (!*p)
        return;
    free((*p)->columns);
    free((*p)->rows);
    free((*p)->terms);
    free((*p)->values);
    free((*p)->duals);
    free(*p);
    *p = NULL;
}

int lp_column_add(struct lp_program *p, const char *name, double objective, double lower,
                  double upper, bool integer, struct err *e)
{
    if (!vector_reserve(p->columns, p->room_columns, p->n_columns + 1))
        return err_no_memory(e, "a linear programme");
    struct column *c = &p->columns[p->n_columns];
    *c =
        (struct column){.objective = objective, .lower = lower, .upper = upper, .integer = integer};
    name_copy(c->name, name);
    return p->n_columns++;
}

int lp_row_add(struct lp_program *p, const char *name, enum lp_sense sense, double right,
               struct err *e)
{
    if (!vector_reserve(p->rows, p->room_rows, p->n_rows + 1))
        return err_no_memory(e, "a linear programme");
    struct lp_row *r = &p->rows[p->n_rows];
    *r = (struct lp_row){.sense = sense, .right = right};
    name_copy(r->name, name);
    return p->n_rows++;
}

int lp_term_add(struct lp_program *p, int row, int column, double coefficient, struct err *e)
{
    assert(row >= 0 && row < p->n_rows && column >= 0 && column < p->n_columns);
    if (!vector_reserve(p->terms, p->room_terms, p->n_terms + 1))
        return err_no_memory(e, "a linear programme");
    p->terms[p->n_terms++] = (struct term){row, column, coefficient};
    return 0;
}

int lp_program_columns(const struct lp_program *p)
{
    return p->n_columns;
}
int lp_program_rows(const struct lp_program *p)
{
    return p->n_rows;
}

/* ---- handing the programme to lp_solve ---- */

static int term_order(const void *a, const void *b)
{
    const struct term *x = a, *y = b;
    if (x->column != y->column)
        return x->column < y->column ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Sorts the terms by column and adds up those of one row and column. */
static void terms_tidy(struct lp_program *p)
{
    qsort(p->terms, (size_t)p->n_terms, sizeof *p->terms, term_order);
    int n = 0;
    for (int i = 0; i < p->n_terms; i++) {
        if (n > 0 && p->terms[n - 1].row == p->terms[i].row &&
            p->terms[n - 1].column == p->terms[i].column)
            p->terms[n - 1].coefficient += p->terms[i].coefficient;
        else
            p->terms[n++] = p->terms[i];
    }
    p->n_terms = n;
}

static bool fill_rows(const struct lp_program *p, lprec *lp)
{
    static const int senses[] = {
        [LP_AT_MOST] = ROWTYPE_LE, [LP_AT_LEAST] = ROWTYPE_GE, [LP_EQUAL] = ROWTYPE_EQ};
    for (int i = 0; i < p->n_rows; i++) {
        if (!set_constr_type(lp, i + 1, senses[p->rows[i].sense]) ||
            !set_rh(lp, i + 1, p->rows[i].right))
            return false;
        if (p->rows[i].name[0] && !set_row_name(lp, i + 1, (char *)(uintptr_t)p->rows[i].name))
            return false;
    }
    return true;
}

static bool fill_column(const struct lp_program *p, lprec *lp, int c, int *first_term,
                        double *values, int *rows)
{
    const struct column *column = &p->columns[c];
    int n = 0, t = *first_term;
    values[n] = column->objective;
    rows[n++] = 0;
    for (; t < p->n_terms && p->terms[t].column == c; t++) {
        values[n] = p->terms[t].coefficient;
        rows[n++] = p->terms[t].row + 1;
    }
    *first_term = t;
    if (!add_columnex(lp, n, values, rows))
        return false;
    if (column->name[0] && !set_col_name(lp, c + 1, (char *)(uintptr_t)column->name))
        return false;
    double upper = isinf(column->upper) ? get_infinite(lp) : column->upper;
    double lower = isinf(column->lower) ? -get_infinite(lp) : column->lower;
    return set_bounds(lp, c + 1, lower, upper) && set_int(lp, c + 1, column->integer);
}

/* lp_solve's own record of the programme, or NULL when memory ran out. */
static lprec *record_make(struct lp_program *p)
{
    terms_tidy(p);
    lprec *lp = make_lp(p->n_rows, 0);
    double *values = malloc((size_t)(p->n_rows + 1) * sizeof *values);
    int *rows = malloc((size_t)(p->n_rows + 1) * sizeof *rows);
    bool good = lp && values && rows;
    if (lp) {
        set_verbose(lp, NEUTRAL);
        if (p->name[0])
            set_lp_name(lp, p->name);
        if (p->maximise)
            set_maxim(lp);
        else
            set_minim(lp);
    }
    for (int c = 0, t = 0; good && c < p->n_columns; c++)
        good = fill_column(p, lp, c, &t, values, rows);
    good = good && fill_rows(p, lp);
    free(values);
    free(rows);
    if (!good && lp) {
        delete_lp(lp);
        lp = NULL;
    }
    return lp;
}

struct putter {
    lp_put_fn put;
    void *ctx;
    bool failed;
};

static int __WINAPI put_piece(void *handle, char *text)
{
    struct putter *w = handle;
    if (!w->failed && !w->put(w->ctx, text, strlen(text)))
        w->failed = true;
    return !w->failed;
}

int lp_program_write(const struct lp_program *p, lp_put_fn put, void *ctx, struct err *e)
{
    /* Tidying reorders the terms, which changes nothing that the caller can see. */
    lprec *lp = record_make((struct lp_program *)(uintptr_t)p);
    if (!lp)
        return err_no_memory(e, "a linear programme");
    struct putter w = {put, ctx, false};
    bool good = write_lpex(lp, &w, put_piece);
    delete_lp(lp);
    return good && !w.failed ? 0 : err_set(e, HP_EIO, "the .lp file could not be written");
}

/* ---- solving ---- */

struct watch {
    const struct env *env;
    uint64_t end_ns; /* UINT64_MAX: none */
};

static int __WINAPI time_is_up(lprec *lp, void *handle)
{
    (void)lp;
    const struct watch *w = handle;
    return w->end_ns != UINT64_MAX && env_now_ns(w->env) >= w->end_ns;
}

static bool has_integers(const struct lp_program *p)
{
    for (int c = 0; c < p->n_columns; c++)
        if (p->columns[c].integer)
            return true;
    return false;
}

static void record_configure(const struct lp_program *p, lprec *lp, const struct lp_limits *limits,
                             struct watch *watch)
{
    put_abortfunc(lp, time_is_up, watch);
    set_scaling(lp, SCALE_GEOMETRIC | SCALE_EQUILIBRATE | SCALE_INTEGERS | SCALE_DYNUPDATE);
    set_mip_gap(lp, FALSE, limits->relative_gap > 0 ? limits->relative_gap : 1e-9);
    set_mip_gap(lp, TRUE, limits->relative_gap > 0 ? 0 : 1e-11);
    set_bb_floorfirst(lp, BRANCH_AUTOMATIC);
    set_bb_rule(lp, NODE_PSEUDOCOSTSELECT | NODE_GREEDYMODE | NODE_DYNAMICMODE);
    if (limits->has_known) {
        double slack = 1e-9 * (1 + fabs(limits->known_objective));
        set_obj_bound(lp, p->maximise ? limits->known_objective - slack
                                      : limits->known_objective + slack);
    }
}

static enum lp_outcome outcome_of(int code)
{
    switch (code) {
    case OPTIMAL:
    case PRESOLVED: return LP_OPTIMAL;
    case SUBOPTIMAL:
    case FEASFOUND: return LP_FEASIBLE;
    case INFEASIBLE:
    case NOFEASFOUND: return LP_INFEASIBLE;
    case UNBOUNDED: return LP_UNBOUNDED;
    default: return LP_NOTHING;
    }
}

/* The objective without the demand for integers; NaN when it could not be had in time. */
static double program_relaxation(struct lp_program *p, const struct lp_limits *limits,
                                 struct watch *watch)
{
    lprec *lp = record_make(p);
    if (!lp)
        return NAN;
    struct lp_limits plain = {.seconds = limits->seconds};
    for (int c = 1; c <= p->n_columns; c++)
        set_int(lp, c, FALSE);
    record_configure(p, lp, &plain, watch);
    double bound = solve(lp) == OPTIMAL ? get_objective(lp) : NAN;
    delete_lp(lp);
    return bound;
}

static int take_solution(struct lp_program *p, lprec *lp, bool integers, struct lp_result *out,
                         struct err *e)
{
    free(p->values);
    free(p->duals);
    p->duals = NULL;
    p->values = malloc((size_t)(p->n_columns + 1) * sizeof *p->values);
    if (!p->values)
        return err_no_memory(e, "a linear programme");
    get_variables(lp, p->values);
    out->values = p->values;
    out->objective = get_objective(lp);
    if (integers)
        return 0;
    double *all = malloc((size_t)(p->n_rows + p->n_columns + 1) * sizeof *all);
    p->duals = malloc((size_t)(p->n_rows + 1) * sizeof *p->duals);
    if (!all || !p->duals) {
        free(all);
        return err_no_memory(e, "a linear programme");
    }
    if (get_dual_solution(lp, all)) {
        memcpy(p->duals, all + 1, (size_t)p->n_rows * sizeof *all);
        out->duals = p->duals;
    }
    free(all);
    return 0;
}

int lp_program_solve(struct lp_program *p, const struct lp_limits *limits, const struct env *env,
                     struct lp_result *out, struct err *e)
{
    uint64_t started = env_now_ns(env);
    struct watch watch = {env, limits->seconds > 0 ? started + (uint64_t)(limits->seconds * 1e9)
                                                   : UINT64_MAX};
    bool integers = has_integers(p);
    *out = (struct lp_result){.objective = NAN, .bound = NAN};
    double bound = integers ? program_relaxation(p, limits, &watch) : NAN;
    lprec *lp = record_make(p);
    if (!lp)
        return err_no_memory(e, "a linear programme");
    record_configure(p, lp, limits, &watch);
    int code = solve(lp);
    out->outcome = outcome_of(code);
    /* An aborted search may still hold a plan: lp_solve says so by the number of solutions it
     * improved to. */
    if (out->outcome == LP_NOTHING && integers && (code == USERABORT || code == TIMEOUT) &&
        get_solutioncount(lp) > 0)
        out->outcome = LP_FEASIBLE;
    int rc = 0;
    if (out->outcome == LP_OPTIMAL || out->outcome == LP_FEASIBLE) {
        rc = take_solution(p, lp, integers, out, e);
        out->bound =
            out->outcome == LP_OPTIMAL && limits->relative_gap <= 0 ? out->objective : bound;
    } else {
        out->bound = bound;
    }
    delete_lp(lp);
    out->seconds = (double)(env_now_ns(env) - started) * 1e-9;
    return rc;
}
