#include "coordinator/gateway/event_ids.h"

#include <stdio.h>
#include <string.h>

bool event_id_read(const char *text, uint32_t n, struct event_id *out)
{
    *out = (struct event_id){.n = n};
    if (!text || n > EVENT_ID_MOST_CHOICES)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t tokens = 0;
        const char *from = text;
        for (; *text >= '0' && *text <= '9' && tokens <= UINT32_MAX; text++)
            tokens = tokens * 10 + (uint64_t)(*text - '0');
        if (text == from || tokens > UINT32_MAX)
            return false;
        out->tokens[i] = (uint32_t)tokens;
        out->ended[i] = *text == 'f';
        text += *text == 'f';
        if (*text != (i + 1 < n ? '.' : '\0'))
            return false;
        text += i + 1 < n;
    }
    return n > 0;
}

/* Where the last event begins: behind the empty line before it. */
static size_t event_last(const struct buffer *events, size_t from)
{
    size_t at = events->size - 2;
    while (at > from &&
           !(events->data[at - 1] == '\n' && at - 1 > from && events->data[at - 2] == '\n'))
        at--;
    return at;
}

void event_id_write(struct buffer *events, size_t from, const struct event_id *id)
{
    char line[EVENT_ID_BYTES + 8];
    size_t n = (size_t)snprintf(line, sizeof line, "id: ");
    if (events->failed || events->size < from + 2 || events->data[events->size - 1] != '\n' ||
        events->data[events->size - 2] != '\n' || !id->n)
        return;
    for (uint32_t i = 0; i < id->n; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%u%s", i ? "." : "", id->tokens[i],
                              id->ended[i] ? "f" : "");
    line[n++] = '\n';
    size_t at = event_last(events, from), behind = events->size - at;
    buffer_append(events, line, n);
    if (events->failed)
        return;
    memmove(events->data + at + n, events->data + at, behind);
    memcpy(events->data + at, line, n);
}
