/* The state of one run of a template: its arena, its limits, its scopes and where its text goes.
 * Everything that a run makes lives in the arena and ends with it. A run belongs to one thread.
 *
 * Functions of a run give 0, or a negative code after run_fail has written "line N: reason". */
#ifndef HP_MODEL_TEMPLATE_RUN_H
#define HP_MODEL_TEMPLATE_RUN_H

#include "common/arena.h"
#include "common/status.h"
#include "model/cpu_limit.h"
#include "model/template/value.h"

enum { RUN_MAX_DEPTH = 600, RUN_TIME_MS = 1000, RUN_VALUES_MAX_BYTES = 256 << 20 };

struct binding {
    struct text name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct scope *parent;
    struct binding *bindings;
    bool kept; /* a macro was made within it, and may look it up later */
};

struct node;

struct macro {
    const struct node *node;
    struct scope *scope; /* where it was made */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct run {
    struct arena arena; /* every value of this run */
    size_t steps, max_steps, look_at, written, max_output;
    struct cpu_limit time; /* looked at whenever steps reach look_at */
    int depth, line, loop_depth;
    struct scope *scope;
    struct scope *free_scopes;     /* by parent: memory of scopes that ended, for the next */
    struct binding *free_bindings; /* by next */
    struct buffer *out;
    int64_t now_s;
    enum flow flow;
    struct err *e;
};

/* Writes "line N: ..." and gives `code`. */
int run_fail(struct run *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Count work before it is done; HP_ELIMIT when there has been too much, in steps or in time.
 * Copying text counts a step for every 64 bytes, going through its characters one for every 8. */
int run_tick(struct run *r, size_t steps);
int run_tick_bytes(struct run *r, size_t bytes);
int run_tick_text(struct run *r, size_t bytes);

/* Zeroed memory of the run; NULL after run_fail. */
void *run_alloc(struct run *r, size_t count, size_t size);

/* Adds to what the template writes. */
int run_write(struct run *r, const char *data, size_t size);

/* A new scope within `parent`; *saved is the one to go back to. */
int run_scope_push(struct run *r, struct scope *parent, struct scope **saved);
/* Ends the scope that was pushed and goes back to `saved`. */
void run_scope_pop(struct run *r, struct scope *saved);
/* The scopes around the place outlive their end: a macro that is made here looks names up in them
 * when it is called. */
void run_scopes_keep(struct run *r);

/* Gives a name of the innermost scope a value. */
int run_bind(struct run *r, struct text name, struct value v);

#endif
