/* Fields of a request's body, one by one. Each reader refuses with HP_EINVAL, "NAME: what is
 * wrong", and *param names the field; null is as good as missing. Pure: any thread. */
#ifndef HP_COORDINATOR_GATEWAY_BODY_FIELDS_H
#define HP_COORDINATOR_GATEWAY_BODY_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

/* A refusal that names its field. */
int body_field_refuse(const char **param, const char *name, struct err *e, const char *text);

/* A number between both ends; `fallback` where it is missing. */
int body_field_number(const json_t *root, const char *name, double min, double max, double fallback,
                      double *out, const char **param, struct err *e);
int body_field_whole(const json_t *root, const char *name, int64_t min, int64_t max,
                     int64_t fallback, int64_t *out, const char **param, struct err *e);
/* True or false; false where it is missing. */
int body_field_flag(const json_t *root, const char *name, bool *out, const char **param,
                    struct err *e);
/* Whether a value is an object, a text, or what a message may have as its content: a text, or a
 * list of texts and of parts that are some. NULL is as good as null. */
int body_field_object(const json_t *v, const char *name, const char **param, struct err *e);
int body_field_text(const json_t *v, const char *name, const char **param, struct err *e);
int body_field_content(const json_t *v, const char *name, const char **param, struct err *e);
/* How many tokens to make at most; 0: the field is not there. */
int body_field_tokens(const json_t *root, const char *name, int64_t *out, const char **param,
                      struct err *e);

#endif
