/* Replies: whole ones, copied or given away, and how a stream begins (http_stream.c goes on). */
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/gateway/http_int.h"
#include "coordinator/requests.h"

enum { STREAM_BLOCK_BYTES = 2048 }; /* libmicrohttpd keeps so much for each stream */

void http_header(struct http_exchange *x, const char *name, const char *value)
{
    if (!x->headers)
        x->headers = calloc(HTTP_MAX_HEADERS, sizeof *x->headers);
    if (!x->headers || x->n_headers == HTTP_MAX_HEADERS)
        return;
    x->headers[x->n_headers].name = name;
    snprintf(x->headers[x->n_headers++].value, HTTP_HEADER_BYTES, "%s", value);
}

void http_request_id(const struct http_exchange *x, char out[HTTP_REQUEST_ID_BYTES])
{
    snprintf(out, HTTP_REQUEST_ID_BYTES, "%s", request_name(x->id).s);
}

uint64_t http_request_number(const struct http_exchange *x)
{
    return x->id;
}

/* All headers of a reply but those of its body's length. */
static void headers_add(const struct http_exchange *x, const char *content_type, http_header_fn add,
                        void *out)
{
    const struct http_handler *h = &x->server->handler;
    char id[HTTP_REQUEST_ID_BYTES];
    http_request_id(x, id);
    add(out, "Content-Type", content_type);
    add(out, "x-request-id", id);
    add(out, "request-id", id); /* as Anthropic's clients call it */
    if (h->headers)
        h->headers(h->ctx, x, add, out);
    for (int i = 0; i < x->n_headers; i++)
        add(out, x->headers[i].name, x->headers[i].value);
}

static void response_header(void *out, const char *name, const char *value)
{
    MHD_add_response_header(out, name, value);
}

static void line_header(void *out, const char *name, const char *value)
{
    buffer_printf(out, "%s: %s\r\n", name, value);
}

/* In the middle of a body libmicrohttpd takes no reply. Nothing of one was sent yet, so it is
 * written by hand, and the connection ends. */
static void reply_by_hand(struct http_exchange *x, int status, const char *content_type,
                          const void *body, size_t n)
{
    struct buffer all = {0};
    buffer_printf(&all, "HTTP/1.1 %d Refused\r\nContent-Length: %zu\r\nConnection: close\r\n",
                  status, n);
    headers_add(x, content_type, line_header, &all);
    x->status = status;
    buffer_printf(&all, "\r\n");
    buffer_append(&all, body, n);
    if (!all.failed)
        http_connection_send(x->connection, all.data, all.size);
    buffer_free(&all);
}

/* NULL, for want of memory, ends the connection. */
static void response_give(struct http_exchange *x, int status, const char *content_type,
                          struct MHD_Response *response)
{
    x->response = response;
    if (x->response)
        headers_add(x, content_type, response_header, x->response);
    x->status = status;
    x->state = EXCHANGE_REPLIED;
    x->gone = NULL;
    http_exchange_wake(x);
}

void http_reply(struct http_exchange *x, int status, const char *content_type, const void *body,
                size_t n)
{
    if (x->state == EXCHANGE_CUT)
        reply_by_hand(x, status, content_type, body, n);
    if (x->state == EXCHANGE_GONE || x->state == EXCHANGE_CUT)
        return;
    response_give(
        x, status, content_type,
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY));
}

bool http_reply_large(struct http_exchange *x, int status, const char *content_type,
                      struct buffer *body)
{
    struct http_server *s = x->server;
    if (x->state == EXCHANGE_GONE)
        return true;
    if (s->figures.replies_bytes + body->size > HTTP_MAX_REPLIES_BYTES)
        return false;
    if (x->state == EXCHANGE_CUT) {
        http_reply(x, status, content_type, body->data, body->size);
        return true;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body->size, body->data, MHD_RESPMEM_MUST_FREE);
    if (response) {
        x->reply_bytes = body->size;
        s->figures.replies_bytes += body->size;
        *body = (struct buffer){0};
    }
    response_give(x, status, content_type, response);
    return true;
}

void http_stream_begin(struct http_exchange *x, const char *content_type)
{
    if (x->state == EXCHANGE_GONE)
        return;
    x->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                    http_stream_read, x, NULL);
    http_header(x, "Cache-Control", "no-cache");
    if (x->response)
        headers_add(x, content_type, response_header, x->response);
    x->status = 200;
    x->state = EXCHANGE_STREAMING;
    http_exchange_wake(x);
}
