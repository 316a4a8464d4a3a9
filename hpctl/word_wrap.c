#include "hpctl/word_wrap.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum { LEAST_COLUMNS = 10, TAB_COLUMNS = 8 };

static void word_begin(struct word_wrap *w)
{
    w->word.size = 0;
    w->word_column = w->column;
    snprintf(w->word_colours, sizeof w->word_colours, "%s", w->colours);
}

/* Colours begin with all off ("ESC [ 0 m") and go on with what is on. */
static void colour_note(struct word_wrap *w, const char *colour, size_t n)
{
    size_t has = n == 4 && memcmp(colour, "\033[0m", 4) == 0 ? 0 : strlen(w->colours);
    if (has + n < sizeof w->colours) {
        memcpy(w->colours + has, colour, n);
        w->colours[has + n] = '\0';
    }
}

static size_t colour_bytes(const char *text, size_t n)
{
    size_t bytes = 0;
    while (bytes < n && text[bytes] != 'm')
        bytes++;
    return bytes < n ? bytes + 1 : n;
}

/* The word goes to the next line, as far as it has come. */
static void word_move(struct word_wrap *w, struct buffer *out)
{
    size_t wide = w->column - w->word_column;
    buffer_printf(out, "\033[%zuG\033[K\n%s", w->word_column + 1, w->word_colours);
    buffer_append(out, w->word.data, w->word.size);
    w->column = wide;
    w->word_column = 0;
}

static void line_end(struct word_wrap *w)
{
    w->column = 0;
    word_begin(w);
}

/* The terminal goes on there by itself; a word that begins says so, for who copies the text. */
static void line_go_on(struct word_wrap *w, bool at_words, struct buffer *out)
{
    if (at_words && w->word.size == 0)
        buffer_append(out, "\n", 1);
    line_end(w);
}

/* One that is seen, of so many columns. */
static void character_take(struct word_wrap *w, const char *c, size_t n, size_t wide,
                           size_t columns, bool keeps, struct buffer *out)
{
    bool full = w->column + wide > columns;
    if (wide == 2)
        word_begin(w);
    if (full && !keeps && w->word_column > 0 && w->column > w->word_column)
        word_move(w, out);
    else if (full)
        line_go_on(w, wide < 2 && !keeps, out);
    buffer_append(out, c, n);
    buffer_append(&w->word, c, n);
    w->column += wide;
    if (wide == 2)
        word_begin(w);
}

/* A space that has no room would stand behind the end of the line, where nobody sees it. */
static void space_take(struct word_wrap *w, size_t columns, bool keeps, struct buffer *out)
{
    bool full = w->column >= columns;
    if (full && keeps)
        w->column = 0;
    if (!full || keeps) {
        buffer_append(out, " ", 1);
        w->column++;
    }
    word_begin(w);
}

static void tab_take(struct word_wrap *w, size_t columns, struct buffer *out)
{
    size_t next = (w->column / TAB_COLUMNS + 1) * TAB_COLUMNS;
    buffer_append(out, "\t", 1);
    w->column = next < columns ? next : columns - 1;
    word_begin(w);
}

static size_t character_read(const char *text, size_t n, size_t *wide)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t took =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
    int columns = took > 0 ? utf8proc_charwidth(c) : 1;
    *wide = columns > 0 ? (size_t)columns : 0;
    return took > 0 ? (size_t)took : 1;
}

static size_t piece_take(struct word_wrap *w, const char *text, size_t n, size_t columns,
                         bool keeps, struct buffer *out)
{
    size_t took = 1, wide;
    if (*text == '\033') {
        took = colour_bytes(text, n);
        colour_note(w, text, took);
        buffer_append(out, text, took);
        buffer_append(&w->word, text, took);
    } else if (*text == '\n') {
        buffer_append(out, text, 1);
        line_end(w);
    } else if (*text == ' ') {
        space_take(w, columns, keeps, out);
    } else if (*text == '\t') {
        tab_take(w, columns, out);
    } else {
        took = character_read(text, n, &wide);
        character_take(w, text, took, wide, columns, keeps, out);
    }
    return took;
}

void word_wrap_take(struct word_wrap *w, const char *text, size_t n, size_t columns, bool keeps,
                    struct buffer *out)
{
    if (columns < LEAST_COLUMNS) {
        buffer_append(out, text, n);
        return;
    }
    if (w->column > columns) { /* the window has become narrower */
        w->column = columns;
        word_begin(w);
    }
    for (size_t at = 0; at < n;)
        at += piece_take(w, text + at, n - at, columns, keeps, out);
}

void word_wrap_free(struct word_wrap *w)
{
    buffer_free(&w->word);
    *w = (struct word_wrap){0};
}
