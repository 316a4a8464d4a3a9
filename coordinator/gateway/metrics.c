#include "coordinator/gateway/metrics.h"

#include <string.h>

#include "common/bytes.h"

struct page {
    struct buffer text;
    char last[128]; /* name of the row before: HELP and TYPE stand once */
};

static void add_row(void *out, const char *name, const char *type, const char *help, const char *labels, double value)
{
    struct page *page = out;
    if (strcmp(page->last, name) != 0) {
        buffer_printf(&page->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
        strncpy(page->last, name, sizeof page->last - 1);
    }
    bool labelled = labels && *labels;
    buffer_printf(&page->text, "%s%s%s%s %.17g\n", name, labelled ? "{" : "", labelled ? labels : "", labelled ? "}" : "", value);
}

void metrics_reply(const struct requests *r, struct http_exchange *x)
{
    struct page page = {0};
    r->metrics(r->ctx, add_row, &page);
    http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", buffer_cstr(&page.text), page.text.size);
    buffer_free(&page.text);
}
