#include "coordinator/gateway/page.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/http.h"
#include "coordinator/gateway/openai.h"

static const struct page_file *page_file_find(const char *name)
{
    for (const struct page_file *f = page_files; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

void page_reply(struct http_exchange *x, const char *name)
{
    const struct page_file *f = page_file_find(name);
    char text[200];
    if (!f) {
        snprintf(text, sizeof text, "the page has no file \"%.100s\"", name);
        openai_error(x, 404, text, NULL, "not_found");
        return;
    }
    http_header(x, "Content-Security-Policy",
                "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                "require-trusted-types-for 'script'");
    http_header(x, "X-Content-Type-Options", "nosniff");
    http_header(x, "Referrer-Policy", "no-referrer");
    http_header(x, "Cache-Control", "no-cache");
    http_header(x, "Vary", "Accept");
    http_reply(x, 200, f->type, f->bytes, f->size);
}
