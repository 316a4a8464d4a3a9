#include "common/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/utf8.h"

static const char *const level_words[] = {"error", "warn", "info", "debug"};
static atomic_int current_level = -1;

static int level_from_environment(void)
{
    const char *s = getenv("HP_LOG");
    for (int i = LOG_ERROR; s && i <= LOG_DEBUG; i++)
        if (strcmp(s, level_words[i]) == 0)
            return i;
    return LOG_INFO;
}

void log_set_level(enum log_level level)
{
    atomic_store(&current_level, (int)level);
}

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER,
                       limit_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink_fn)(void *ctx, const char *line);
static void *sink_ctx;
static FILE *output; /* NULL: standard error */

void log_set_sink(void (*sink)(void *ctx, const char *line), void *ctx)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = sink;
    sink_ctx = ctx;
    pthread_mutex_unlock(&sink_lock);
}

void log_set_output(FILE *out)
{
    pthread_mutex_lock(&sink_lock);
    output = out;
    pthread_mutex_unlock(&sink_lock);
}

/* ---- one line ---- */

struct line {
    char text[1792];
    size_t size;
    bool quoted; /* between the double quotes of a format */
};

static void line_put(struct line *l, const char *s, size_t n)
{
    size_t room = sizeof l->text - 1 - l->size;
    n = n < room ? n : room;
    memcpy(l->text + l->size, s, n);
    l->size += n;
}

/* A text that may be anybody's: what a terminal would obey and what is not UTF-8 become "?", and
 * quotes inside quotes end no value. */
static void line_put_text(struct line *l, const char *s, size_t n)
{
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        int length = utf8_decode(s + at, n - at, &c);
        size_t step = length > 0 ? (size_t)length : 1;
        if (c == '\n' || c == '\t' || c == '\r')
            line_put(l, " ", 1);
        else if (length <= 0 || c < 0x20 || (c >= 0x7F && c < 0xA0))
            line_put(l, "?", 1);
        else if (l->quoted && (c == '"' || c == '\\'))
            line_put(l, c == '"' ? "\\\"" : "\\\\", 2);
        else if (sizeof l->text - 1 - l->size >= step)
            line_put(l, s + at, step);
        at += step;
    }
}

/* One conversion that is no text: `spec` is its own format. */
static void line_put_number(struct line *l, const char *spec, size_t n, va_list *args)
{
    char piece[128];
    bool integer = strchr("diouxX", spec[n - 1]) != NULL, wide = strstr(spec, "ll") != NULL;
    if (strchr("eEfFgG", spec[n - 1]))
        snprintf(piece, sizeof piece, spec, va_arg(*args, double));
    else if (integer && wide)
        snprintf(piece, sizeof piece, spec, va_arg(*args, long long));
    else if (integer && strpbrk(spec, "lzjt"))
        snprintf(piece, sizeof piece, spec, va_arg(*args, long));
    else if (integer || spec[n - 1] == 'c')
        snprintf(piece, sizeof piece, spec, va_arg(*args, int));
    else
        snprintf(piece, sizeof piece, spec, va_arg(*args, void *));
    line_put_text(l, piece, strlen(piece));
}

/* printf's formats, without widths and precisions that are arguments. Each text that comes in
 * through %s is looked at by itself. */
static void line_format(struct line *l, const char *fmt, va_list *args)
{
    while (*fmt) {
        size_t n = strcspn(fmt, "%");
        for (size_t i = 0; i < n; i++)
            l->quoted ^= fmt[i] == '"';
        line_put(l, fmt, n);
        fmt += n;
        if (!*fmt)
            return;
        char spec[16] = "%";
        n = 1 + strspn(fmt + 1, "-+ #0123456789.hlzjt");
        n += fmt[n] != '\0';
        snprintf(spec, sizeof spec, "%.*s", (int)n, fmt);
        const char *precision = strchr(spec, '.');
        if (fmt[n - 1] == '%') {
            line_put(l, "%", 1);
        } else if (fmt[n - 1] == 's') {
            const char *text = va_arg(*args, const char *);
            text = text ? text : "(null)";
            line_put_text(l, text,
                          precision ? strnlen(text, strtoul(precision + 1, NULL, 10))
                                    : strlen(text));
        } else {
            line_put_number(l, spec, strlen(spec), args);
        }
        fmt += n;
    }
}

static void line_stamp(struct line *l, enum log_level level, const char *room, const char *event)
{
    struct timespec now;
    struct tm utc;
    char stamp[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    l->size = (size_t)snprintf(l->text, sizeof l->text, "%s.%03ldZ %s %s %s", stamp,
                               now.tv_nsec / 1000000, level_words[level], room, event);
}

static void line_say(struct line *l)
{
    l->text[l->size] = '\0';
    pthread_mutex_lock(&sink_lock);
    fprintf(output ? output : stderr, "%s\n", l->text);
    if (sink_fn)
        sink_fn(sink_ctx, l->text);
    pthread_mutex_unlock(&sink_lock);
}

static bool level_is_said(enum log_level level)
{
    int limit = atomic_load(&current_level);
    if (limit < 0)
        atomic_store(&current_level, limit = level_from_environment());
    return (int)level <= limit;
}

static void line_write(enum log_level level, const char *room, const char *event, unsigned unsaid,
                       const char *fmt, va_list *args)
{
    struct line l = {.size = 0};
    char more[48];
    line_stamp(&l, level, room, event);
    line_put(&l, " ", *fmt != '\0');
    line_format(&l, fmt, args);
    if (unsaid)
        line_put(&l, more, (size_t)snprintf(more, sizeof more, " unsaid=%u", unsaid));
    line_say(&l);
}

void log_line(enum log_level level, const char *room, const char *event, const char *fmt, ...)
{
    va_list args;
    if (!level_is_said(level))
        return;
    va_start(args, fmt);
    line_write(level, room, event, 0, fmt, &args);
    va_end(args);
}

/* ---- lines that anybody can cause ---- */

/* Gives a place of the code its next line; how many were kept back since the last in *unsaid. */
static bool log_limit_pass(struct log_limit *limit, unsigned *unsaid)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&limit_lock);
    if (!limit->said || now.tv_sec - limit->from_s >= LOG_LIMIT_SECONDS) {
        limit->from_s = now.tv_sec;
        limit->said = 0;
    }
    bool pass = limit->said < LOG_LIMIT_LINES;
    *unsaid = limit->unsaid;
    limit->said += pass;
    limit->unsaid = pass ? 0 : limit->unsaid + 1;
    pthread_mutex_unlock(&limit_lock);
    return pass;
}

void log_line_limited(struct log_limit *limit, enum log_level level, const char *room,
                      const char *event, const char *fmt, ...)
{
    unsigned unsaid;
    va_list args;
    if (!level_is_said(level) || !log_limit_pass(limit, &unsaid))
        return;
    va_start(args, fmt);
    line_write(level, room, event, unsaid, fmt, &args);
    va_end(args);
}
