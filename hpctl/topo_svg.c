#include "hpctl/topo_svg.h"

#include <math.h>
#include <string.h>

#include "common/arena.h"
#include "common/escape.h"
#include "common/status.h"
#include "hpctl/shown.h"

enum { BOX_WIDTH = 236, TITLE = 26, ROW = 34, CARD = 22, MARGIN = 30, TOP = 48, MOST_LINES = 12 };

struct box {
    const json_t *node;
    double x, y, height;
};

static void text_at(struct buffer *out, double x, double y, int size, const char *colour,
                    const char *anchor, const char *text)
{
    buffer_printf(out,
                  "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" fill=\"%s\" text-anchor=\"%s\">", x,
                  y, size, colour, anchor);
    escape_xml(out, text);
    buffer_printf(out, "</text>\n");
}

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
    bool idle = usable && !json_is_true(usable);
    buffer_printf(out, "<g><title>");
    struct shown what = shown_of("%s: %s, %s%s%s", or_nothing(d, "name"), or_nothing(d, "kind"),
                                 shown_bytes(number_member(d, "memory_bytes")).s,
                                 idle ? ", not used: " : "", idle ? or_nothing(d, "why") : "");
    escape_xml(out, what.s);
    buffer_printf(out,
                  "</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"3\" "
                  "fill=\"%s\"/></g>\n",
                  b->x + 10, y, BOX_WIDTH - 20, ROW - 5, idle ? "#dddddd" : "#cfe3f5");
    text_at(
        out, b->x + 16, y + 12, 11, "#222", "start",
        shown_of("%s  %s", or_nothing(d, "name"), shown_bytes(number_member(d, "memory_bytes")).s)
            .s);
    text_at(out, b->x + 16, y + 24, 9, "#555", "start", shown_of("%.42s", or_nothing(d, "kind")).s);
    if (*or_nothing(d, "bus"))
        text_at(out, b->x + BOX_WIDTH - 16, y + 12, 9, "#555", "end", or_nothing(d, "bus"));
}

static void card_write(struct buffer *out, const struct box *b, double y, const json_t *card,
                       const char *colour)
{
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"%s\"/>\n",
                  b->x + 10, y, BOX_WIDTH - 20, CARD - 5, colour);
    text_at(out, b->x + 16, y + 12, 10, "#222", "start", or_nothing(card, "name"));
    text_at(
        out, b->x + BOX_WIDTH - 16, y + 12, 10, "#222", "end",
        shown_of("%s%s", speed_text(card).s, bool_member(card, "assumed") ? " (assumed)" : "").s);
}

static void box_write(struct buffer *out, const struct box *b)
{
    double y = b->y + TITLE;
    json_t *item;
    size_t i;
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"6\" fill=\"#fff\" "
                  "stroke=\"#456\" stroke-width=\"1.5\"/>\n",
                  b->x, b->y, BOX_WIDTH, b->height);
    text_at(out, b->x + 10, b->y + 18, 13, "#123", "start", or_nothing(b->node, "name"));
    json_array_foreach(json_object_get(b->node, "devices"), i, item)
    {
        device_write(out, b, y, item);
        y += ROW;
    }
    json_array_foreach(json_object_get(b->node, "buses"), i, item)
    {
        card_write(out, b, y, item, "#f3e2c0");
        y += CARD;
    }
    json_array_foreach(json_object_get(b->node, "nics"), i, item)
    {
        card_write(out, b, y, item, "#d8efd3");
        y += CARD;
    }
}

/* ---- links ---- */

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

static void link_label(struct buffer *out, double x, double y, const char *arrow, const json_t *l)
{
    if (l)
        text_at(out, x, y, 10, "#333", "middle",
                shown_of("%s %s, %s", arrow, speed_text(l).s,
                         shown_seconds(number_member(l, "latency_s")).s)
                    .s);
}

/* A line below the boxes; its label, written later, stands a third of the way, so that labels of
 * crossing lines do not meet in the middle. */
