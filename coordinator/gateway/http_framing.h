/* Where a request's body ends, by its headers, and which path it is for. */
#ifndef HP_COORDINATOR_GATEWAY_HTTP_FRAMING_H
#define HP_COORDINATOR_GATEWAY_HTTP_FRAMING_H

#include <microhttpd.h>
#include <stdbool.h>

/* How the headers say where the body ends. Two parties that read this differently see two different
 * requests, so what is ambiguous is refused. */
struct http_framing {
    int lengths, encodings, hosts;
    bool chunked, digits, bad_name;
};

/* For MHD_get_connection_values_n, with a struct http_framing as its context. */
enum MHD_Result http_framing_header(void *ctx, enum MHD_ValueKind kind, const char *name, size_t n,
                                    const char *value, size_t size);
/* What is wrong, for people; NULL: nothing. `old`: not HTTP/1.1. */
const char *http_framing_problem(const struct http_framing *f, bool old);
/* The path of a target, which may name its host as to a proxy (RFC 9112, section 3.2.2). NULL: that
 * is another one than `host` says. */
const char *http_framing_path(const char *target, const char *host);

#endif
