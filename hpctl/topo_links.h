/* The links of a cluster's picture: lines between its boxes, their labels, and all of them as a
 * list. */
#ifndef HP_HPCTL_TOPO_LINKS_H
#define HP_HPCTL_TOPO_LINKS_H

#include <jansson.h>
#include <stdbool.h>

#include "common/bytes.h"

enum { TOPO_LABEL_WIDTH = 150, TOPO_LABEL_HEIGHT = 34 };

struct topo_box {
    const json_t *node;
    double x, y, width, height; /* width: the same of all */
};

struct topo_area {
    double x, y, width, height; /* x, y: its middle */
};

/* Lines, for boxes to stand on, and then labels where they meet neither a box nor another label.
 * `taken` [n * (n + 1)] is for what stands where. */
void topo_links_write(const json_t *cluster, const struct topo_box *boxes, size_t n,
                      struct buffer *out, struct topo_area *taken);

/* Pairs in columns, each as wide as the longest of them. */
struct topo_list {
    const json_t *cluster;
    const struct topo_box *boxes;
    size_t n, pairs, shown, columns;
    double names, width; /* of the names, and of a column */
};

struct topo_list topo_list_of(const json_t *cluster, const struct topo_box *boxes, size_t n);
/* Below `y`; returns its height. `out` NULL only measures. */
double topo_list_write(struct topo_list *l, double width, double y, struct buffer *out);

#endif