static void link_line(struct buffer *out, const struct box *a, const struct box *b,
                      const json_t *there, const json_t *back)
{
    const json_t *any = there ? there : back;
    double width = 1 + fmin(5, fmax(0, log10(number_member(any, "bandwidth_bytes_per_s") + 1) - 6));
    buffer_printf(out,
                  "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#9ab\" "
                  "stroke-width=\"%.1f\"%s/>\n",
                  a->x + BOX_WIDTH / 2.0, a->y + a->height / 2, b->x + BOX_WIDTH / 2.0,
                  b->y + b->height / 2, width,
                  json_is_true(json_object_get(any, "assumed")) ? " stroke-dasharray=\"5 4\"" : "");
}

static void link_labels(struct buffer *out, const struct box *a, const struct box *b,
                        const json_t *there, const json_t *back)
{
    double x = BOX_WIDTH / 2.0 + a->x + 0.5 * (b->x - a->x),
           y = 0.5 * (a->y + a->height / 2 + b->y + b->height / 2);
    const char *ahead = b->x > a->x + 1 ? "→" : b->x < a->x - 1 ? "←" : b->y > a->y ? "↓" : "↑";
    const char *behind = b->x > a->x + 1 ? "←" : b->x < a->x - 1 ? "→" : b->y > a->y ? "↑" : "↓";
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"132\" height=\"%d\" fill=\"#fff\" "
                  "fill-opacity=\"0.85\"/>\n",
                  x - 66, y - 13, there && back ? 30 : 17);
    link_label(out, x, y, ahead, there);
    link_label(out, x, there ? y + 13 : y, behind, back);
}

static void links_write(const json_t *cluster, const struct box *boxes, size_t n,
                        struct buffer *out, bool labels)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            const char *a = or_nothing(boxes[i].node, "name"),
                       *b = or_nothing(boxes[k].node, "name");
            const json_t *there = topo_link_between(cluster, a, b),
                         *back = topo_link_between(cluster, b, a);
            if (!there && !back)
                continue;
            if (labels)
                link_labels(out, &boxes[i], &boxes[k], there, back);
            else
                link_line(out, &boxes[i], &boxes[k], there, back);
        }
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
    double ring_x = n < 2 ? 0 : fmax(240, 0.24 * BOX_WIDTH * (double)n),
           ring_y = n < 3 ? 0 : fmax(tallest * 0.75 + 40, 0.2 * tallest * (double)n);
    *width = *height = 0;
    for (size_t i = 0; i < n; i++) {
        double angle = 3.14159265358979 * (1 + 2 * (double)i / (double)(n ? n : 1));
        bool ring = n <= MOST_LINES;
        size_t row = i / columns, column = i % columns;
        boxes[i].x = ring ? MARGIN + ring_x * (1 + cos(angle))
                          : MARGIN + (double)column * (BOX_WIDTH + MARGIN);
        boxes[i].y =
            ring ? TOP + ring_y * (1 + sin(angle)) : TOP + (double)row * (tallest + MARGIN);
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
    if (!boxes)
        return HP_ENOMEM;
    for (size_t i = 0; i < n; i++)
        boxes[i].node = json_array_get(nodes, i);
    boxes_place(boxes, n, &width, &height);
    width = fmax(width, 420);
    buffer_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n",
                  width, height, width, height);
    buffer_printf(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
    text_at(out, 12, 24, 15, "#222", "start",
            shown_of("%zu nodes, %zu measured or given links", n,
                     json_array_size(json_object_get(cluster, "links")))
                .s);
    if (n <= MOST_LINES)
        links_write(cluster, boxes, n, out, false);
    for (size_t i = 0; i < n; i++)
        box_write(out, &boxes[i]);
    if (n <= MOST_LINES)
        links_write(cluster, boxes, n, out, true);
    buffer_printf(out, "</svg>\n");
    arena_free(&arena);
    return out->failed ? HP_ENOMEM : 0;
}
