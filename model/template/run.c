#include "model/template/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int run_fail(struct run *r, int code, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(r->e, code, "line %d: %s", r->line, text);
}

int run_tick(struct run *r, size_t steps)
{
    enum { LOOK_EVERY = 64 };
    r->steps += steps;
    if (r->steps > r->max_steps)
        return run_fail(r, HP_ELIMIT, "the template takes more than %zu steps", r->max_steps);
    if (r->steps < r->look_at)
        return 0;
    r->look_at = r->steps + LOOK_EVERY;
    return cpu_limit_passed(&r->time)
               ? run_fail(r, HP_ELIMIT, "the template takes more than %d ms", RUN_TIME_MS)
               : 0;
}

int run_tick_bytes(struct run *r, size_t bytes)
{
    return run_tick(r, bytes / 64);
}

int run_tick_text(struct run *r, size_t bytes)
{
    return run_tick(r, bytes / 8);
}

void *run_alloc(struct run *r, size_t count, size_t size)
{
    void *p = arena_alloc(&r->arena, count, size);
    if (!p)
        run_fail(r, HP_ELIMIT, "the template's values take more than %d MiB",
                 RUN_VALUES_MAX_BYTES >> 20);
    return p;
}

int run_write(struct run *r, const char *data, size_t size)
{
    if (size > r->max_output - r->written)
        return run_fail(r, HP_ELIMIT, "the template writes more than %zu bytes", r->max_output);
    r->written += size;
    buffer_append(r->out, data, size);
    return r->out->failed ? run_fail(r, HP_ENOMEM, "out of memory") : run_tick_bytes(r, size);
}

int run_scope_push(struct run *r, struct scope *parent, struct scope **saved)
{
    struct scope *s = r->free_scopes;
    if (s)
        r->free_scopes = s->parent;
    else if (!(s = run_alloc(r, 1, sizeof *s)))
        return HP_ELIMIT;
    *s = (struct scope){.parent = parent};
    *saved = r->scope;
    r->scope = s;
    return 0;
}

void run_scope_pop(struct run *r, struct scope *saved)
{
    struct scope *s = r->scope;
    r->scope = saved;
    if (s->kept)
        return;
    while (s->bindings) {
        struct binding *b = s->bindings;
        s->bindings = b->next;
        b->next = r->free_bindings;
        r->free_bindings = b;
    }
    s->parent = r->free_scopes;
    r->free_scopes = s;
}

void run_scopes_keep(struct run *r)
{
    for (struct scope *s = r->scope; s && !s->kept; s = s->parent)
        s->kept = true;
}

int run_bind(struct run *r, struct text name, struct value v)
{
    for (struct binding *b = r->scope->bindings; b; b = b->next) {
        if (b->name.size == name.size && memcmp(b->name.data, name.data, name.size) == 0) {
            b->value = v;
            return run_tick(r, 1);
        }
    }
    struct binding *b = r->free_bindings;
    if (b)
        r->free_bindings = b->next;
    else if (!(b = run_alloc(r, 1, sizeof *b)))
        return HP_ELIMIT;
    *b = (struct binding){name, v, r->scope->bindings};
    r->scope->bindings = b;
    return run_tick(r, 1);
}
