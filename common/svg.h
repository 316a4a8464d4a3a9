/* Texts in SVG that stay where they belong. Nobody knows which letters a picture is shown with, so
 * widths are estimates from above: of a wide sans-serif. */
#ifndef HP_COMMON_SVG_H
#define HP_COMMON_SVG_H

#include <stdbool.h>

#include "common/bytes.h"

/* On white. */
#define SVG_INK "#1b1f24"
#define SVG_MUTED "#56606c"
#define SVG_LINE "#dcdfe3"

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

struct svg_font {
    double size; /* pixels */
    const char *colour;
    enum svg_anchor anchor;
    bool bold;
};

/* The picture's tag and a white ground. */
void svg_begin(struct buffer *out, double width, double height);
void svg_end(struct buffer *out);
/* Pixels, at most. */
double svg_text_width(const char *text, const struct svg_font *font);
/* Its line stands at y. */
void svg_text(struct buffer *out, double x, double y, const struct svg_font *font,
              const char *text);
/* The same, cut where it would be wider; nothing where not even a character fits. The whole text
 * shows when the mouse rests on one that was cut. */
void svg_text_fit(struct buffer *out, double x, double y, const struct svg_font *font, double width,
                  const char *text);

#endif
