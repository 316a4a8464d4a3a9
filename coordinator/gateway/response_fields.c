#include "coordinator/gateway/response_fields.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"

static const char name[] = "response_fields";

int response_fields_read(const json_t *root, struct response_fields *out, const char **param,
                         struct err *e)
{
    const json_t *list = json_object_get(root, name), *path;
    size_t i;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > RESPONSE_MAX_FIELDS)
        return body_field_refuse(param, name, e, "must be a list of at most 64 texts");
    out->paths = calloc(json_array_size(list) + 1, sizeof *out->paths);
    if (!out->paths)
        return err_no_memory(e, "a request");
    json_array_foreach(list, i, path)
    {
        if (!json_is_string(path) || json_string_length(path) > RESPONSE_MAX_FIELD_BYTES)
            return body_field_refuse(param, name, e,
                                     "must hold texts of at most 128 bytes, such as "
                                     "\"timings/predicted_n\"");
        if (!(out->paths[out->n] = strdup(json_string_value(path))))
            return err_no_memory(e, "a request");
        out->n++;
    }
    return 0;
}

void response_fields_free(struct response_fields *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->paths[i]);
    free(f->paths);
    *f = (struct response_fields){0};
}

static json_t *value_at(json_t *root, const char *path)
{
    size_t n;
    for (;; path += n + 1) {
        char key[RESPONSE_MAX_FIELD_BYTES + 1];
        n = strcspn(path, "/");
        memcpy(key, path, n);
        key[n] = '\0';
        root = json_object_get(root, key);
        if (!root || !path[n])
            return root;
    }
}

static json_t *fields_of(const struct response_fields *f, json_t *all)
{
    json_t *picked = json_object();
    for (size_t i = 0; picked && i < f->n; i++) {
        json_t *v = value_at(all, f->paths[i]);
        if (v && json_object_set(picked, f->paths[i], v) < 0) {
            json_decref(picked);
            return NULL;
        }
    }
    return picked;
}

bool response_fields_have(const struct response_fields *f, const char *member)
{
    size_t i = 0;
    while (i < f->n && strcmp(f->paths[i], member) != 0)
        i++;
    return !f->n || i < f->n;
}

void response_fields_pick(const struct response_fields *f, struct buffer *out, size_t from)
{
    if (!f->n || out->failed)
        return;
    json_t *all =
               json_loadb((const char *)out->data + from, out->size - from, JSON_ALLOW_NUL, NULL),
           *picked = all ? fields_of(f, all) : NULL;
    char *text = picked ? json_dumps(picked, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    out->size = from;
    if (text)
        buffer_append(out, text, strlen(text));
    out->failed |= !text;
    free(text);
    json_decref(picked);
    json_decref(all);
}
