/* Texts of anybody's inside text that has a syntax. A failed allocation shows in the buffer. */
#ifndef HP_COMMON_ESCAPE_H
#define HP_COMMON_ESCAPE_H

#include "common/bytes.h"

/* As it may stand between tags and in quoted attributes of XML and SVG; control characters are left
 * out. */
void escape_xml(struct buffer *out, const char *text);

/* As a JSON string, with its quotes. `text` is UTF-8. */
void escape_json(struct buffer *out, const char *text);

#endif
