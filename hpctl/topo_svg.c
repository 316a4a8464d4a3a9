#include "hpctl/topo_svg.h"

#include <math.h>
#include <string.h>

#include "common/arena.h"
#include "common/escape.h"
#include "common/status.h"
#include "common/svg.h"
#include "hpctl/shown.h"
#include "hpctl/topo_links.h"

enum {
    BOX_LEAST = 236,
    BOX_MOST = 400, /* what is longer is cut */
    TITLE = 28,
    ROW = 36,
    CARD = 22,
    MARGIN = 30,
    TOP = 48,
    MOST_LINES = 8 /* nodes; links of more are a list alone */
};

static const struct svg_font font_title = {.size = 15, .colour = SVG_INK, .bold = true},
                             font_box = {.size = 13, .colour = SVG_INK, .bold = true},
                             font_item = {.size = 11, .colour = SVG_INK},
                             font_item_end = {.size = 11, .colour = SVG_INK, .anchor = SVG_END},
                             font_small = {.size = 10, .colour = SVG_MUTED},
                             font_small_end = {.size = 10, .colour = SVG_MUTED, .anchor = SVG_END};

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

static struct shown card_speed(const json_t *card)
{
    return shown_of("%s%s", speed_text(card).s, bool_member(card, "assumed") ? " (assumed)" : "");
}

static double box_height(const json_t *node)
{
    size_t n = json_array_size(json_object_get(node, "devices")),
           cards = json_array_size(json_object_get(node, "nics")),
           buses = json_array_size(json_object_get(node, "buses"));
    return TITLE + ROW * (double)n + CARD * (double)(cards + buses) + 12;
}

static double text_room(const struct svg_font *font, const char *text, double most)
{
    return fmax(most, svg_text_width(text, font));
}

/* As wide as what is written into it. */
static double box_width(const json_t *node)
{
    double room = text_room(&font_box, or_nothing(node, "name"), 0), beside;
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(node, "devices"), i, item) room =
        text_room(&font_small, or_nothing(item, "kind"), room);
    json_array_foreach(json_object_get(node, "nics"), i, item)
    {
        beside = svg_text_width(card_speed(item).s, &font_item_end) + 12;
        room = fmax(room, beside + svg_text_width(or_nothing(item, "name"), &font_item));
    }
    return fmin(fmax(room + 34, BOX_LEAST), BOX_MOST);
}

static void device_write(struct buffer *out, const struct topo_box *b, double y, const json_t *d)
{
    const json_t *usable = json_object_get(d, "usable");
    const char *bus = or_nothing(d, "bus");
    bool idle = usable && !json_is_true(usable);
    double room = b->width - 32, bus_width = *bus ? svg_text_width(bus, &font_small) + 8 : 0;
    buffer_printf(out, "<g><title>");
    struct shown what = shown_of("%s: %s, %s%s%s", or_nothing(d, "name"), or_nothing(d, "kind"),
                                 shown_bytes(number_member(d, "memory_bytes")).s,
                                 idle ? ", not used: " : "", idle ? or_nothing(d, "why") : "");
    escape_xml(out, what.s);
    buffer_printf(out,
                  "</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"4\" "
                  "fill=\"%s\"/></g>\n",
                  b->x + 10, y, b->width - 20, ROW - 5, idle ? "#e4e6e9" : "#d6e4f8");
    svg_text_fit(
        out, b->x + 16, y + 13, &font_item, room - fmin(bus_width, room / 2),
        shown_of("%s  %s", or_nothing(d, "name"), shown_bytes(number_member(d, "memory_bytes")).s)
            .s);
    svg_text_fit(out, b->x + 16, y + 26, &font_small, room, or_nothing(d, "kind"));
    if (*bus)
        svg_text_fit(out, b->x + b->width - 16, y + 13, &font_small_end, room / 2, bus);
}

static void card_write(struct buffer *out, const struct topo_box *b, double y, const json_t *card,
                       const char *colour)
{
    struct shown speed = card_speed(card);
    double room = b->width - 32 - svg_text_width(speed.s, &font_item_end) - 8;
    buffer_printf(
        out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"4\" fill=\"%s\"/>\n",
        b->x + 10, y, b->width - 20, CARD - 5, colour);
    svg_text_fit(out, b->x + 16, y + 12, &font_item, room, or_nothing(card, "name"));
    svg_text(out, b->x + b->width - 16, y + 12, &font_item_end, speed.s);
}

