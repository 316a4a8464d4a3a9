#include "hpctl/topo_svg.h"

#include <math.h>
#include <string.h>

#include "common/arena.h"
#include "common/escape.h"
#include "common/status.h"
#include "common/svg.h"
#include "hpctl/shown.h"

enum {
    BOX_WIDTH = 236,
    TITLE = 28,
    ROW = 36,
    CARD = 22,
    MARGIN = 30,
    TOP = 48,
    MOST_LINES = 8, /* nodes; links of more are a list alone */
    LABEL_WIDTH = 150,
    LABEL_HEIGHT = 34,
    LIST_ROW = 18,
    LIST_WIDTH = 410,
    MOST_LISTED = 600
};

static const struct svg_font font_title = {.size = 15, .colour = SVG_INK, .bold = true},
                             font_box = {.size = 13, .colour = SVG_INK, .bold = true},
                             font_item = {.size = 11, .colour = SVG_INK},
                             font_item_end = {.size = 11, .colour = SVG_INK, .anchor = SVG_END},
                             font_small = {.size = 10, .colour = SVG_MUTED},
                             font_small_end = {.size = 10, .colour = SVG_MUTED, .anchor = SVG_END},
                             font_link = {.size = 11, .colour = SVG_INK, .anchor = SVG_MIDDLE},
                             font_latency = {.size = 10, .colour = SVG_MUTED, .anchor = SVG_MIDDLE};

struct box {
    const json_t *node;
    double x, y, height;
};

static const char *or_nothing(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}

static struct shown speed_text(const json_t *o)
{
    return shown_rate(number_member(o, "bandwidth_bytes_per_s"));
}

/* ---- boxes ---- */

static double box_height(const json_t *node)
{
    size_t n = json_array_size(json_object_get(node, "devices")),
           cards = json_array_size(json_object_get(node, "nics")),
           buses = json_array_size(json_object_get(node, "buses"));
    return TITLE + ROW * (double)n + CARD * (double)(cards + buses) + 12;
}

static void device_write(struct buffer *out, const struct box *b, double y, const json_t *d)
{
    const json_t *usable = json_object_get(d, "usable");
    const char *bus = or_nothing(d, "bus");
    bool idle = usable && !json_is_true(usable);
    double room = BOX_WIDTH - 32, bus_width = *bus ? svg_text_width(bus, &font_small) + 8 : 0;
    buffer_printf(out, "<g><title>");
    struct shown what = shown_of("%s: %s, %s%s%s", or_nothing(d, "name"), or_nothing(d, "kind"),
                                 shown_bytes(number_member(d, "memory_bytes")).s,
                                 idle ? ", not used: " : "", idle ? or_nothing(d, "why") : "");
    escape_xml(out, what.s);
    buffer_printf(out,
                  "</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"4\" "
                  "fill=\"%s\"/></g>\n",
                  b->x + 10, y, BOX_WIDTH - 20, ROW - 5, idle ? "#e4e6e9" : "#d6e4f8");
    svg_text_fit(
        out, b->x + 16, y + 13, &font_item, room - fmin(bus_width, room / 2),
        shown_of("%s  %s", or_nothing(d, "name"), shown_bytes(number_member(d, "memory_bytes")).s)
            .s);
    svg_text_fit(out, b->x + 16, y + 26, &font_small, room, or_nothing(d, "kind"));
    if (*bus)
        svg_text_fit(out, b->x + BOX_WIDTH - 16, y + 13, &font_small_end, room / 2, bus);
}

static void card_write(struct buffer *out, const struct box *b, double y, const json_t *card,
                       const char *colour)
{
    struct shown speed =
        shown_of("%s%s", speed_text(card).s, bool_member(card, "assumed") ? " (assumed)" : "");
    double room = BOX_WIDTH - 32 - svg_text_width(speed.s, &font_item_end) - 8;
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\"/>\n",
                  b->x + 10, y, BOX_WIDTH - 20, CARD - 5, colour);
    svg_text_fit(out, b->x + 16, y + 12, &font_item, room, or_nothing(card, "name"));
    svg_text(out, b->x + BOX_WIDTH - 16, y + 12, &font_item_end, speed.s);
}

