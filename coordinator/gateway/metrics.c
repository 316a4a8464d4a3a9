#include "coordinator/gateway/metrics.h"

#include <string.h>

#include "common/bytes.h"
#include "coordinator/gateway/process_figures.h"

struct page {
    struct buffer text;
    char last[128]; /* name of the row before: HELP and TYPE stand once */
};

static void add_row(void *out, const char *name, const char *type, const char *help,
                    const char *labels, double value)
{
    struct page *page = out;
    if (strcmp(page->last, name) != 0) {
        buffer_printf(&page->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
        strncpy(page->last, name, sizeof page->last - 1);
    }
    bool labelled = labels && *labels;
    buffer_printf(&page->text, "%s%s%s%s %.17g\n", name, labelled ? "{" : "",
                  labelled ? labels : "", labelled ? "}" : "", value);
}

static void add_http_rows(struct page *page, const struct http_figures *f)
{
    add_row(page, "hp_http_connections", "gauge", "Connections to the API", "",
            (double)f->connections);
    add_row(page, "hp_http_connections_limit", "gauge", "How many there may be", "",
            (double)f->connections_limit);
    add_row(page, "hp_http_requests_open", "gauge", "Requests whose answer is not out", "",
            (double)f->exchanges);
    add_row(page, "hp_http_bodies_bytes", "gauge", "Bytes of requests that are being received", "",
            (double)f->bodies_bytes);
    add_row(page, "hp_http_connections_timed_out_total", "counter",
            "Connections ended because their request took too long to come", "",
            (double)f->timed_out);
    add_row(page, "hp_http_bodies_refused_total", "counter",
            "Requests whose body was too large, or one too many", "", (double)f->refused_bodies);
}

static void add_process_rows(struct page *page)
{
    struct process_figures p;
    process_figures_read(&p);
    add_row(page, "hp_build_info", "gauge", "1, with this program's version",
            "version=\"" HP_VERSION "\"", 1);
    add_row(page, "process_cpu_seconds_total", "counter", "Processor time of the coordinator", "",
            p.cpu_s);
    add_row(page, "process_resident_memory_bytes", "gauge", "Its memory", "", p.resident_bytes);
    add_row(page, "process_virtual_memory_bytes", "gauge", "Its addresses", "", p.virtual_bytes);
    add_row(page, "process_open_fds", "gauge", "Its open files and connections", "", p.descriptors);
    add_row(page, "process_max_fds", "gauge", "How many it may have", "", p.descriptors_limit);
    add_row(page, "process_start_time_seconds", "gauge", "Unix time at which it was started", "",
            p.start_s);
}

void metrics_reply(const struct requests *r, const struct http_figures *http,
                   const struct latency *latency, struct http_exchange *x)
{
    struct page page = {0};
    r->metrics(r->ctx, add_row, &page);
    add_http_rows(&page, http);
    add_process_rows(&page);
    latency_write(latency, &page.text);
    http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", buffer_cstr(&page.text),
               page.text.size);
    buffer_free(&page.text);
}
