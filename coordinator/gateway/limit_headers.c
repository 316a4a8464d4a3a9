#include "coordinator/gateway/limit_headers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void limit_duration_write(double seconds, char out[LIMIT_DURATION_BYTES])
{
    uint64_t ms = seconds > 0 ? (uint64_t)ceil(seconds * 1000 - 1e-6) : 0, s = ms / 1000;
    ms %= 1000;
    if (s == 0 && ms)
        snprintf(out, LIMIT_DURATION_BYTES, "%" PRIu64 "ms", ms);
    else if (s < 60 && ms)
        snprintf(out, LIMIT_DURATION_BYTES, "%" PRIu64 ".%03" PRIu64 "s", s, ms);
    else if (s < 60)
        snprintf(out, LIMIT_DURATION_BYTES, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(out, LIMIT_DURATION_BYTES, "%" PRIu64 "m%" PRIu64 "s", s / 60, s % 60);
    else
        snprintf(out, LIMIT_DURATION_BYTES, "%" PRIu64 "h%" PRIu64 "m%" PRIu64 "s", s / 3600,
                 s / 60 % 60, s % 60);
}

static void count_add(const char *name, uint64_t count, http_header_fn add, void *out)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, count);
    add(out, name, text);
}

void limit_headers_add(const struct request_limits *limits, http_header_fn add, void *out)
{
    static const struct {
        const char *limit, *remaining, *reset;
    } names[] = {
        {"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
         "x-ratelimit-reset-requests"},
        {"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"}};
    const struct request_limit *rows[] = {&limits->requests, &limits->tokens};
    for (int i = 0; i < 2; i++) {
        char duration[LIMIT_DURATION_BYTES];
        if (!rows[i]->limit)
            continue;
        count_add(names[i].limit, rows[i]->limit, add, out);
        count_add(names[i].remaining, rows[i]->remaining, add, out);
        limit_duration_write(rows[i]->reset_s, duration);
        if (rows[i]->reset_s >= 0)
            add(out, names[i].reset, duration);
    }
}