static void box_write(struct buffer *out, const struct box *b)
{
    double y = b->y + TITLE;
    json_t *item;
    size_t i;
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"8\" fill=\"#fff\" "
                  "stroke=\"#8a94a0\" stroke-width=\"1.25\"/>\n",
                  b->x, b->y, BOX_WIDTH, b->height);
    svg_text_fit(out, b->x + 12, b->y + 19, &font_box, BOX_WIDTH - 24, or_nothing(b->node, "name"));
    json_array_foreach(json_object_get(b->node, "devices"), i, item)
    {
        device_write(out, b, y, item);
        y += ROW;
    }
    json_array_foreach(json_object_get(b->node, "buses"), i, item)
    {
        card_write(out, b, y, item, "#f6e9cd");
        y += CARD;
    }
    json_array_foreach(json_object_get(b->node, "nics"), i, item)
    {
        card_write(out, b, y, item, "#dcf1e2");
        y += CARD;
    }
}

/* ---- links ---- */

/* Both ways between two nodes, as measured or given; else by their first network cards, as the
 * planner takes it. */
struct link_pair {
    const struct box *a, *b;
    double there_bytes_per_s, back_bytes_per_s, latency_s; /* 0: not known */
    bool assumed;
};

static bool of_node(const json_t *link, const char *end, const char *node)
{
    const char *id = or_nothing(link, end);
    size_t n = strlen(node);
    return strncmp(id, node, n) == 0 && id[n] == '/';
}

/* The measured link between two nodes, by the first device of each that has one; NULL where there
 * is none. */
static const json_t *topo_link_between(const json_t *cluster, const char *from, const char *to)
{
    const json_t *l;
    size_t i;
    json_array_foreach(json_object_get(cluster, "links"), i, l)
    {
        if (of_node(l, "from", from) && of_node(l, "to", to))
            return l;
    }
    return NULL;
}

static void pair_assume(struct link_pair *p)
{
    const json_t *a = json_array_get(json_object_get(p->a->node, "nics"), 0),
                 *b = json_array_get(json_object_get(p->b->node, "nics"), 0);
    p->assumed = true;
    if (!a || !b)
        return;
    p->there_bytes_per_s = p->back_bytes_per_s =
        fmin(number_member(a, "bandwidth_bytes_per_s"), number_member(b, "bandwidth_bytes_per_s"));
    p->latency_s = number_member(a, "latency_s") + number_member(b, "latency_s");
}

/* A given link holds both ways unless the reverse is given too. */
static struct link_pair pair_of(const json_t *cluster, const struct box *a, const struct box *b)
{
    struct link_pair p = {.a = a, .b = b};
    const char *from = or_nothing(a->node, "name"), *to = or_nothing(b->node, "name");
    const json_t *there = topo_link_between(cluster, from, to),
                 *back = topo_link_between(cluster, to, from), *any = there ? there : back;
    if (!any) {
        pair_assume(&p);
        return p;
    }
    p.there_bytes_per_s = number_member(there ? there : any, "bandwidth_bytes_per_s");
    p.back_bytes_per_s = number_member(back ? back : any, "bandwidth_bytes_per_s");
    p.latency_s = number_member(any, "latency_s");
    p.assumed = bool_member(any, "assumed");
    return p;
}

static struct shown pair_rates(const struct link_pair *p)
{
    struct shown there = shown_rate(p->there_bytes_per_s), back = shown_rate(p->back_bytes_per_s);
    bool same = strcmp(there.s, back.s) == 0;
    return shown_of("%s%s%s", there.s, same ? "" : " / ", same ? "" : back.s);
}

static void pair_line(struct buffer *out, const struct link_pair *p)
{
    double width = 1 + fmin(5, fmax(0, log10(p->there_bytes_per_s + 1) - 6));
    buffer_printf(out,
                  "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#a7b4c2\" "
                  "stroke-width=\"%.1f\"%s/>\n",
                  p->a->x + BOX_WIDTH / 2.0, p->a->y + p->a->height / 2, p->b->x + BOX_WIDTH / 2.0,
                  p->b->y + p->b->height / 2, width, p->assumed ? " stroke-dasharray=\"5 4\"" : "");
}

