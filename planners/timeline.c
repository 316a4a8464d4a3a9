#include "planners/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/escape.h"
#include "common/status.h"
#include "common/svg.h"
#include "common/vector.h"

/* Ten hues that differ in lightness too, and dark letters are read on all of them; the stall's grey
 * stands apart. */
static const char *const colours[] = {"#6f9bd1", "#f28e2b", "#59a14f", "#e15759", "#76b7b2",
                                      "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#86bcb6"};
static const int ansi_colours[] = {33, 208, 71, 203, 80, 221, 140, 217, 137, 109};
enum { N_COLOURS = sizeof colours / sizeof *colours };

int timeline_add_lane(struct timeline *t, const char *group, const char *name)
{
    if (t->n_lanes >= TIMELINE_MAX_LANES ||
        !vector_reserve(t->lanes, t->lane_capacity, t->n_lanes + 1)) {
        t->failed = true;
        return 0;
    }
    struct timeline_lane *lane = &t->lanes[t->n_lanes];
    lane->group = arena_strdup(&t->arena, group);
    lane->name = arena_strdup(&t->arena, name);
    lane->note = "";
    t->failed = t->failed || !lane->group || !lane->name;
    return t->n_lanes++;
}

void timeline_note_lane(struct timeline *t, int lane, const char *note_fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, note_fmt);
    vsnprintf(text, sizeof text, note_fmt, args);
    va_end(args);
    const char *note = t->failed ? NULL : arena_strdup(&t->arena, text);
    t->failed = !note;
    if (note)
        t->lanes[lane].note = note;
}

void timeline_add(struct timeline *t, int lane, double start_s, double end_s, int colour,
                  const char *label_fmt, ...)
{
    assert(end_s >= start_s && lane >= 0);
    if (t->failed || lane >= t->n_lanes || t->n_intervals >= TIMELINE_MAX_INTERVALS ||
        !vector_reserve(t->intervals, t->interval_capacity, t->n_intervals + 1)) {
        t->failed = true;
        return;
    }
    const char *label = "";
    if (label_fmt) {
        char text[160];
        va_list args;
        va_start(args, label_fmt);
        vsnprintf(text, sizeof text, label_fmt, args);
        va_end(args);
        label = arena_strdup(&t->arena, text);
    }
    t->failed = !label;
    t->intervals[t->n_intervals++] =
        (struct timeline_interval){lane, start_s, end_s, colour, label};
    t->end_s = fmax(t->end_s, end_s);
}

void timeline_free(struct timeline *t)
{
    free(t->lanes);
    free(t->intervals);
    arena_free(&t->arena);
    *t = (struct timeline){0};
}

/* A duration in the unit that reads best. */
static const char *seconds_text(double s, char *out, size_t size)
{
    if (s >= 1 || s <= 0)
        snprintf(out, size, "%.3g s", s);
    else if (s >= 1e-3)
        snprintf(out, size, "%.4g ms", s * 1e3);
    else
        snprintf(out, size, "%.4g us", s * 1e6);
    return out;
}

/* A round step that divides `end` into four to ten parts. */
static double axis_step(double end)
{
    double step = pow(10, floor(log10(end)));
    if (end / step < 2)
        return step / 5;
    return end / step < 5 ? step / 2 : step;
}

/* ---- text ---- */

struct timeline_row {
    double *busy; /* seconds of each column */
    double *most; /* the longest single interval of each column, whose colour it takes */
    int *colour;
};

static void fill_row(const struct timeline *t, int lane, int cells, struct timeline_row *row)
{
    double width = t->end_s / cells;
    memset(row->busy, 0, (size_t)cells * sizeof *row->busy);
    memset(row->most, 0, (size_t)cells * sizeof *row->most);
    for (int i = 0; i < t->n_intervals; i++) {
        const struct timeline_interval *v = &t->intervals[i];
        if (v->lane != lane)
            continue;
        int first = (int)(v->start_s / width), last = (int)(v->end_s / width);
        for (int c = first; c <= last && c < cells; c++) {
            double part = fmin(v->end_s, (c + 1) * width) - fmax(v->start_s, c * width);
            if (part <= 0)
                continue;
            row->busy[c] += part;
            if (part > row->most[c]) {
                row->most[c] = part;
                row->colour[c] = v->colour;
            }
        }
    }
}

static void write_row(const struct timeline_row *row, int cells, double width, bool ansi,
                      struct buffer *out)
{
    static const char *const shades[] = {" ", "░", "▒", "▓", "█"};
    double total = 0;
    for (int c = 0; c < cells; c++) {
        double share = row->busy[c] / width;
        int shade = share <= 0.005 ? 0 : share >= 0.95 ? 4 : 1 + (int)(share * 3.15);
        total += row->busy[c];
        if (ansi && shade > 0) {
            int code = row->colour[c] < 0 ? 245 : ansi_colours[row->colour[c] % N_COLOURS];
            buffer_printf(out, "\033[38;5;%dm%s\033[0m", code, shades[shade]);
        } else
            buffer_printf(out, "%s", shades[shade]);
    }
    buffer_printf(out, "| %3.0f %%\n", 100 * fmin(1, total / (width * cells)));
}

