#include "hpctl/markdown.h"

#include <string.h>

#include "common/bytes.h"

#define PLAIN "\033[0m"
#define BOLD "\033[1m"
#define DIM "\033[2m"
#define CODE "\033[36m"

/* What is on now, after all was put off. */
static void styles_write(const struct markdown *m, struct buffer *out)
{
    buffer_printf(out, PLAIN "%s%s%s", m->heading || m->strong ? BOLD : "", m->fenced ? DIM : "",
                  m->code ? CODE : "");
}

static void marks_keep(struct markdown *m, struct buffer *out)
{
    for (int i = 0; i < m->n_marks; i++)
        buffer_append(out, &m->mark, 1);
    m->within = m->within || m->n_marks > 0;
}

/* The run of marks has ended, before `next`. */
static void marks_close(struct markdown *m, char next, struct buffer *out)
{
    bool first = !m->within;
    if (m->mark == '`' && m->n_marks >= 3 && first) {
        m->fenced = !m->fenced;
        if (m->fenced)
            styles_write(m, out);
        marks_keep(m, out);
        if (!m->fenced)
            styles_write(m, out);
    } else if (m->fenced) {
        marks_keep(m, out);
    } else if (m->mark == '#' && first && m->n_marks <= 6 && next == ' ') {
        m->heading = true;
        styles_write(m, out);
        marks_keep(m, out);
    } else if (m->mark == '`' && m->n_marks == 1) {
        m->code = !m->code;
        m->within = true;
        styles_write(m, out);
    } else if (m->mark == '*' && m->n_marks == 2 && !m->code) {
        m->strong = !m->strong;
        m->within = true;
        styles_write(m, out);
    } else {
        marks_keep(m, out);
    }
    m->mark = 0;
    m->n_marks = 0;
}

static bool is_mark(const struct markdown *m, char c)
{
    return c == '*' || c == '`' || (c == '#' && (!m->within || m->mark == '#'));
}

/* What does not go over the end of a line. */
static void line_end(struct markdown *m, struct buffer *out)
{
    bool styled = m->heading || m->code || m->strong;
    m->heading = m->code = m->strong = m->within = false;
    if (styled)
        styles_write(m, out);
}

void markdown_take(struct markdown *m, const char *text, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (m->n_marks && c != m->mark)
            marks_close(m, c, out);
        if (is_mark(m, c)) {
            m->mark = c;
            m->n_marks++;
            continue;
        }
        if (c == '\n')
            line_end(m, out);
        else
            m->within = m->within || (c != ' ' && c != '\t');
        buffer_append(out, &c, 1);
    }
}

void markdown_end(struct markdown *m, struct buffer *out)
{
    bool styled = m->fenced || m->heading || m->strong || m->code;
    if (m->n_marks)
        marks_close(m, '\n', out);
    if (styled || m->fenced || m->strong || m->code)
        buffer_printf(out, PLAIN);
    *m = (struct markdown){0};
}
