#include "hpctl/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct table {
    const char *columns[TABLE_MAX_COLUMNS];
    int n_columns;
    char **cells; /* row by row */
    size_t n_rows, capacity;
};

struct table *table_create(const char *const *columns)
{
    struct table *t = calloc(1, sizeof *t);
    for (; t && columns[t->n_columns] && t->n_columns < TABLE_MAX_COLUMNS; t->n_columns++)
        t->columns[t->n_columns] = columns[t->n_columns];
    return t;
}

void table_row(struct table *t, const char *const *cells)
{
    size_t n = (size_t)t->n_columns;
    if (t->n_rows == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 16;
        char **grown = realloc(t->cells, capacity * n * sizeof *grown);
        if (!grown)
            return;
        t->cells = grown;
        t->capacity = capacity;
    }
    for (size_t i = 0; i < n; i++)
        t->cells[t->n_rows * n + i] = strdup(cells[i] ? cells[i] : "-");
    t->n_rows++;
}

/* Characters, not bytes: what stands on the screen. */
static int width_of(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += (*s & 0xC0) != 0x80;
    return n;
}

static void print_cell(const char *text, int width, bool right, bool last)
{
    int pad = width - width_of(text);
    printf("%*s%s%*s%s", right ? pad : 0, "", text, right || last ? 0 : pad, "",
           last ? "\n" : "  ");
}

void table_print(struct table **out, const char *when_empty)
{
    struct table *t = *out;
    *out = NULL;
    if (!t)
        return;
    if (t->n_rows == 0 && when_empty)
        printf("%s\n", when_empty);
    int width[TABLE_MAX_COLUMNS];
    for (int i = 0; i < t->n_columns; i++) {
        bool right = t->columns[i][0] == '>';
        width[i] = width_of(t->columns[i] + right);
        for (size_t r = 0; r < t->n_rows; r++) {
            int w = width_of(t->cells[r * (size_t)t->n_columns + (size_t)i]);
            width[i] = w > width[i] ? w : width[i];
        }
    }
    for (int i = 0; t->n_rows && i < t->n_columns; i++)
        print_cell(t->columns[i] + (t->columns[i][0] == '>'), width[i], t->columns[i][0] == '>',
                   i == t->n_columns - 1);
    for (size_t r = 0; r < t->n_rows; r++)
        for (int i = 0; i < t->n_columns; i++) {
            const char *cell = t->cells[r * (size_t)t->n_columns + (size_t)i];
            print_cell(cell, width[i], t->columns[i][0] == '>', i == t->n_columns - 1);
        }
    table_discard(&t);
}

void table_discard(struct table **out)
{
    struct table *t = *out;
    *out = NULL;
    for (size_t i = 0; t && i < t->n_rows * (size_t)t->n_columns; i++)
        free(t->cells[i]);
    if (t)
        free(t->cells);
    free(t);
}

/* ---- texts
 * --------------------------------------------------------------------------------------------------------------------------
 */

const char *text_format(const char *fmt, ...)
{
    static char ring[8][256];
    static unsigned at;
    char *out = ring[at++ % 8];
    va_list args;
    va_start(args, fmt);
    vsnprintf(out, sizeof ring[0], fmt, args);
    va_end(args);
    return out;
}

const char *text_bytes(double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int i = 0;
    while (bytes >= 999.5 && i < 5) {
        bytes /= 1000;
        i++;
    }
    return text_format(i == 0 || bytes >= 99.5 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
}

const char *text_seconds(double s)
{
    if (s < 1e-3)
        return text_format("%.0f µs", s * 1e6);
    if (s < 1)
        return text_format("%.1f ms", s * 1e3);
    if (s < 120)
        return text_format("%.1f s", s);
    return s < 7200 ? text_format("%.0f min", s / 60) : text_format("%.1f h", s / 3600);
}

const char *text_date(double unix_s)
{
    time_t when = (time_t)unix_s;
    struct tm local;
    char text[32];
    strftime(text, sizeof text, "%Y-%m-%d %H:%M", localtime_r(&when, &local));
    return text_format("%s", text);
}

const char *text_member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_string(v))
        return *json_string_value(v) ? json_string_value(v) : "-";
    if (json_is_integer(v))
        return text_format("%lld", (long long)json_integer_value(v));
    if (json_is_real(v))
        return text_format("%.4g", json_real_value(v));
    if (json_is_boolean(v))
        return json_is_true(v) ? "yes" : "no";
    return "-";
}

double number_member(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

bool bool_member(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

/* ---- progress
 * -------------------------------------------------------------------------------------------------------------------------
 */

void progress_init(struct progress *p, bool quiet)
{
    *p = (struct progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO), .last_percent = -1};
}

void progress_show(struct progress *p, const char *what, double done, double total)
{
    enum { BAR = 28 };
    int percent = total > 0 ? (int)(100 * done / total) : -1;
    if (p->quiet || (percent == p->last_percent && strcmp(p->last, what) == 0))
        return;
    bool same = strncmp(p->last, what, strcspn(what, ":")) ==
                0; /* what follows a colon changes all the time */
    if (!p->terminal) {
        /* In a log: a line when the matter changes, and every quarter. */
        if (!same || percent / 25 != p->last_percent / 25)
            fprintf(stderr, percent >= 0 ? "%.*s %d %%\n" : "%.*s\n", (int)strcspn(what, ":"), what,
                    percent);
    } else {
        char bar[BAR + 1];
        int filled = percent > 0 ? percent * BAR / 100 : 0;
        for (int i = 0; i < BAR; i++)
            bar[i] = i < filled ? '#' : '.';
        bar[BAR] = '\0';
        if (percent >= 0)
            fprintf(stderr, "\r\033[K[%s] %3d %%  %.*s", bar, percent, 90, what);
        else
            fprintf(stderr, "\r\033[K%s", what);
        fflush(stderr);
        p->open = true;
    }
    snprintf(p->last, sizeof p->last, "%s", what);
    p->last_percent = percent;
}

void progress_end(struct progress *p)
{
    if (p->open)
        fprintf(stderr, "\r\033[K");
    p->open = false;
}