int timeline_write_text(const struct timeline *t, int columns, bool ansi, struct buffer *out)
{
    int name_width = 4;
    for (int i = 0; i < t->n_lanes; i++)
        name_width =
            (int)strlen(t->lanes[i].name) > name_width ? (int)strlen(t->lanes[i].name) : name_width;
    int widest = columns / 2 - 10 > 24 ? columns / 2 - 10 : 24;
    name_width = name_width > widest ? widest : name_width;
    int cells = columns - name_width - 10;
    cells = cells < 10 ? 10 : cells > 1000 ? 1000 : cells;
    struct timeline_row row = {calloc((size_t)cells, sizeof(double)),
                               calloc((size_t)cells, sizeof(double)),
                               calloc((size_t)cells, sizeof(int))};
    bool ok = row.busy && row.most && row.colour && !t->failed;
    if (ok && t->end_s > 0) {
        char left[32], right[32];
        for (int i = 0; i < t->n_lanes; i++) {
            fill_row(t, i, cells, &row);
            buffer_printf(out, "%-*.*s |", name_width, name_width, t->lanes[i].name);
            write_row(&row, cells, t->end_s / cells, ansi, out);
        }
        seconds_text(t->end_s, right, sizeof right);
        snprintf(left, sizeof left, "0");
        buffer_printf(out, "%*s  %s%*s\n", name_width, "", left, cells - 1, right);
    }
    free(row.busy);
    free(row.most);
    free(row.colour);
    return ok && !out->failed ? 0 : HP_ENOMEM;
}

/* ---- SVG ---- */

enum {
    SVG_LEFT_LEAST = 70,
    SVG_LEFT_MOST = 300,
    SVG_WIDTH = 1200,
    SVG_RIGHT = 20,
    SVG_TOP = 44,
    SVG_LEGEND = 18,
    SVG_GROUP = 24,
    SVG_ROW = 24,
    SVG_BAR = 18,
    SVG_ALSO_ABOVE = 16 /* with more lanes the axis stands above them, too */
};

static const struct svg_font font_title = {.size = 15, .colour = SVG_INK, .bold = true},
                             font_legend = {.size = 11, .colour = SVG_MUTED},
                             font_group = {.size = 12, .colour = SVG_INK, .bold = true},
                             font_lane = {.size = 12, .colour = SVG_INK, .anchor = SVG_END},
                             font_note = {.size = 11, .colour = SVG_MUTED, .anchor = SVG_END},
                             font_bar = {.size = 10, .colour = SVG_INK},
                             font_axis = {.size = 11, .colour = SVG_MUTED, .anchor = SVG_MIDDLE},
                             font_axis_end = {.size = 11, .colour = SVG_MUTED, .anchor = SVG_END};

struct timeline_sheet {
    double left, scale; /* of time 0; pixels a second */
    int top, bottom;
    bool grouped;
};

static bool lane_begins_group(const struct timeline *t, int lane)
{
    return lane == 0 || strcmp(t->lanes[lane].group, t->lanes[lane - 1].group) != 0;
}

static struct timeline_sheet sheet_of(const struct timeline *t)
{
    struct timeline_sheet s = {.left = SVG_LEFT_LEAST, .top = SVG_TOP};
    int groups = 0;
    s.top += t->legend ? SVG_LEGEND : 0;
    s.top += t->n_lanes > SVG_ALSO_ABOVE ? SVG_LEGEND : 0;
    for (int i = 0; i < t->n_lanes; i++) {
        const struct timeline_lane *lane = &t->lanes[i];
        double gap = lane->note[0] ? 8 : 0;
        s.left = fmax(s.left, svg_text_width(lane->name, &font_lane) + gap +
                                  svg_text_width(lane->note, &font_note) + 20);
        groups += lane_begins_group(t, i);
    }
    s.grouped = groups > 1;
    s.left = fmin(s.left, SVG_LEFT_MOST);
    s.bottom = s.top + t->n_lanes * SVG_ROW + (s.grouped ? groups * SVG_GROUP : 0);
    s.scale = t->end_s > 0 ? (SVG_WIDTH - s.left - SVG_RIGHT) / t->end_s : 0;
    return s;
}

/* The whole label where it fits, else what stands before its first mark: "slice 3" of "slice 3: 64
 * tokens". */
static void write_svg_label(const char *label, double x, double y, double room, struct buffer *out)
{
    char first[40];
    size_t n = strcspn(label, ":,");
    snprintf(first, sizeof first, "%.*s", (int)(n < sizeof first ? n : 0), label);
    if (svg_text_width(label, &font_bar) <= room)
        svg_text(out, x, y, &font_bar, label);
    else if (first[0] && svg_text_width(first, &font_bar) <= room)
        svg_text(out, x, y, &font_bar, first);
}

