#include "hpctl/arrival_trace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

static int bad_line(const struct arrival_trace *a, struct err *e, const char *what)
{
    return err_set(e, HP_EPARSE, "%s: line %ld: %s", a->file, a->line, what);
}

static int model_index(const struct arrival_trace *a, const char *name)
{
    for (int m = 0; m < a->t->n_models; m++)
        if (strcmp(a->t->models[m].name, name) == 0)
            return m;
    return -1;
}

/* The rest of a line after the time: ",model", or nothing where one model is served. */
static int read_model(const struct arrival_trace *a, char *rest, int *model, struct err *e)
{
    char text[256];
    rest += strspn(rest, BLANKS);
    rest += *rest == ',';
    rest += strspn(rest, BLANKS);
    for (size_t n = strlen(rest); n > 0 && strchr(BLANKS, rest[n - 1]); n--)
        rest[n - 1] = '\0';
    if (*rest == '\0') {
        if (a->t->n_models > 1 && a->only_model < 0)
            return bad_line(a, e,
                            "names no model, and the workload has several: write seconds,model");
        *model = a->only_model < 0 ? 0 : a->only_model;
        return 0;
    }
    *model = model_index(a, rest);
    if (*model >= 0)
        return 0;
    snprintf(text, sizeof text, "the workload has no model \"%.200s\"", rest);
    return bad_line(a, e, text);
}

/* The next request that counts, by the file's own clock. 1, 0 at the end, or an error. */
static int read_next(struct arrival_trace *a, double *at_s, int *model, struct err *e)
{
    static const char mark[] = "\xef\xbb\xbf"; /* before the text of some spreadsheets */
    char text[512], *end;
    while (fgets(text, sizeof text, a->stream)) {
        a->line++;
        bool marked = a->line == 1 && strncmp(text, mark, sizeof mark - 1) == 0;
        const char *from = text + (marked ? sizeof mark - 1 : 0);
        if (!strchr(text, '\n') && !feof(a->stream)) /* a zero byte hides the line's end, too */
            return bad_line(a, e, "is too long, or no text");
        if (from[strspn(from, BLANKS)] == '\0')
            continue;
        double s = strtod(from, &end);
        if (end == from || !isfinite(s)) {
            if (a->line == 1)
                continue; /* the header */
            return bad_line(a, e, "begins with no number of seconds");
        }
        if (s < 0)
            return bad_line(a, e, "is before the start: a time is 0 or more");
        if (s < a->last_s)
            return bad_line(a, e, "is earlier than the line before it: sort the trace by time");
        a->last_s = s;
        int rc = read_model(a, end, model, e);
        if (rc < 0)
            return rc;
        if (s >= a->end_s)
            return 0;
        if (a->only_model >= 0 && *model != a->only_model)
            continue;
        *at_s = s;
        return 1;
    }
    return ferror(a->stream) ? err_set(e, HP_EIO, "%s: cannot be read", a->file) : 0;
}

static void arrival_trace_rewind(struct arrival_trace *a)
{
    rewind(a->stream);
    a->line = 0;
    a->last_s = 0;
}

int arrival_trace_open(struct arrival_trace *a, const char *file, const struct dispatch_topology *t,
                       int only_model, double end_s, struct err *e)
{
    double at_s = 0, first_s = -1;
    int model, rc;
    *a = (struct arrival_trace){
        .file = file, .t = t, .only_model = only_model, .stretch = 1, .end_s = end_s};
    a->stream = fopen(file, "r");
    if (!a->stream)
        return err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "%s: %s", file, strerror(errno));
    if (fseek(a->stream, 0, SEEK_SET) != 0) { /* a pipe */
        arrival_trace_close(a);
        return err_set(e, HP_EINVAL, "%s: arrivals are read twice: write them to a file", file);
    }
    while ((rc = read_next(a, &at_s, &model, e)) > 0) {
        if (first_s < 0)
            first_s = at_s;
        a->requests++;
    }
    if (rc == 0 && a->requests == 0)
        rc = err_set(e, HP_EINVAL, "%s: has no request to serve", file);
    a->span_s = at_s - first_s;
    if (rc < 0)
        arrival_trace_close(a);
    else
        arrival_trace_rewind(a);
    return rc;
}

void arrival_trace_close(struct arrival_trace *a)
{
    if (a->stream)
        fclose(a->stream);
    a->stream = NULL;
}

int arrival_trace_next(void *ctx, struct arrival *out, struct err *e)
{
    struct arrival_trace *a = ctx;
    double at_s;
    int rc = read_next(a, &at_s, &out->model, e);
    if (rc <= 0)
        return rc;
    at_s *= a->stretch;
    if (!(at_s <= 9e9)) /* also where a stretch without end makes none of 0 */
        return bad_line(a, e, "is too far in the future");
    out->at_ns = (int64_t)(at_s * 1e9);
    return 1;
}
