/* Sizes, times and members of JSON as a person reads them. What is shown is a value of its own,
 * without a buffer that somebody else may write to: `printf("%s", shown_bytes(n).s)`. It lives as
 * long as the expression that it stands in; who needs it longer keeps the struct, not its `s`. */
#ifndef HP_HPCTL_SHOWN_H
#define HP_HPCTL_SHOWN_H

#include <jansson.h>
#include <stdbool.h>

struct shown {
    char s[256];
};

/* printf's form; what does not fit is cut between characters. */
struct shown shown_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Text of a file or a stranger, on one line, without what could move a terminal's cursor. */
struct shown shown_plain(const char *text);
/* A text of any length for a terminal, which would obey control characters, and what it is told by
 * a stranger: '?' for all but tabs and the ends of lines. */
struct buffer;
void shown_harmless(const char *text, size_t n, struct buffer *out);
/* "1.5 GB", "12 kB". */
struct shown shown_bytes(double bytes);
/* "1.5 GB/s". */
struct shown shown_rate(double bytes_per_s);
/* "12 ms", "3.4 s", "5 min". */
struct shown shown_seconds(double seconds);
/* "2026-01-31 12:00", local time, of Unix seconds. */
struct shown shown_date(double unix_s);

/* How wide the terminal behind a descriptor is; `otherwise`: there is none, or it does not say. */
size_t shown_columns(int fd, size_t otherwise);

/* A value: strings as they are, numbers short, "yes" or "no", "-" where it is missing or empty. */
struct shown shown_value(const json_t *value);
/* The same of a member of an object. */
struct shown shown_member(const json_t *o, const char *key);
/* A member that is a string, whole and in place; "-" where it is missing, empty or of another type.
 */
const char *string_member(const json_t *o, const char *key);
double number_member(const json_t *o, const char *key);
bool bool_member(const json_t *o, const char *key);

#endif
