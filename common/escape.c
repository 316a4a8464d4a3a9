#include "common/escape.h"

#include <stdio.h>
#include <string.h>

static const char *xml_entity_of(char c)
{
    switch (c) {
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '&': return "&amp;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void escape_xml(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = xml_entity_of(*text);
        if (entity)
            buffer_append(out, entity, strlen(entity));
        else if ((unsigned char)*text >= ' ')
            buffer_append(out, text, 1);
    }
}

void escape_json(struct buffer *out, const char *text)
{
    buffer_append(out, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            buffer_printf(out, "\\%c", c);
        else if (c < ' ')
            buffer_printf(out, "\\u%04x", c);
        else
            buffer_append(out, text, 1);
    }
    buffer_append(out, "\"", 1);
}