struct area {
    double x, y, width, height; /* x, y: its middle */
};

static bool areas_meet(const struct area *a, const struct area *b)
{
    return fabs(a->x - b->x) < (a->width + b->width) / 2 + 4 &&
           fabs(a->y - b->y) < (a->height + b->height) / 2 + 4;
}

/* Along its line, where it meets neither a box nor another label; false: nowhere, and the list
 * alone has it. */
static bool label_place(const struct link_pair *p, const struct area *taken, size_t n,
                        struct area *out)
{
    static const double parts[] = {0.5, 0.42, 0.58, 0.34, 0.66, 0.28, 0.72};
    double ax = p->a->x + BOX_WIDTH / 2.0, ay = p->a->y + p->a->height / 2,
           bx = p->b->x + BOX_WIDTH / 2.0, by = p->b->y + p->b->height / 2;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool free = true;
        *out = (struct area){ax + (bx - ax) * parts[i], ay + (by - ay) * parts[i], LABEL_WIDTH,
                             LABEL_HEIGHT};
        for (size_t k = 0; k < n && free; k++)
            free = !areas_meet(out, &taken[k]);
        if (free)
            return true;
    }
    return false;
}

static void pair_label(struct buffer *out, const struct link_pair *p, const struct area *at)
{
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#fff\" "
                  "stroke=\"" SVG_LINE "\"/>\n",
                  at->x - LABEL_WIDTH / 2.0, at->y - LABEL_HEIGHT / 2.0, LABEL_WIDTH, LABEL_HEIGHT);
    svg_text_fit(out, at->x, at->y - 3, &font_link, LABEL_WIDTH - 8, pair_rates(p).s);
    svg_text_fit(out, at->x, at->y + 11, &font_latency, LABEL_WIDTH - 8,
                 shown_seconds(p->latency_s).s);
}

/* Lines first, so that boxes stand on them; labels last. `taken` has room for boxes and pairs. */
static void links_write(const json_t *cluster, const struct box *boxes, size_t n,
                        struct buffer *out, struct area *taken)
{
    size_t n_taken = n;
    for (size_t i = 0; i < n; i++)
        taken[i] = (struct area){boxes[i].x + BOX_WIDTH / 2.0, boxes[i].y + boxes[i].height / 2,
                                 BOX_WIDTH, boxes[i].height};
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            struct link_pair p = pair_of(cluster, &boxes[i], &boxes[k]);
            if (p.there_bytes_per_s > 0 || p.back_bytes_per_s > 0)
                pair_line(out, &p);
        }
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            struct link_pair p = pair_of(cluster, &boxes[i], &boxes[k]);
            if ((p.there_bytes_per_s > 0 || p.back_bytes_per_s > 0) &&
                label_place(&p, taken, n_taken, &taken[n_taken]))
                pair_label(out, &p, &taken[n_taken++]);
        }
}

/* Every pair in columns; returns the height. `out` NULL only measures. */
static double list_write(const json_t *cluster, const struct box *boxes, size_t n, double width,
                         double y, struct buffer *out)
{
    size_t pairs = n < 2 ? 0 : n * (n - 1) / 2, listed = 0,
           columns = (size_t)fmax(1, (width - 2.0 * 12) / LIST_WIDTH);
    size_t shown = pairs < MOST_LISTED ? pairs : MOST_LISTED;
    if (pairs == 0)
        return 0;
    for (size_t i = 0; out && i < n; i++)
        for (size_t k = i + 1; k < n && listed < shown; k++, listed++) {
            struct link_pair p = pair_of(cluster, &boxes[i], &boxes[k]);
            size_t column = listed % columns, row = listed / columns;
            double x = 12 + (double)column * LIST_WIDTH, at = y + 30 + (double)row * LIST_ROW;
            svg_text_fit(out, x, at, &font_item, LIST_WIDTH - 218,
                         shown_of("%.60s – %.60s", or_nothing(p.a->node, "name"),
                                  or_nothing(p.b->node, "name"))
                             .s);
            svg_text_fit(out, x + LIST_WIDTH - 18, at, &font_small_end, 194,
                         p.there_bytes_per_s > 0
                             ? shown_of("%s, %s%s", pair_rates(&p).s, shown_seconds(p.latency_s).s,
                                        p.assumed ? "*" : "")
                                   .s
                             : "not known");
        }
    if (out)
        svg_text_fit(out, 12, y + 8, &font_small, width - 24,
                     pairs > shown ? "links: there / back, latency; * by the network cards, not "
                                     "measured; the first ones"
                                   : "links: there / back, latency; * by the network cards, not "
                                     "measured");
    return 40 + LIST_ROW * ceil((double)shown / (double)columns);
}

