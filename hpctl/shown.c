#include "hpctl/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/utf8.h"

struct shown shown_of(const char *fmt, ...)
{
    struct shown t;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t.s, sizeof t.s, fmt, args);
    va_end(args);
    if (n >= (int)sizeof t.s)
        utf8_trim(t.s);
    return t;
}

struct shown shown_plain(const char *text)
{
    struct shown t;
    size_t n = 0;
    for (const char *at = text; *at && n + 2 < sizeof t.s; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '\n')
            t.s[n++] = '\\';
        t.s[n++] = c == '\n' ? 'n' : c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    t.s[n] = '\0';
    utf8_trim(t.s);
    return t;
}

/* C1 control characters are two bytes each in UTF-8. */
void shown_harmless(const char *text, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        bool two = c == 0xC2 && next >= 0x80 && next < 0xA0;
        bool harmful = two || c == 0x7F || (c < 0x20 && c != '\n' && c != '\t');
        buffer_append(out, harmful ? "?" : text + i, 1);
        i += two;
    }
}

static struct shown shown_scaled(double bytes, const char *suffix)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int i = 0;
    while (bytes >= 999.5 && i < 5) {
        bytes /= 1000;
        i++;
    }
    return shown_of(i == 0 || bytes >= 99.5 ? "%.0f %s%s" : "%.1f %s%s", bytes, units[i], suffix);
}

struct shown shown_bytes(double bytes)
{
    return shown_scaled(bytes, "");
}

struct shown shown_rate(double bytes_per_s)
{
    return shown_scaled(bytes_per_s, "/s");
}

struct shown shown_seconds(double s)
{
    if (s < 1e-3)
        return shown_of("%.0f µs", s * 1e6);
    if (s < 1)
        return shown_of("%.1f ms", s * 1e3);
    if (s < 120)
        return shown_of("%.1f s", s);
    return s < 7200 ? shown_of("%.0f min", s / 60) : shown_of("%.1f h", s / 3600);
}

struct shown shown_date(double unix_s)
{
    time_t when = (time_t)unix_s;
    struct tm local;
    struct shown t = {""};
    if (localtime_r(&when, &local))
        strftime(t.s, sizeof t.s, "%Y-%m-%d %H:%M", &local);
    return t;
}

size_t shown_columns(int fd, size_t otherwise)
{
    struct winsize w;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : otherwise;
}

struct shown shown_value(const json_t *v)
{
    if (json_is_string(v) && *json_string_value(v))
        return shown_of("%s", json_string_value(v));
    if (json_is_integer(v))
        return shown_of("%lld", (long long)json_integer_value(v));
    if (json_is_real(v))
        return shown_of("%.4g", json_real_value(v));
    if (json_is_boolean(v))
        return shown_of("%s", json_is_true(v) ? "yes" : "no");
    return shown_of("-");
}

struct shown shown_member(const json_t *o, const char *key)
{
    return shown_value(json_object_get(o, key));
}

const char *string_member(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s && *s ? s : "-";
}

double number_member(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

bool bool_member(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}
