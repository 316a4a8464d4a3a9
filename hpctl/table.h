/* What a person reads: tables with aligned columns, progress bars, sizes and times in words. */
#ifndef HP_HPCTL_TABLE_H
#define HP_HPCTL_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TABLE_MAX_COLUMNS = 16 };

struct table;
/* Columns: "NAME", or ">NAME" for numbers that stand right. Ends with NULL. */
struct table *table_create(const char *const *columns);
/* One row of as many texts as there are columns; copied. */
void table_row(struct table *t, const char *const *cells);
/* Prints to standard output and frees. With no rows, `when_empty` alone. */
void table_print(struct table **t, const char *when_empty);

/* Frees without printing. */
void table_discard(struct table **t);

/* "1.5 GB", "12 kB" into one of a few buffers of its own, good until eight calls later.
 * Single-threaded. */
const char *text_bytes(double bytes);
/* "12 ms", "3.4 s", "5 min". */
const char *text_seconds(double seconds);
/* "2026-01-31 12:00", local time, of Unix seconds. */
const char *text_date(double unix_s);
const char *text_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A member of an object as text: strings as they are, numbers short, "-" where it is missing. */
const char *text_member(const json_t *o, const char *key);
double number_member(const json_t *o, const char *key);
bool bool_member(const json_t *o, const char *key);

/* A bar on standard error, redrawn in place on a terminal, a line now and then elsewhere. Nothing
 * at all with `quiet`. */
struct progress {
    bool quiet, terminal, open;
    char last[160];
    int last_percent;
};
void progress_init(struct progress *p, bool quiet);
/* `done` of `total` (0: unknown). */
void progress_show(struct progress *p, const char *what, double done, double total);
void progress_end(struct progress *p);

#endif
