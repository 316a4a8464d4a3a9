#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

static const struct {
    int code;
    int exit_code;
    const char *word;
} statuses[] = {
    {HP_OK, 0, "ok"},
    {HP_PENDING, 0, "pending"},
    {HP_EUSAGE, 2, "usage"},
    {HP_EINVAL, 1, "invalid"},
    {HP_EPARSE, 1, "malformed"},
    {HP_ENOENT, 4, "not_found"},
    {HP_EEXIST, 1, "exists"},
    {HP_EDENIED, 5, "denied"},
    {HP_EUNSUPPORTED, 1, "unsupported"},
    {HP_EINFEASIBLE, 6, "infeasible"},
    {HP_ETIMEOUT, 7, "timeout"},
    {HP_ECANCELED, 130, "canceled"},
    {HP_EBUSY, 1, "busy"},
    {HP_ELIMIT, 1, "limit"},
    {HP_ERATE, 1, "rate_limit_exceeded"},
    {HP_EQUOTA, 1, "insufficient_quota"},
    {HP_ELINK, 1, "link"},
    {HP_EPROTO, 1, "protocol"},
    {HP_ESTALE, 1, "stale"},
    {HP_ENOCLUSTER, 3, "no_cluster"},
    {HP_EIO, 1, "io"},
    {HP_ENOSPACE, 1, "no_space"},
    {HP_ENOMEM, 1, "no_memory"},
    {HP_EDEVICE, 1, "device"},
    {HP_ECORRUPT, 1, "corrupt"},
    {HP_EBUG, 1, "bug"},
};

/* Control characters but line ends and tabs, those of Unicode's second set too, become "?": a
 * terminal obeys them. */
static void controls_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        bool second = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f || second)
            *c = '?';
        if (second)
            *++c = '?';
    }
}

/* Texts quote names of files and what strangers sent, and go on as JSON and to terminals: they are
 * cut between characters, and are UTF-8 without control characters whatever they quote. */
static void text_write(char *out, size_t size, const char *fmt, va_list args)
{
    if (vsnprintf(out, size, fmt, args) >= (int)size)
        utf8_trim(out);
    utf8_clean(out);
    controls_clean(out);
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;
    e->code = code;
    e->hint[0] = '\0';
    va_list args;
    va_start(args, fmt);
    text_write(e->text, sizeof e->text, fmt, args);
    va_end(args);
    return code;
}

int err_no_memory(struct err *e, const char *what_fmt, ...)
{
    char what[sizeof e->text];
    va_list args;
    va_start(args, what_fmt);
    text_write(what, sizeof what, what_fmt, args);
    va_end(args);
    return err_set(e, HP_ENOMEM, "no memory for %.700s", what);
}

int err_hint(struct err *e, const char *fmt, ...)
{
    if (!e)
        return HP_EBUG; /* whatever it was, it was no success */
    va_list args;
    va_start(args, fmt);
    text_write(e->hint, sizeof e->hint, fmt, args);
    va_end(args);
    return e->code;
}

int err_at(struct err *e, const char *fmt, ...)
{
    if (!e)
        return HP_EBUG; /* whatever it was, it was no success */
    char text[sizeof e->text];
    va_list args;
    va_start(args, fmt);
    text_write(text, sizeof text, fmt, args);
    va_end(args);
    size_t n = strlen(text);
    if (n && (size_t)snprintf(text + n, sizeof text - n, ": %s", e->text) >= sizeof text - n)
        utf8_trim(text);
    memcpy(e->text, text, sizeof text);
    return e->code;
}

void err_rename(struct err *e, const char *from, const char *to)
{
    char text[sizeof e->text];
    size_t n = strlen(from);
    if (!e || n == 0 || strncmp(e->text, from, n) != 0)
        return;
    if ((size_t)snprintf(text, sizeof text, "%s%s", to, e->text + n) >= sizeof text)
        utf8_trim(text);
    memcpy(e->text, text, sizeof text);
}

const char *status_word(int code)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].word;
    return "bug";
}

int status_of_word(const char *word)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (word && strcmp(statuses[i].word, word) == 0)
            return statuses[i].code;
    return HP_EBUG;
}

int status_exit_code(int code)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].exit_code;
    return 1;
}
