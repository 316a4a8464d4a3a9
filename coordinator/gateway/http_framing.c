#include "coordinator/gateway/http_framing.h"

#include <string.h>
#include <strings.h>

static bool name_is_token(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] >= 127 || strchr("()<>@,;:\\\"/[]?={}", name[i]))
            return false;
    return n > 0;
}

static bool name_is(const char *name, size_t n, const char *known)
{
    return n == strlen(known) && strncasecmp(name, known, n) == 0;
}

enum MHD_Result http_framing_header(void *ctx, enum MHD_ValueKind kind, const char *name, size_t n,
                                    const char *value, size_t size)
{
    struct http_framing *f = ctx;
    (void)kind;
    f->bad_name = f->bad_name || !name_is_token(name, n);
    if (name_is(name, n, "Content-Length")) {
        f->lengths++;
        f->digits = size > 0 && strspn(value, "0123456789") == size;
    } else if (name_is(name, n, "Transfer-Encoding")) {
        f->encodings++;
        f->chunked = name_is(value, size, "chunked");
    } else if (name_is(name, n, "Host")) {
        f->hosts++;
    }
    return MHD_YES;
}

const char *http_framing_problem(const struct http_framing *f, bool old)
{
    if (f->bad_name)
        return "a header's name is malformed";
    if (f->lengths + f->encodings > 1)
        return "Content-Length and Transfer-Encoding together, or one of them twice: where the "
               "body ends is not clear";
    if (f->lengths && !f->digits)
        return "Content-Length is not a number";
    if (f->encodings && (!f->chunked || old))
        return "the only Transfer-Encoding that is understood is chunked, in HTTP/1.1";
    if (f->hosts > 1 || (f->hosts == 0 && !old))
        return "a request has one Host";
    return NULL;
}

const char *http_framing_path(const char *target, const char *host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(target, schemes[i], n) != 0)
            continue;
        const char *authority = target + n;
        size_t size = strcspn(authority, "/");
        if (!host || !name_is(authority, size, host))
            return NULL;
        return authority[size] ? authority + size : "/";
    }
    return target;
}