static void write_svg_interval(const struct timeline_sheet *s, const struct timeline_interval *v,
                               int y, struct buffer *out)
{
    char from[32], to[32];
    double x = s->left + v->start_s * s->scale,
           width = fmax((v->end_s - v->start_s) * s->scale, 0.3);
    buffer_printf(out, "<g><title>");
    escape_xml(out, v->label);
    buffer_printf(out, " (%s to %s)</title>", seconds_text(v->start_s, from, sizeof from),
                  seconds_text(v->end_s, to, sizeof to));
    buffer_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>", x, y,
                  width, SVG_BAR, v->colour < 0 ? "#bbbbbb" : colours[v->colour % N_COLOURS]);
    write_svg_label(v->label, x + 3, y + 13, width - 6, out);
    buffer_printf(out, "</g>\n");
}

static void write_svg_axis(const struct timeline *t, const struct timeline_sheet *s,
                           struct buffer *out)
{
    char text[32];
    double step = axis_step(t->end_s);
    for (int i = 0; i * step <= t->end_s * 1.0001; i++) {
        double x = s->left + i * step * s->scale;
        bool last = x > SVG_WIDTH - 2 * SVG_RIGHT;
        buffer_printf(
            out, "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"" SVG_LINE "\"/>\n", x,
            x, s->top - 4, s->bottom);
        seconds_text(i * step, text, sizeof text);
        for (int above = 0, rows = t->n_lanes > SVG_ALSO_ABOVE ? 2 : 1; above < rows; above++)
            svg_text(out, last ? SVG_WIDTH - 4 : x, above ? s->top - 9 : s->bottom + 14,
                     last ? &font_axis_end : &font_axis, i == 0 ? "0" : text);
    }
}

static void write_svg_lane(const struct timeline_sheet *s, const struct timeline_lane *lane, int y,
                           struct buffer *out)
{
    double right = s->left - 8,
           note = lane->note[0] ? svg_text_width(lane->note, &font_note) + 8 : 0;
    note = fmin(note, right - fmin(svg_text_width(lane->name, &font_lane) + 8, right / 2));
    if (note > 0)
        svg_text_fit(out, right, y + 13, &font_note, note - 7, lane->note);
    svg_text_fit(out, right - note, y + 13, &font_lane, right - note - 8, lane->name);
}

/* Of each lane, from the top; y is the caller's, [n_lanes]. */
static void write_svg_lanes(const struct timeline *t, const struct timeline_sheet *s, int *y,
                            struct buffer *out)
{
    int at = s->top;
    for (int i = 0; i < t->n_lanes; i++) {
        if (s->grouped && lane_begins_group(t, i)) {
            svg_text_fit(out, 12, at + 17, &font_group, SVG_WIDTH - 24, t->lanes[i].group);
            at += SVG_GROUP;
        }
        y[i] = at;
        write_svg_lane(s, &t->lanes[i], at, out);
        at += SVG_ROW;
    }
}

int timeline_write_svg(const struct timeline *t, struct buffer *out)
{
    struct timeline_sheet s = sheet_of(t);
    int *y = t->failed ? NULL : calloc((size_t)t->n_lanes + 1, sizeof *y);
    if (!y)
        return HP_ENOMEM;
    svg_begin(out, SVG_WIDTH, s.bottom + 30);
    svg_text_fit(out, 12, 24, &font_title, SVG_WIDTH - 24, t->title ? t->title : "");
    if (t->legend)
        svg_text_fit(out, 12, 42, &font_legend, SVG_WIDTH - 24, t->legend);
    if (t->end_s > 0)
        write_svg_axis(t, &s, out);
    write_svg_lanes(t, &s, y, out);
    for (int i = 0; i < t->n_intervals && t->end_s > 0; i++)
        write_svg_interval(&s, &t->intervals[i], y[t->intervals[i].lane], out);
    svg_end(out);
    free(y);
    return out->failed ? HP_ENOMEM : 0;
}

/* ---- Chrome trace ---- */

/* Lanes of one group are one process: the number of the first lane of that group. */
static int group_of(const struct timeline *t, int lane)
{
    for (int i = 0; i < lane; i++)
        if (strcmp(t->lanes[i].group, t->lanes[lane].group) == 0)
            return i + 1;
    return lane + 1;
}

int timeline_write_trace(const struct timeline *t, struct buffer *out)
{
    if (t->failed)
        return HP_ENOMEM;
    buffer_printf(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    for (int i = 0; i < t->n_lanes; i++) {
        int process = group_of(t, i);
        buffer_printf(
            out,
            "%s\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": ",
            i ? "," : "", process);
        escape_json(out, t->lanes[i].group);
        buffer_printf(out,
                      "}},\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
                      "\"args\": {\"name\": ",
                      process, i + 1);
        escape_json(out, t->lanes[i].name);
        buffer_printf(out, "}}");
    }
    for (int i = 0; i < t->n_intervals; i++) {
        const struct timeline_interval *v = &t->intervals[i];
        buffer_printf(out, "%s\n{\"ph\": \"X\", \"name\": ", i || t->n_lanes ? "," : "");
        escape_json(out, v->label);
        buffer_printf(out, ", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f}",
                      group_of(t, v->lane), v->lane + 1, v->start_s * 1e6,
                      (v->end_s - v->start_s) * 1e6);
    }
    buffer_printf(out, "\n]}\n");
    return out->failed ? HP_ENOMEM : 0;
}
