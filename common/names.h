/* Names that people give to agents, deployments and contexts: one alphabet for all, so that a name
 * can stand in a file's path, in --layers and in a log's line. Pure functions. */
#ifndef HP_COMMON_NAMES_H
#define HP_COMMON_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* For messages. A name that began with '-' would be an option of hpctl's. */
#define NAME_ALPHABET "letters, digits, '_', '.' and, not at the beginning, '-'"

/* Whether a byte may stand in a name, behind its beginning at least. */
bool name_has_character(char c);

/* Whether a text is a name of 1 to `most_bytes` bytes. */
bool name_is_valid(const char *text, size_t most_bytes);

/* A name of at most size - 1 bytes that is like `text`: every byte that may not stand in one
 * becomes '-', at the beginning '_'. Empty where `text` is; `size` > 0. */
void name_like(char *out, size_t size, const char *text);

#endif
