#include "common/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

void log_set_level(enum log_level level) { atomic_store(&current_level, (int)level); }

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink_fn)(void *ctx, const char *line);
static void *sink_ctx;

void log_set_sink(void (*sink)(void *ctx, const char *line), void *ctx)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = sink;
    sink_ctx = ctx;
    pthread_mutex_unlock(&sink_lock);
}

void log_line(enum log_level level, const char *room, const char *event, const char *fmt, ...)
{
    int limit = atomic_load(&current_level);
    if (limit < 0)
        atomic_store(&current_level, limit = level_from_environment());
    if ((int)level > limit)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char stamp[32], text[1536];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    char line[sizeof text + 256];
    snprintf(line, sizeof line, "%s.%03ldZ %s %s %s%s%s", stamp, now.tv_nsec / 1000000, level_words[level], room, event,
             text[0] ? " " : "", text);
    fprintf(stderr, "%s\n", line);
    pthread_mutex_lock(&sink_lock);
    if (sink_fn)
        sink_fn(sink_ctx, line);
    pthread_mutex_unlock(&sink_lock);
}
