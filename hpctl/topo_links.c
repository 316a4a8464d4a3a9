#include "hpctl/topo_links.h"

#include <math.h>
#include <string.h>

#include "common/escape.h"
#include "common/svg.h"
#include "hpctl/shown.h"

enum { LIST_ROW = 18, LIST_LEAST = 300, MOST_LISTED = 600 };

static const struct svg_font font_item = {.size = 11, .colour = SVG_INK},
                             font_small = {.size = 10, .colour = SVG_MUTED},
                             font_small_end = {.size = 10, .colour = SVG_MUTED, .anchor = SVG_END},
                             font_link = {.size = 11, .colour = SVG_INK, .anchor = SVG_MIDDLE},
                             font_latency = {.size = 10, .colour = SVG_MUTED, .anchor = SVG_MIDDLE};

/* A member that may be missing. */
static const char *or_nothing(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}

/* Both ways between two nodes, as measured or given; else by their first network cards, as the
 * planner takes it. */
struct link_pair {
    const struct topo_box *a, *b;
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
static struct link_pair pair_of(const json_t *cluster, const struct topo_box *a,
                                const struct topo_box *b)
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
    p.assumed =
        bool_member(any, "assumed") && (any == back || !back || bool_member(back, "assumed"));
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
                  p->a->x + p->a->width / 2, p->a->y + p->a->height / 2, p->b->x + p->b->width / 2,
                  p->b->y + p->b->height / 2, width, p->assumed ? " stroke-dasharray=\"5 4\"" : "");
}

static bool areas_meet(const struct topo_area *a, const struct topo_area *b)
{
    return fabs(a->x - b->x) < (a->width + b->width) / 2 + 4 &&
           fabs(a->y - b->y) < (a->height + b->height) / 2 + 4;
}

/* Along its line, where it meets neither a box nor another label; false: nowhere, and the list
 * alone has it. */
static bool label_place(const struct link_pair *p, const struct topo_area *taken, size_t n,
                        struct topo_area *out)
{
    static const double parts[] = {0.5,  0.46, 0.54, 0.42, 0.58, 0.38, 0.62, 0.34,
                                   0.66, 0.3,  0.7,  0.26, 0.74, 0.22, 0.78};
    double ax = p->a->x + p->a->width / 2, ay = p->a->y + p->a->height / 2,
           bx = p->b->x + p->b->width / 2, by = p->b->y + p->b->height / 2;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool free = true;
        *out = (struct topo_area){ax + (bx - ax) * parts[i], ay + (by - ay) * parts[i],
                                  TOPO_LABEL_WIDTH, TOPO_LABEL_HEIGHT};
        for (size_t k = 0; k < n && free; k++)
            free = !areas_meet(out, &taken[k]);
        if (free)
            return true;
    }
    return false;
}

static void pair_label(struct buffer *out, const struct link_pair *p, const struct topo_area *at)
{
    const char *a = or_nothing(p->a->node, "name"), *b = or_nothing(p->b->node, "name");
    buffer_printf(out, "<g><title>");
    escape_xml(out, shown_of("%.80s to %.80s: %s", a, b, shown_rate(p->there_bytes_per_s).s).s);
    escape_xml(out, shown_of("; back: %s; %s", shown_rate(p->back_bytes_per_s).s,
                             p->assumed ? "not measured" : "measured or given")
                        .s);
    buffer_printf(out, "</title>");
    buffer_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#fff\" "
                  "stroke=\"" SVG_LINE "\"/></g>\n",
                  at->x - TOPO_LABEL_WIDTH / 2.0, at->y - TOPO_LABEL_HEIGHT / 2.0, TOPO_LABEL_WIDTH,
                  TOPO_LABEL_HEIGHT);
    svg_text_fit(out, at->x, at->y - 3, &font_link, TOPO_LABEL_WIDTH - 8, pair_rates(p).s);
    svg_text_fit(out, at->x, at->y + 11, &font_latency, TOPO_LABEL_WIDTH - 8,
                 shown_seconds(p->latency_s).s);
}

void topo_links_write(const json_t *cluster, const struct topo_box *boxes, size_t n,
                      struct buffer *out, struct topo_area *taken)
{
    size_t n_taken = n;
    for (size_t i = 0; i < n; i++)
        taken[i] =
            (struct topo_area){boxes[i].x + boxes[i].width / 2, boxes[i].y + boxes[i].height / 2,
                               boxes[i].width, boxes[i].height};
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

static struct shown pair_names(const struct link_pair *p)
{
    return shown_of("%.60s – %.60s", or_nothing(p->a->node, "name"),
                    or_nothing(p->b->node, "name"));
}

static struct shown pair_figures(const struct link_pair *p)
{
    if (p->there_bytes_per_s <= 0)
        return shown_of("not known");
    return shown_of("%s, %s%s", pair_rates(p).s, shown_seconds(p->latency_s).s,
                    p->assumed ? "*" : "");
}

struct topo_list topo_list_of(const json_t *cluster, const struct topo_box *boxes, size_t n)
{
    struct topo_list l = {
        .cluster = cluster, .boxes = boxes, .n = n, .pairs = n < 2 ? 0 : n * (n - 1) / 2};
    double figures = 0;
    l.shown = l.pairs < MOST_LISTED ? l.pairs : MOST_LISTED;
    for (size_t i = 0, listed = 0; i < n; i++)
        for (size_t k = i + 1; k < n && listed < l.shown; k++, listed++) {
            struct link_pair p = pair_of(cluster, &boxes[i], &boxes[k]);
            l.names = fmax(l.names, svg_text_width(pair_names(&p).s, &font_item));
            figures = fmax(figures, svg_text_width(pair_figures(&p).s, &font_small_end));
        }
    l.width = fmax(l.names + figures + 38, LIST_LEAST);
    return l;
}

double topo_list_write(struct topo_list *l, double width, double y, struct buffer *out)
{
    if (l->pairs == 0)
        return 0;
    l->columns = (size_t)fmax(1, (width - 2.0 * 12) / l->width);
    for (size_t i = 0, listed = 0; out && i < l->n; i++)
        for (size_t k = i + 1; k < l->n && listed < l->shown; k++, listed++) {
            struct link_pair p = pair_of(l->cluster, &l->boxes[i], &l->boxes[k]);
            size_t column = listed % l->columns, row = listed / l->columns;
            double x = 12 + (double)column * l->width, at = y + 30 + (double)row * LIST_ROW;
            svg_text(out, x, at, &font_item, pair_names(&p).s);
            svg_text(out, x + l->width - 18, at, &font_small_end, pair_figures(&p).s);
        }
    if (out)
        svg_text_fit(out, 12, y + 8, &font_small, width - 24,
                     shown_of("links: there / back, latency; * not measured%s",
                              l->pairs > l->shown ? "; the first ones" : "")
                         .s);
    return 40 + LIST_ROW * ceil((double)l->shown / (double)l->columns);
}