static void box_write(struct buffer *out, const struct topo_box *b)
{
    double y = b->y + TITLE;
    json_t *item;
    size_t i;
    buffer_printf(
        out,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"8\" fill=\"#fff\" "
        "stroke=\"#8a94a0\" stroke-width=\"1.25\"/>\n",
        b->x, b->y, b->width, b->height);
    svg_text_fit(out, b->x + 12, b->y + 19, &font_box, b->width - 24, or_nothing(b->node, "name"));
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

/* ---- the page ---- */

/* Few nodes stand on a ring, so that no line runs behind a third one; many stand in rows, without
 * lines. */
static void boxes_place(struct topo_box *boxes, size_t n, double *width, double *height)
{
    double tallest = 0, widest = 0;
    for (size_t i = 0; i < n; i++) {
        tallest = fmax(tallest, boxes[i].height = box_height(boxes[i].node));
        widest = fmax(widest, box_width(boxes[i].node));
    }
    size_t columns = (size_t)ceil(sqrt((double)n));
    /* Between two that stand side by side, and above each other, there is room for a label. */
    double ring_x =
               n < 2 ? 0
                     : fmax((widest + TOPO_LABEL_WIDTH + (n == 2 ? 80 : 24)) / (n == 3 ? 1.5 : 2),
                            0.29 * widest * (double)n),
           ring_y = n < 3 ? 0 : fmax(tallest + TOPO_LABEL_HEIGHT + 12, 0.22 * tallest * (double)n);
    double top = INFINITY;
    *width = *height = 0;
    for (size_t i = 0; i < n; i++) {
        double angle = 3.14159265358979 * (1 + 2 * (double)i / (double)(n ? n : 1));
        bool ring = n <= MOST_LINES;
        size_t row = i / columns, column = i % columns;
        boxes[i].width = widest;
        boxes[i].x =
            ring ? MARGIN + ring_x * (1 + cos(angle)) : MARGIN + (double)column * (widest + MARGIN);
        boxes[i].y =
            ring ? TOP + ring_y * (1 + sin(angle)) : TOP + (double)row * (tallest + MARGIN);
        top = fmin(top, boxes[i].y);
    }
    for (size_t i = 0; i < n; i++) {
        boxes[i].y -= top - TOP;
        *width = fmax(*width, boxes[i].x + widest + MARGIN);
        *height = fmax(*height, boxes[i].y + boxes[i].height + MARGIN);
    }
}

/* Not those that are a guess until somebody measures them. */
static size_t links_known(const json_t *cluster)
{
    size_t i, n = 0;
    json_t *l;
    json_array_foreach(json_object_get(cluster, "links"), i, l) n += !bool_member(l, "assumed");
    return n;
}

int topo_svg_write(const json_t *cluster, struct buffer *out)
{
    const json_t *nodes = json_object_get(cluster, "nodes");
    struct arena arena = {0};
    size_t n = json_array_size(nodes);
    double width, height;
    struct topo_box *boxes = arena_alloc(&arena, n + 1, sizeof *boxes);
    struct topo_area *taken =
        arena_alloc(&arena, n <= MOST_LINES ? n * (n + 1) + 1 : 1, sizeof *taken);
    if (!boxes || !taken) {
        arena_free(&arena);
        return HP_ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        boxes[i].node = json_array_get(nodes, i);
    boxes_place(boxes, n, &width, &height);
    struct topo_list list = topo_list_of(cluster, boxes, n);
    width = fmax(width, list.width + 24);
    svg_begin(out, width, height + topo_list_write(&list, width, height, NULL));
    size_t measured = links_known(cluster);
    svg_text_fit(out, 12, 26, &font_title, width - 24,
                 shown_of("%zu node%s, %zu measured or given link%s", n, n == 1 ? "" : "s",
                          measured, measured == 1 ? "" : "s")
                     .s);
    struct buffer boxed = {0};
    for (size_t i = 0; i < n; i++)
        box_write(&boxed, &boxes[i]);
    if (n <= MOST_LINES)
        topo_links_write(cluster, boxes, n, out, taken);
    buffer_append(out, boxed.data, boxed.size);
    out->failed |= boxed.failed;
    buffer_free(&boxed);
    topo_list_write(&list, width, height, out);
    svg_end(out);
    arena_free(&arena);
    return out->failed ? HP_ENOMEM : 0;
}
