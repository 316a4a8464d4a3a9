#include "hpctl/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "hpctl/shown.h"

struct table {
    const struct table_column *columns;
    size_t n_columns;
    struct buffer text; /* of all cells, each with its NUL */
    size_t *cells;      /* where each begins */
    size_t n_cells, room_cells;
    bool failed;
};

/* ---- cells ---- */

static void cell_put(struct buffer *cell, struct shown t)
{
    buffer_append(cell, t.s, strlen(t.s));
}

static void cell_plain(struct buffer *cell, const json_t *value)
{
    if (json_is_string(value) && *json_string_value(value))
        buffer_append(cell, json_string_value(value), json_string_length(value));
    else
        cell_put(cell, shown_value(value));
}

void cell_bytes(struct buffer *cell, const json_t *value)
{
    cell_put(cell, shown_bytes(json_number_value(value)));
}

void cell_rate(struct buffer *cell, const json_t *value)
{
    cell_put(cell, shown_rate(json_number_value(value)));
}

void cell_seconds(struct buffer *cell, const json_t *value)
{
    cell_put(cell, json_is_number(value) ? shown_seconds(json_number_value(value)) : shown_of("-"));
}

void cell_date(struct buffer *cell, const json_t *value)
{
    cell_put(cell, shown_date(json_number_value(value)));
}

void cell_count(struct buffer *cell, const json_t *value)
{
    buffer_printf(cell, "%zu", json_array_size(value));
}

void cell_id(struct buffer *cell, const json_t *value)
{
    cell_put(cell, shown_of("%.16s", shown_value(value).s));
}

/* ---- rows ---- */

struct table *table_create(const struct table_column *columns)
{
    struct table *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->columns = columns;
    while (columns[t->n_columns].header)
        t->n_columns++;
    return t;
}

static void cell_begin(struct table *t)
{
    if (!vector_push(t->cells, t->n_cells, t->room_cells, t->text.size))
        t->failed = true;
}

static void cell_end(struct table *t)
{
    buffer_append(&t->text, "", 1);
    t->failed = t->failed || t->text.failed;
}

void table_row(struct table *t, const json_t *row)
{
    for (size_t i = 0; t && i < t->n_columns; i++) {
        const struct table_column *c = &t->columns[i];
        cell_begin(t);
        (c->write ? c->write : cell_plain)(&t->text, c->key ? json_object_get(row, c->key) : row);
        cell_end(t);
    }
}

void table_cell(struct table *t, const char *fmt, ...)
{
    va_list args;
    if (!t)
        return;
    cell_begin(t);
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    uint8_t *room = n < 0 ? NULL : buffer_extend(&t->text, (size_t)n);
    va_start(args, fmt);
    if (room)
        vsnprintf((char *)room, (size_t)n + 1, fmt, args);
    va_end(args);
    cell_end(t);
}

/* ---- what stands on the screen ---- */

static const char *cell_at(const struct table *t, size_t row, size_t column)
{
    return (const char *)t->text.data + t->cells[row * t->n_columns + column];
}

/* Characters, not bytes. */
static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xC0) != 0x80;
    return n;
}

static bool column_is_right(const struct table_column *c)
{
    return c->header[0] == '>';
}

static const char *column_header(const struct table_column *c)
{
    return c->header + column_is_right(c);
}

static size_t column_width(const struct table *t, size_t column, size_t n_rows)
{
    size_t width = width_of(column_header(&t->columns[column]));
    for (size_t r = 0; r < n_rows; r++) {
        size_t w = width_of(cell_at(t, r, column));
        width = w > width ? w : width;
    }
    return width;
}

static void cell_write(const char *text, size_t width, bool right, bool last, struct buffer *out)
{
    size_t w = width_of(text);
    int pad = w < width ? (int)(width - w) : 0;
    buffer_printf(out, "%*s%s%*s%s", right ? pad : 0, "", text, right || last ? 0 : pad, "",
                  last ? "\n" : "  ");
}

int table_write(const struct table *t, const char *when_empty, struct buffer *out, struct err *e)
{
    if (!t || t->failed)
        return err_no_memory(e, "a table");
    size_t n_rows = t->n_cells / t->n_columns;
    size_t *widths = calloc(t->n_columns, sizeof *widths);
    if (!widths)
        return err_no_memory(e, "a table");
    if (n_rows == 0 && when_empty)
        buffer_printf(out, "%s\n", when_empty);
    for (size_t i = 0; i < t->n_columns; i++)
        widths[i] = column_width(t, i, n_rows);
    for (size_t i = 0; n_rows && i < t->n_columns; i++)
        cell_write(column_header(&t->columns[i]), widths[i], column_is_right(&t->columns[i]),
                   i + 1 == t->n_columns, out);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < t->n_columns; i++)
            cell_write(cell_at(t, r, i), widths[i], column_is_right(&t->columns[i]),
                       i + 1 == t->n_columns, out);
    free(widths);
    return out->failed ? err_no_memory(e, "a table") : 0;
}

int table_print(struct table **t, const char *when_empty, struct err *e)
{
    struct buffer out = {0};
    int rc = table_write(*t, when_empty, &out, e);
    if (rc == 0 && fwrite(out.data, 1, out.size, stdout) != out.size)
        rc = err_set(e, HP_EIO, "standard output cannot be written");
    buffer_free(&out);
    table_discard(t);
    return rc;
}

void table_discard(struct table **out)
{
    struct table *t = *out;
    *out = NULL;
    if (!t)
        return;
    buffer_free(&t->text);
    free(t->cells);
    free(t);
}

int table_print_list(const struct table_column *columns, const json_t *rows, const char *when_empty,
                     struct err *e)
{
    struct table *t = table_create(columns);
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row) table_row(t, row);
    return table_print(&t, when_empty, e);
}
