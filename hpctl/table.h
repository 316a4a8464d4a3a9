/* Lists as people read them: columns that know their header, where a row has its value, and how
 * that is written. A table owns the texts of its cells. */
#ifndef HP_HPCTL_TABLE_H
#define HP_HPCTL_TABLE_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"

/* Writes what a value says as one cell. */
typedef void (*cell_fn)(struct buffer *cell, const json_t *value);

struct table_column {
    const char *header; /* ">HELD": its cells stand right, as numbers do; "~WHAT": its texts may
                           be broken over lines (table_break) */
    const char *key;    /* the row's member; NULL: `write` gets the whole row */
    cell_fn write;      /* NULL: strings as they are, else as shown_value (shown.h) */
};

/* Sizes and rates as people read them ("1.2 GB", "3.4 GB/s"). */
void cell_bytes(struct buffer *cell, const json_t *value);
void cell_rate(struct buffer *cell, const json_t *value);
/* Seconds that passed; "-" where there is no number. */
void cell_seconds(struct buffer *cell, const json_t *value);
void cell_date(struct buffer *cell, const json_t *value);
/* How many items an array has. */
void cell_count(struct buffer *cell, const json_t *value);
/* The first 16 digits of a content name. */
void cell_id(struct buffer *cell, const json_t *value);

/* Columns end with a NULL header. When memory runs out, here or later, table_print says so. */
struct table;
struct table *table_create(const struct table_column *columns);
/* A row by the columns' keys. */
void table_row(struct table *t, const json_t *row);
/* One cell of a row that has no JSON: cells come column by column, row by row. */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* No line is longer than `width` characters as far as breaking the texts of "~" columns helps; 0,
 * and without this: none is broken. table_print breaks at the terminal's width, or at 120. */
void table_break(struct table *t, size_t width);
/* Appends the lines; with no rows `when_empty` (NULL: nothing) alone. */
int table_write(const struct table *t, const char *when_empty, struct buffer *out, struct err *e);
/* The same to standard output, and frees. */
int table_print(struct table **t, const char *when_empty, struct err *e);
void table_discard(struct table **t);

/* A whole list. */
int table_print_list(const struct table_column *columns, const json_t *rows, const char *when_empty,
                     struct err *e);

#endif