/* ---- the page ---- */

/* Few nodes stand on a ring, so that no line runs behind a third one; many stand in rows, without
 * lines. */
static void boxes_place(struct box *boxes, size_t n, double *width, double *height)
{
    double tallest = 0;
    for (size_t i = 0; i < n; i++)
        tallest = fmax(tallest, boxes[i].height = box_height(boxes[i].node));
    size_t columns = (size_t)ceil(sqrt((double)n));
    double ring_x =
               n < 2 ? 0 : fmax(BOX_WIDTH / 2.0 + LABEL_WIDTH * 0.8, 0.27 * BOX_WIDTH * (double)n),
           ring_y = n < 3 ? 0 : fmax(tallest * 0.75 + 40, 0.22 * tallest * (double)n);
    double top = INFINITY;
    *width = *height = 0;
    for (size_t i = 0; i < n; i++) {
        double angle = 3.14159265358979 * (1 + 2 * (double)i / (double)(n ? n : 1));
        bool ring = n <= MOST_LINES;
        size_t row = i / columns, column = i % columns;
        boxes[i].x = ring ? MARGIN + ring_x * (1 + cos(angle))
                          : MARGIN + (double)column * (BOX_WIDTH + MARGIN);
        boxes[i].y =
            ring ? TOP + ring_y * (1 + sin(angle)) : TOP + (double)row * (tallest + MARGIN);
        top = fmin(top, boxes[i].y);
    }
    for (size_t i = 0; i < n; i++) {
        boxes[i].y -= top - TOP;
        *width = fmax(*width, boxes[i].x + BOX_WIDTH + MARGIN);
        *height = fmax(*height, boxes[i].y + boxes[i].height + MARGIN);
    }
}

int topo_svg_write(const json_t *cluster, struct buffer *out)
{
    const json_t *nodes = json_object_get(cluster, "nodes");
    struct arena arena = {0};
    size_t n = json_array_size(nodes);
    double width, height;
    struct box *boxes = arena_alloc(&arena, n + 1, sizeof *boxes);
    struct area *taken = arena_alloc(&arena, n <= MOST_LINES ? n * (n + 1) + 1 : 1, sizeof *taken);
    if (!boxes || !taken) {
        arena_free(&arena);
        return HP_ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        boxes[i].node = json_array_get(nodes, i);
    boxes_place(boxes, n, &width, &height);
    width = fmax(width, LIST_WIDTH + 24);
    svg_begin(out, width, height + list_write(cluster, boxes, n, width, height, NULL));
    size_t measured = json_array_size(json_object_get(cluster, "links"));
    svg_text_fit(out, 12, 26, &font_title, width - 24,
                 shown_of("%zu node%s, %zu measured or given link%s", n, n == 1 ? "" : "s",
                          measured, measured == 1 ? "" : "s")
                     .s);
    struct buffer boxed = {0};
    for (size_t i = 0; i < n; i++)
        box_write(&boxed, &boxes[i]);
    if (n <= MOST_LINES)
        links_write(cluster, boxes, n, out, taken);
    buffer_append(out, boxed.data, boxed.size);
    out->failed |= boxed.failed;
    buffer_free(&boxed);
    list_write(cluster, boxes, n, width, height, out);
    svg_end(out);
    arena_free(&arena);
    return out->failed ? HP_ENOMEM : 0;
}
