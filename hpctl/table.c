#include "hpctl/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/vector.h"
#include "hpctl/shown.h"

enum { WIDTH_UNKNOWN = 120, WIDTH_LEAST = 16 /* of what is broken */ };

struct table {
    const struct table_column *columns;
    size_t n_columns;
    struct buffer text; /* of all cells, each with its NUL */
    size_t *cells;      /* where each begins */
    size_t n_cells, room_cells;
    size_t width; /* of a line; 0: any */
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

static bool column_breaks(const struct table_column *c)
{
    return c->header[0] == '~';
}

static const char *column_header(const struct table_column *c)
{
    return c->header + (column_is_right(c) || column_breaks(c));
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

/* The widest of the columns that may be broken; t->n_columns: none may be any further. */
static size_t column_widest(const struct table *t, const size_t *widths)
{
    size_t widest = t->n_columns;
    for (size_t i = 0; i < t->n_columns; i++)
        if (column_breaks(&t->columns[i]) && widths[i] > WIDTH_LEAST &&
            (widest == t->n_columns || widths[i] > widths[widest]))
            widest = i;
    return widest;
}

static void widths_find(const struct table *t, size_t n_rows, size_t *widths)
{
    size_t all = 2 * (t->n_columns - 1), i;
    for (i = 0; i < t->n_columns; i++)
        all += widths[i] = column_width(t, i, n_rows);
    for (; t->width && all > t->width && (i = column_widest(t, widths)) < t->n_columns; all--)
        widths[i]--;
}

/* How many bytes of a text stand on its next line: as many words as fit, or a part of a long one.
 */
static size_t line_bytes(const char *text, size_t width)
{
    size_t n = 0, characters = 0, space = 0, indent = strspn(text, " ");
    for (; text[n] && characters < width; characters++) {
        if (text[n] == ' ' && n > indent)
            space = n;
        for (n++; (text[n] & 0xC0) == 0x80; n++)
            ;
    }
    return !text[n] || text[n] == ' ' || !space ? n : space;
}

static void cell_write(const char *text, size_t n, size_t width, bool right, bool last,
                       struct buffer *out)
{
    size_t w = 0;
    for (size_t i = 0; i < n; i++)
        w += (text[i] & 0xC0) != 0x80;
    int pad = w < width ? (int)(width - w) : 0;
    buffer_printf(out, "%*s%.*s%*s%s", right ? pad : 0, "", (int)n, text, right || last ? 0 : pad,
                  "", last ? "\n" : "  ");
}

/* One line of a row; what is left of its cells stays in `cells`. False: nothing was. */
static bool row_line_write(const struct table *t, const size_t *widths, const char **cells,
                           struct buffer *out)
{
    bool any = false;
    for (size_t i = 0; i < t->n_columns; i++)
        any = any || *cells[i];
    for (size_t i = 0; any && i < t->n_columns; i++) {
        bool breaks = t->width && column_breaks(&t->columns[i]);
        size_t n = breaks ? line_bytes(cells[i], widths[i]) : strlen(cells[i]);
        cell_write(cells[i], n, widths[i], column_is_right(&t->columns[i]), i + 1 == t->n_columns,
                   out);
        cells[i] += n + strspn(cells[i] + n, " ");
    }
    while (any && t->width && out->size > 1 && out->data[out->size - 2] == ' ') {
        out->size--;
        out->data[out->size - 1] = '\n';
    }
    return any;
}

static void rows_write(const struct table *t, size_t n_rows, const size_t *widths,
                       const char **cells, struct buffer *out)
{
    for (size_t i = 0; i < t->n_columns; i++)
        cells[i] = column_header(&t->columns[i]);
    row_line_write(t, widths, cells, out);
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < t->n_columns; i++)
            cells[i] = cell_at(t, r, i);
        if (!row_line_write(t, widths, cells, out))
            buffer_printf(out, "\n");
        while (t->width && row_line_write(t, widths, cells, out))
            ;
    }
}

void table_break(struct table *t, size_t width)
{
    if (t)
        t->width = width;
}

int table_write(const struct table *t, const char *when_empty, struct buffer *out, struct err *e)
{
    if (!t || t->failed)
        return err_no_memory(e, "a table");
    size_t n_rows = t->n_cells / t->n_columns;
    size_t *widths = calloc(t->n_columns, sizeof *widths);
    const char **cells = calloc(t->n_columns, sizeof *cells);
    if (n_rows == 0 && when_empty)
        buffer_printf(out, "%s\n", when_empty);
    if (widths && cells && n_rows) {
        widths_find(t, n_rows, widths);
        rows_write(t, n_rows, widths, cells, out);
    }
    bool failed = !widths || !cells || out->failed;
    free(widths);
    free(cells);
    return failed ? err_no_memory(e, "a table") : 0;
}

int table_print(struct table **t, const char *when_empty, struct err *e)
{
    struct buffer out = {0};
    table_break(*t, shown_columns(STDOUT_FILENO, WIDTH_UNKNOWN));
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
