/* One line a fact, key=value, to standard error: `2026-01-02T03:04:05.678Z info agent stage_ready
 * stage=2 layers=8-15`. Thread-safe. The level comes from HP_LOG (error, warn, info, debug),
 * default info. */
#ifndef HP_COMMON_LOG_H
#define HP_COMMON_LOG_H

#include <stdio.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* `room` is the part that speaks ("agent"), `event` a stable snake_case word; the rest is printf
 * for key=value pairs (may be ""; no width or precision that is an argument). Values with spaces
 * are written by the caller in double quotes. Texts (%s) may be anybody's: control characters and
 * what is not UTF-8 come out as "?", a line feed as a blank, and inside quotes `"` and `\` get a
 * backslash. */
void log_line(enum log_level level, const char *room, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* For what a stranger can cause as often as he likes: of each place in the code at most
 * LOG_LIMIT_LINES in LOG_LIMIT_SECONDS are written; the next that is written tells how many were
 * not (`unsaid=N`). `limit` is that place's own, zero-initialised. */
enum { LOG_LIMIT_LINES = 5, LOG_LIMIT_SECONDS = 10 };
struct log_limit {
    long from_s;
    unsigned said, unsaid;
};
void log_line_limited(struct log_limit *limit, enum log_level level, const char *room,
                      const char *event, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
#define log_limited(level, room, event, ...)                                                       \
    do {                                                                                           \
        static struct log_limit hp_log_limit;                                                      \
        log_line_limited(&hp_log_limit, level, room, event, __VA_ARGS__);                          \
    } while (0)
#define log_error_limited(room, event, ...) log_limited(LOG_ERROR, room, event, __VA_ARGS__)
#define log_warn_limited(room, event, ...) log_limited(LOG_WARN, room, event, __VA_ARGS__)

/* Lines above this level are not written from now on (at the start HP_LOG says which, or
 * LOG_INFO). */
void log_set_level(enum log_level level);

/* Gets every line that is written, without its newline, on the thread that says it; calls never
 * overlap. NULL: none. */
void log_set_sink(void (*sink)(void *ctx, const char *line), void *ctx);

/* Where lines are written from now on, instead of standard error; NULL: there again. The stream
 * stays the caller's, who closes it after the next call of this. */
void log_set_output(FILE *out);

#define log_error(room, event, ...) log_line(LOG_ERROR, room, event, __VA_ARGS__)
#define log_warn(room, event, ...) log_line(LOG_WARN, room, event, __VA_ARGS__)
#define log_info(room, event, ...) log_line(LOG_INFO, room, event, __VA_ARGS__)
#define log_debug(room, event, ...) log_line(LOG_DEBUG, room, event, __VA_ARGS__)

#endif
