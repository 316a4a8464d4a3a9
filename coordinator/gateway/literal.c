#include "coordinator/gateway/literal.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MARKS = 32 }; /* U+FDD0 to U+FDEF */

static bool role_is_known(const char *role)
{
    static const char *const known[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++)
        if (strcmp(role, known[i]) == 0)
            return true;
    return false;
}

/* Does any text in there hold these bytes? */
static bool json_holds(const json_t *v, const char *bytes)
{
    const json_t *item;
    const char *key;
    size_t i;
    bool found = json_is_string(v) &&
                 memmem(json_string_value(v), json_string_length(v), bytes, strlen(bytes));
    if (json_is_array(v))
        json_array_foreach(v, i, item) found = found || json_holds(item, bytes);
    else if (json_is_object(v))
        json_object_foreach((json_t *)(uintptr_t)v, key, item) found =
            found || strstr(key, bytes) || json_holds(item, bytes);
    return found;
}

static bool mark_choose(const json_t *messages, struct literal_mark *mark)
{
    for (int i = 0; i < MARKS; i++) {
        snprintf(mark->bytes, sizeof mark->bytes, "\xEF\xB7%c", 0x90 + i);
        snprintf(mark->escaped[0], sizeof *mark->escaped, "\\ufd%x", 0xD0 + i);
        snprintf(mark->escaped[1], sizeof *mark->escaped, "\\uFD%X", 0xD0 + i);
        if (!json_holds(messages, mark->bytes) && !json_holds(messages, mark->escaped[0]) &&
            !json_holds(messages, mark->escaped[1]))
            return true;
    }
    return false;
}

static size_t character_bytes(const char *text, size_t n)
{
    size_t bytes = 1;
    while (bytes < n && ((unsigned char)text[bytes] & 0xC0) == 0x80)
        bytes++;
    return bytes;
}

static int field_mark(json_t *message, const char *field, const bool starts[256],
                      const struct literal_mark *mark, struct err *e)
{
    const json_t *value = json_object_get(message, field);
    struct buffer out = {0};
    if (!json_is_string(value))
        return 0;
    const char *text = json_string_value(value);
    for (size_t at = 0, n = json_string_length(value); at < n;) {
        size_t bytes = character_bytes(text + at, n - at);
        buffer_append(&out, text + at, bytes);
        if (starts[(unsigned char)text[at]])
            buffer_append(&out, mark->bytes, LITERAL_MARK_BYTES);
        at += bytes;
    }
    json_t *marked = out.failed ? NULL : json_stringn(buffer_cstr(&out), out.size);
    buffer_free(&out);
    return json_object_set_new(message, field, marked) == 0
               ? 0
               : err_set(e, HP_ENOMEM, "out of memory for a prompt");
}

int literal_mark(json_t *messages, const struct tokenizer *t, struct literal_mark *mark,
                 struct err *e)
{
    bool starts[256];
    json_t *message;
    size_t i;
    int rc =
        mark_choose(messages, mark)
            ? 0
            : err_set(e, HP_EINVAL,
                      "messages: a text holds all of U+FDD0 to U+FDEF, which are no characters");
    tokenizer_special_starts(t, starts);
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (rc == 0 && !role_is_known(role))
            rc = err_set(e, HP_EINVAL,
                         "messages: with literal_specials a role is system, developer, user, "
                         "assistant, tool or function");
        if (rc < 0 || strcmp(role, "assistant") == 0)
            continue;
        rc = field_mark(message, "content", starts, mark, e);
        rc = rc < 0 ? rc : field_mark(message, "name", starts, mark, e);
    }
    return rc;
}

/* The character that ends at `end`. */
static void span_add(struct buffer *spans, const struct buffer *text, size_t end)
{
    struct text_span s = {end, end};
    while (s.start > 0 && (text->data[--s.start] & 0xC0) == 0x80)
        ;
    struct text_span *last =
        spans->size ? (struct text_span *)(void *)(spans->data + spans->size) - 1 : NULL;
    if (last && last->end >= s.start)
        last->end = s.end;
    else
        buffer_append(spans, &s, sizeof s);
}

int literal_unmark(struct buffer *text, const struct literal_mark *mark, struct buffer *spans,
                   struct err *e)
{
    size_t kept = 0;
    bool escaped =
        strstr(buffer_cstr(text), mark->escaped[0]) || strstr(buffer_cstr(text), mark->escaped[1]);
    if (escaped)
        return err_set(e, HP_EUNSUPPORTED,
                       "literal_specials: the model's chat template escapes what it is given");
    for (size_t at = 0; at < text->size;) {
        if (text->size - at >= LITERAL_MARK_BYTES &&
            memcmp(text->data + at, mark->bytes, LITERAL_MARK_BYTES) == 0) {
            at += LITERAL_MARK_BYTES;
            span_add(spans, text, kept);
        } else {
            text->data[kept++] = text->data[at++];
        }
    }
    text->size = kept;
    return spans->failed ? err_set(e, HP_ENOMEM, "out of memory for a prompt") : 0;
}
