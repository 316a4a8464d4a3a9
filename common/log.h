/* One line a fact, key=value, to standard error: `2026-01-02T03:04:05.678Z info agent stage_ready stage=2 layers=8-15`.
 * Thread-safe. The level comes from HP_LOG (error, warn, info, debug), default info. */
#ifndef HP_COMMON_LOG_H
#define HP_COMMON_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* `room` is the part that speaks ("agent"), `event` a stable snake_case word; the rest is printf for
 * key=value pairs (may be ""). Values with spaces are written by the caller in double quotes. */
void log_line(enum log_level level, const char *room, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

void log_set_level(enum log_level level);

/* Gets every line that is written, without its newline, on the thread that says it; calls never overlap. NULL: none. */
void log_set_sink(void (*sink)(void *ctx, const char *line), void *ctx);

#define log_error(room, event, ...) log_line(LOG_ERROR, room, event, __VA_ARGS__)
#define log_warn(room, event, ...) log_line(LOG_WARN, room, event, __VA_ARGS__)
#define log_info(room, event, ...) log_line(LOG_INFO, room, event, __VA_ARGS__)
#define log_debug(room, event, ...) log_line(LOG_DEBUG, room, event, __VA_ARGS__)

#endif
