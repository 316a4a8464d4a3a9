#include "hpctl/context.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/json.h"
#include "common/names.h"

int context_folder(const char *below, char *out, size_t size, struct err *e)
{
    const char *own = getenv("HP_CONFIG_DIR"), *xdg = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    const struct passwd *pw = home ? NULL : getpwuid(getuid());
    char base[2048];
    if (own && *own)
        snprintf(base, sizeof base, "%s", own);
    else if (xdg && *xdg)
        snprintf(base, sizeof base, "%s/hp", xdg);
    else
        snprintf(base, sizeof base, "%s/.config/hp", home ? home : pw ? pw->pw_dir : "");
    int n = snprintf(out, size, "%s%s%s", base, *below ? "/" : "", below);
    if (n < 0 || (size_t)n >= size)
        return err_set(e, HP_EINVAL, "the path of the configuration folder is too long: %s", base);
    return fs_folder_make(out, 0700, e);
}

int context_check_name(const char *name, struct err *e)
{
    if (name_is_valid(name, sizeof((struct context *)0)->name - 1) && name[0] != '.')
        return 0;
    return err_set(e, HP_EINVAL, "\"%.80s\" is no name: use up to 63 " NAME_ALPHABET, name);
}

static int context_file(const char *name, char *out, size_t size, struct err *e)
{
    char folder[2048];
    int rc = context_check_name(name, e);
    if (rc < 0 || (rc = context_folder("contexts", folder, sizeof folder, e)) < 0)
        return rc;
    snprintf(out, size, "%s/%s.json", folder, name);
    return 0;
}

static int write_current(const char *name, struct err *e)
{
    char folder[2048], file[2200];
    int rc = context_folder("", folder, sizeof folder, e);
    if (rc < 0)
        return rc;
    char line[80];
    snprintf(file, sizeof file, "%s/current", folder);
    int n = snprintf(line, sizeof line, "%s\n", name);
    return fs_file_write(file, line, (size_t)n, 0600, e);
}

/* The members of a context's file, in their order. */
static const struct {
    const char *key;
    size_t offset, size;
    bool required;
} members[] = {
#define MEMBER(key, field, required)                                                               \
    {                                                                                              \
        key, offsetof(struct context, field), sizeof((struct context *)0)->field, required         \
    }
    MEMBER("name", name, true),
    MEMBER("control", control, true),
    MEMBER("http", http, true),
    MEMBER("server_key", server_key, true),
    MEMBER("admin_public_key", admin.public_key, true),
    MEMBER("admin_secret_key", admin.secret_key, true),
    MEMBER("local_dir", local_dir, false),
    MEMBER("listen", listen, false),
    MEMBER("http_listen", http_listen, false),
    MEMBER("data", data, false),
    MEMBER("trust", trust, false),
    MEMBER("api_key", api_key, false),
#undef MEMBER
};

int context_to_json(const struct context *c, json_t **out, struct err *e)
{
    json_t *o = json_pack("{s:s}", "format", "hp-context/1");
    bool whole = o != NULL;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *text = (const char *)c + members[i].offset;
        if (members[i].required || *text)
            whole &= json_object_set_new(o, members[i].key, json_string(text)) == 0;
    }
    *out = o;
    if (whole)
        return 0;
    json_decref(o);
    return err_no_memory(e, "a context");
}

int context_from_json(const struct json_at *at, struct context *out, struct err *e)
{
    *out = (struct context){0};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *text;
        int rc = members[i].required ? json_get_string(at, members[i].key, &text, e)
                                     : json_opt_string(at, members[i].key, "", &text, e);
        if (rc < 0)
            return rc;
        if (strlen(text) >= members[i].size)
            return json_fail(at, e, "\"%s\" is too long", members[i].key);
        snprintf((char *)out + members[i].offset, members[i].size, "%s", text);
    }
    struct err bad = {0};
    uint8_t server_key[KEY_BYTES];
    if (key_decode(out->server_key, server_key, &bad) < 0)
        return json_fail(at, e, "damaged: \"server_key\": %s", bad.text);
    if (key_pair_check(&out->admin, &bad) < 0)
        return json_fail(at, e, "damaged: \"admin_public_key\" and \"admin_secret_key\": %s",
                         bad.text);
    return context_check_name(out->name, e);
}

int context_save(const struct context *c, bool make_current, struct err *e)
{
    char file[2300];
    json_t *o;
    int rc = context_file(c->name, file, sizeof file, e);
    if (rc < 0 || (rc = context_to_json(c, &o, e)) < 0)
        return rc;
    rc = json_save_private(o, file, e);
    json_decref(o);
    return rc == 0 && make_current ? write_current(c->name, e) : rc;
}

/* No context is the current one: names those that there are. */
static int no_current(struct err *e)
{
    json_t *names = context_list(), *one;
    char list[200] = "";
    size_t i;
    json_array_foreach(names, i, one)
    {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", json_string_value(one));
    }
    size_t count = json_array_size(names);
    json_decref(names);
    err_set(e, HP_ENOCLUSTER,
            count ? "no cluster is chosen; known here: %s" : "no cluster is known here", list);
    return err_hint(
        e,
        count ? "choose one with `hpctl context use NAME`, or name it with --context"
              : "try one on this box with `hpctl local up`, or make one with `hpctl cluster init`");
}

static int read_current(char name[64], struct err *e)
{
    char folder[2048], file[2200];
    int rc = context_folder("", folder, sizeof folder, e);
    if (rc < 0)
        return rc;
    snprintf(file, sizeof file, "%s/current", folder);
    FILE *f = fopen(file, "r");
    bool found = f && fscanf(f, "%63s", name) == 1;
    if (f)
        fclose(f);
    if (found)
        return 0;
    return no_current(e);
}

int context_load(const char *name, struct context *out, struct err *e)
{
    char file[2300], current[64];
    json_t *root;
    struct json_at at;
    int rc = name ? 0 : read_current(current, e);
    if (rc < 0 || (rc = context_file(name ? name : current, file, sizeof file, e)) < 0)
        return rc;
    if ((rc = json_load_at(file, &root, &at, e)) < 0) {
        if (rc == HP_ENOENT) {
            err_set(e, HP_ENOCLUSTER, "there is no context \"%s\"", name ? name : current);
            err_hint(e, "`hpctl context ls` lists them");
            rc = HP_ENOCLUSTER;
        }
        return rc;
    }
    rc = context_from_json(&at, out, e);
    json_decref(root);
    return rc;
}

int context_remove(const char *name, struct err *e)
{
    char file[2300], current[64];
    struct err ignored;
    int rc = context_file(name, file, sizeof file, e);
    if (rc < 0)
        return rc;
    if (unlink(file) != 0 && errno != ENOENT)
        return err_set(e, HP_EIO, "cannot remove %s: %s", file, strerror(errno));
    if (read_current(current, &ignored) == 0 && strcmp(current, name) == 0) {
        char folder[2048], current_file[2200];
        context_folder("", folder, sizeof folder, &ignored);
        snprintf(current_file, sizeof current_file, "%s/current", folder);
        unlink(current_file);
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

json_t *context_list(void)
{
    char folder[2048];
    char *names[1024];
    size_t n = 0;
    json_t *list = json_array();
    DIR *d = context_folder("contexts", folder, sizeof folder, NULL) == 0 ? opendir(folder) : NULL;
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0 && n < 1024)
            n += (names[n] = strndup(entry->d_name, length - 5)) != NULL;
    }
    if (d)
        closedir(d);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_string(names[i]));
        free(names[i]);
    }
    return list;
}
