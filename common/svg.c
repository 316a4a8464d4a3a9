#include "common/svg.h"

#include <string.h>

#include "common/escape.h"
#include "common/utf8.h"

static const char cut_mark[] = "…";

void svg_begin(struct buffer *out, double width, double height)
{
    buffer_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\" font-family=\"system-ui, sans-serif\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  width, height, width, height);
}

void svg_end(struct buffer *out)
{
    buffer_printf(out, "</svg>\n");
}

/* In parts of the letters' size. */
static double letter_width(uint32_t c)
{
    if (c >= 128)
        return 1;
    if (strchr("mwMW@%", (int)c))
        return 1;
    if (strchr("iIjlft.,:;'|!()[]/ -", (int)c))
        return 0.42;
    return c >= 'A' && c <= 'Z' ? 0.78 : 0.65;
}

static double letters_width(const char *text, size_t n, const struct svg_font *font)
{
    double sum = 0;
    for (size_t at = 0; at < n;) {
        uint32_t c = UTF8_REPLACEMENT;
        int bytes = utf8_decode(text + at, n - at, &c);
        at += bytes > 0 ? (size_t)bytes : 1;
        sum += letter_width(c);
    }
    return sum * font->size * (font->bold ? 1.12 : 1);
}

double svg_text_width(const char *text, const struct svg_font *font)
{
    return letters_width(text, strlen(text), font);
}

static void text_write(struct buffer *out, double x, double y, const struct svg_font *font,
                       const char *text, size_t n)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    bool cut = n < strlen(text);
    struct buffer shown = {0};
    buffer_append(&shown, text, n);
    if (cut)
        buffer_append(&shown, cut_mark, sizeof cut_mark - 1);
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" fill=\"%s\"%s%s>", x, y,
                  font->size, font->colour, anchors[font->anchor],
                  font->bold ? " font-weight=\"600\"" : "");
    if (cut) {
        buffer_printf(out, "<title>");
        escape_xml(out, text);
        buffer_printf(out, "</title>");
    }
    escape_xml(out, buffer_cstr(&shown));
    buffer_printf(out, "</text>\n");
    out->failed |= shown.failed;
    buffer_free(&shown);
}

void svg_text(struct buffer *out, double x, double y, const struct svg_font *font, const char *text)
{
    text_write(out, x, y, font, text, strlen(text));
}

void svg_text_fit(struct buffer *out, double x, double y, const struct svg_font *font, double width,
                  const char *text)
{
    size_t n = strlen(text);
    if (letters_width(text, n, font) <= width) {
        svg_text(out, x, y, font, text);
        return;
    }
    while (n > 0 && letters_width(text, n, font) + svg_text_width(cut_mark, font) > width)
        n = utf8_previous(text, n);
    if (n > 0)
        text_write(out, x, y, font, text, n);
}
