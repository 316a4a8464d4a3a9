/* Files that people write: YAML (libyaml) or JSON, as one JSON document. */
#ifndef HP_HPCTL_YAML_JSON_H
#define HP_HPCTL_YAML_JSON_H

#include <jansson.h>

#include "common/status.h"

/* Reads a file ("-": standard input). One document, nothing behind it; anchors, aliases, tags and
 * keys that are no text are refused. Plain scalars are null, true, false or numbers where they are
 * written so, else text. HP_EPARSE names file, line and column; HP_ENOENT, HP_EIO, HP_ENOMEM. */
int yaml_json_load(const char *file, json_t **out, struct err *e);

#endif
