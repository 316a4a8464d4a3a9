#include "model/files/hub.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char index_name[] = "model.safetensors.index.json";

/* In place of tokenizer.json, the first that is there. */
#define TOKENIZER_FILES "tekken.json", "tokenizer.model", "spiece.model"

/* Whatever opening a folder, its tokenizer and its template reads. */
static const char *const small_files[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    index_name,
    "additional_chat_templates/tool_use.jinja",
    "modules.json",
    "1_Pooling/config.json",
    TOKENIZER_FILES,
};
enum { N_SMALL_FILES = sizeof small_files / sizeof *small_files };

/* Files that stand for tokenizer.json, and are not needed where it is. */
static bool is_spare(const char *name)
{
    static const char *const names[] = {TOKENIZER_FILES};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int out_of_memory(const struct hub *h, struct err *e)
{
    return err_set(e, HP_ENOMEM, "%s: out of memory", h->folder);
}

char *hub_path(const struct hub *h, struct arena *arena, const char *name)
{
    return arena_printf(arena, "%s/%s", h->folder, name);
}

static bool has_file(const struct hub *h, const char *name)
{
    for (int i = 0; i < h->n_files; i++)
        if (strcmp(h->names[i], name) == 0)
            return true;
    return false;
}

static bool is_shard_name(const char *name)
{
    static const char ending[] = ".safetensors";
    size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && n < 256 && strcmp(name + n - m, ending) == 0 && name[0] != '.' &&
           !strchr(name, '/');
}

static int list_small_files(struct hub *h, struct arena *arena, struct err *e)
{
    bool has_tokenizer = false;
    for (int i = 0; i < N_SMALL_FILES; i++) {
        char *path = hub_path(h, arena, small_files[i]);
        struct stat s;
        if (!path)
            return out_of_memory(h, e);
        if (has_tokenizer && is_spare(small_files[i]))
            continue;
        if (stat(path, &s) < 0 || !S_ISREG(s.st_mode))
            continue;
        if (s.st_size > HUB_SMALL_FILE_MAX_BYTES)
            return err_set(e, HP_ELIMIT, "%s: larger than %d MiB", path,
                           HUB_SMALL_FILE_MAX_BYTES >> 20);
        h->names[h->n_files++] = small_files[i];
        has_tokenizer = has_tokenizer || strcmp(small_files[i], "tokenizer.json") == 0 ||
                        is_spare(small_files[i]);
    }
    h->first_shard = h->n_files;
    return 0;
}

static int load_json(const struct hub *h, struct arena *arena, const char *name, json_t **root,
                     struct json_at *at, struct err *e)
{
    const char *path = hub_path(h, arena, name);
    return path ? json_load_wide_at(path, root, at, e) : out_of_memory(h, e);
}

/* ---- shards ---- */

static int add_shard(struct hub *h, struct arena *arena, const char *name, struct err *e)
{
    if (h->n_files - h->first_shard >= HUB_SHARDS_MAX)
        return err_set(e, HP_ELIMIT, "%s: more than %d files of weights", h->folder,
                       HUB_SHARDS_MAX);
    char *copy = arena_strdup(arena, name);
    if (!copy)
        return out_of_memory(h, e);
    h->names[h->n_files++] = copy;
    return 0;
}

static int weight_map_of(const struct hub *h, struct json_at *out, struct err *e)
{
    int rc = json_get(&h->index_at, "weight_map", out, e);
    return rc < 0 ? rc : json_as_object(out, e);
}

/* Distinct files of the index, in the order met. */
static int shards_of_index(struct hub *h, struct arena *arena, struct err *e)
{
    struct json_at map;
    int rc = load_json(h, arena, index_name, &h->index, &h->index_at, e);
    rc = rc < 0 ? rc : weight_map_of(h, &map, e);
    if (rc < 0)
        return rc;
    const char *tensor;
    json_t *value;
    json_object_foreach(map.value, tensor, value)
    {
        struct json_at at = {map.file, value, &map, tensor, 0};
        const char *name;
        rc = json_as_string(&at, &name, e);
        if (rc == 0 && !is_shard_name(name))
            rc = json_fail(&at, e,
                           "\"%.100s\" is not the name of a safetensors file in this folder", name);
        /* Tensors of one file follow each other in files as they are written: looking at the last
         * one spares most searches. */
        bool repeats =
            rc == 0 && h->n_files > h->first_shard && strcmp(h->names[h->n_files - 1], name) == 0;
        if (rc == 0 && !repeats && !has_file(h, name))
            rc = add_shard(h, arena, name, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int shards_of_folder(struct hub *h, struct arena *arena, struct err *e)
{
    DIR *d = opendir(h->folder);
    if (!d)
        return err_set(e, errno == EACCES ? HP_EDENIED : HP_EIO, "%s: %s", h->folder,
                       strerror(errno));
    int rc = 0;
    bool whole = false;
    for (struct dirent *entry; rc == 0 && !whole && (entry = readdir(d));)
        if (is_shard_name(entry->d_name)) {
            whole = strcmp(entry->d_name, "model.safetensors") == 0;
            if (whole)
                h->n_files = h->first_shard;
            rc = add_shard(h, arena, entry->d_name, e);
        }
    closedir(d);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_shards(struct hub *h, struct arena *arena, struct err *e)
{
    int rc = has_file(h, index_name) ? shards_of_index(h, arena, e) : shards_of_folder(h, arena, e);
    if (rc == 0 && h->n_files == h->first_shard) {
        err_set(e, HP_ENOENT, "%s: has no *.safetensors", h->folder);
        return err_hint(e, "weights in other formats (*.bin, *.pt) are not read; convert them to "
                           "safetensors or GGUF");
    }
    qsort(h->names + h->first_shard, (size_t)(h->n_files - h->first_shard), sizeof(const char *),
          by_name);
    return rc;
}

int hub_index_check(const struct hub *h, const struct weight_table *t, struct err *e)
{
    struct json_at map;
    int rc = h->index ? weight_map_of(h, &map, e) : 0;
    if (rc < 0 || !h->index)
        return rc;
    const char *tensor;
    json_t *value;
    json_object_foreach(map.value, tensor, value)
    {
        struct json_at at = {map.file, value, &map, tensor, 0};
        const struct weight *w = weight_table_find(t, tensor);
        if (!w || strcmp(h->names[w->file], json_string_value(value)) != 0)
            return json_fail(&at, e, "tensor %.200s is not in %s", tensor,
                             json_string_value(value));
    }
    return 0;
}

/* ---- the chat template ---- */

static int read_template_file(struct hub *h, struct arena *arena, const char *name,
                              const char **out, struct err *e)
{
    char *path = hub_path(h, arena, name);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f)
        return err_set(e, HP_EIO, "%s/%s: %s", h->folder, name, strerror(errno));
    enum { TEMPLATE_MAX_BYTES = 4 << 20 };
    char *text = malloc(TEMPLATE_MAX_BYTES + 1);
    size_t n = text ? fread(text, 1, TEMPLATE_MAX_BYTES + 1, f) : 0;
    int rc = 0;
    if (!text)
        rc = out_of_memory(h, e);
    else if (ferror(f))
        rc = err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
    else if (n > TEMPLATE_MAX_BYTES)
        rc = err_set(e, HP_ELIMIT, "%s: larger than %d MiB", path, TEMPLATE_MAX_BYTES >> 20);
    else if (memchr(text, '\0', n))
        rc = err_set(e, HP_EPARSE, "%s: has a NUL", path);
    else if (!(*out = arena_strndup(arena, text, n)))
        rc = out_of_memory(h, e);
    free(text);
    fclose(f);
    return rc;
}

static int copy_template(struct hub *h, struct arena *arena, const struct json_at *text,
                         const char **out, struct err *e)
{
    const char *source;
    int rc = json_as_string(text, &source, e);
    if (rc == 0 && !(*out = arena_strdup(arena, source)))
        rc = out_of_memory(h, e);
    return rc;
}

/* "chat_template" is the template, or a list of them by name, of which "default" and "tool_use" are
 * known. */
static int templates_of_list(struct hub *h, struct arena *arena, const struct json_at *list,
                             struct err *e)
{
    size_t n;
    int rc = json_as_array(list, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(list, i), text;
        const char *name;
        rc = json_get_string(&item, "name", &name, e);
        const char **out = rc < 0                          ? NULL
                           : strcmp(name, "default") == 0  ? &h->chat_template
                           : strcmp(name, "tool_use") == 0 ? &h->tool_template
                                                           : NULL;
        if (out && (rc = json_get(&item, "template", &text, e)) == 0)
            rc = copy_template(h, arena, &text, out, e);
    }
    return rc;
}

static int read_config_templates(struct hub *h, struct arena *arena, struct err *e)
{
    json_t *root = NULL;
    struct json_at at, found;
    int rc = load_json(h, arena, "tokenizer_config.json", &root, &at, e);
    if (rc == 0 && json_find(&at, "chat_template", &found))
        rc = json_is_string(found.value) ? copy_template(h, arena, &found, &h->chat_template, e)
                                         : templates_of_list(h, arena, &found, e);
    json_decref(root);
    return rc;
}

/* Files of templates stand before what tokenizer_config.json has. */
static int read_template(struct hub *h, struct arena *arena, struct err *e)
{
    static const char tool_file[] = "additional_chat_templates/tool_use.jinja";
    int rc = has_file(h, "tokenizer_config.json") ? read_config_templates(h, arena, e) : 0;
    if (rc == 0 && has_file(h, "chat_template.jinja")) {
        h->tool_template = NULL;
        rc = read_template_file(h, arena, "chat_template.jinja", &h->chat_template, e);
    }
    return rc < 0 || !has_file(h, tool_file)
               ? rc
               : read_template_file(h, arena, tool_file, &h->tool_template, e);
}

/* ---- all of it ---- */

static int names_list(struct hub *h, struct arena *arena, struct err *e)
{
    h->names = arena_alloc(arena, N_SMALL_FILES + HUB_SHARDS_MAX, sizeof *h->names);
    return h->names ? list_small_files(h, arena, e) : out_of_memory(h, e);
}

static int open_all(struct hub *h, struct arena *arena, struct err *e)
{
    int rc = names_list(h, arena, e);
    rc = rc < 0 ? rc : load_json(h, arena, "config.json", &h->config, &h->config_at, e);
    if (rc == HP_ENOENT)
        err_hint(e, "a model is a GGUF file, or a Hugging Face folder (config.json, "
                    "tokenizer.json, *.safetensors)");
    rc = rc < 0 ? rc : list_shards(h, arena, e);
    if (rc == 0 && has_file(h, "modules.json"))
        rc = load_json(h, arena, "modules.json", &h->modules, &h->modules_at, e);
    if (rc == 0 && has_file(h, "1_Pooling/config.json"))
        rc = load_json(h, arena, "1_Pooling/config.json", &h->pooling, &h->pooling_at, e);
    return rc < 0 ? rc : read_template(h, arena, e);
}

static int folder_name(const char *folder, struct arena *arena, struct hub *out, struct err *e)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    *out = (struct hub){.folder = arena_strndup(arena, folder, n)};
    return out->folder ? 0 : err_set(e, HP_ENOMEM, "%s: out of memory", folder);
}

int hub_open(const char *folder, struct arena *arena, struct hub *out, struct err *e)
{
    int rc = folder_name(folder, arena, out, e);
    rc = rc < 0 ? rc : open_all(out, arena, e);
    if (rc < 0)
        hub_close(out);
    return rc;
}

int hub_open_text(const char *folder, struct arena *arena, struct hub *out, struct err *e)
{
    int rc = folder_name(folder, arena, out, e);
    rc = rc < 0 ? rc : names_list(out, arena, e);
    rc = rc < 0 ? rc : read_template(out, arena, e);
    if (rc < 0)
        hub_close(out);
    return rc;
}

void hub_close(struct hub *h)
{
    json_decref(h->config);
    json_decref(h->index);
    json_decref(h->modules);
    json_decref(h->pooling);
    *h = (struct hub){0};
}
