#include "hpctl/context.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"

int make_folders(const char *path, struct err *e)
{
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return err_set(e, HP_EINVAL, "\"%s\" is no path", path);
    for (size_t i = 1; i <= n; i++)
        if (path[i] == '/' || path[i] == '\0') {
            snprintf(part, sizeof part, "%.*s", (int)i, path);
            if (mkdir(part, 0700) != 0 && errno != EEXIST)
                return err_set(e, HP_EIO, "cannot make folder %s: %s", part, strerror(errno));
        }
    return 0;
}

int context_folder(const char *below, char *out, size_t size, struct err *e)
{
    const char *own = getenv("HP_CONFIG_DIR"), *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
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
    return make_folders(out, e);
}

int context_check_name(const char *name, struct err *e)
{
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof((struct context *)0)->name || name[0] == '.' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != n)
        return err_set(e, HP_EINVAL, "\"%.80s\" is no name: use up to 63 letters, digits, '-', '_' and '.'", name);
    return 0;
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
    snprintf(file, sizeof file, "%s/current", folder);
    FILE *f = fopen(file, "w");
    bool bad = !f || fprintf(f, "%s\n", name) < 0;
    bad |= f && fclose(f) != 0;
    return bad ? err_set(e, HP_EIO, "cannot write %s: %s", file, strerror(errno)) : 0;
}

int context_save(const struct context *c, bool make_current, struct err *e)
{
    char file[2300];
    int rc = context_file(c->name, file, sizeof file, e);
    if (rc < 0)
        return rc;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", c->name, "control", c->control, "http", c->http, "server_key", c->server_key,
                          "admin_public_key", c->admin.public_key, "admin_secret_key", c->admin.secret_key, "local_dir", c->local_dir);
    mode_t before = umask(077);
    rc = o ? json_save(o, file, e) : err_set(e, HP_ENOMEM, "out of memory for a context");
    umask(before);
    json_decref(o);
    return rc == 0 && make_current ? write_current(c->name, e) : rc;
}

static int copy_member(const struct json_at *at, const char *key, char *out, size_t size, struct err *e)
{
    const char *v;
    int rc = json_get_string(at, key, &v, e);
    if (rc < 0)
        return rc;
    if (strlen(v) >= size)
        return json_fail(at, e, "\"%s\" is too long", key);
    snprintf(out, size, "%s", v);
    return 0;
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
    err_set(e, HP_ENOCLUSTER, "no cluster is known here");
    return err_hint(e, "try one on this box with `hpctl local up`, or make one with `hpctl cluster init`");
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
    *out = (struct context){0};
    if ((rc = copy_member(&at, "name", out->name, sizeof out->name, e)) == 0 &&
        (rc = copy_member(&at, "control", out->control, sizeof out->control, e)) == 0 &&
        (rc = copy_member(&at, "http", out->http, sizeof out->http, e)) == 0 &&
        (rc = copy_member(&at, "server_key", out->server_key, sizeof out->server_key, e)) == 0 &&
        (rc = copy_member(&at, "admin_public_key", out->admin.public_key, sizeof out->admin.public_key, e)) == 0 &&
        (rc = copy_member(&at, "admin_secret_key", out->admin.secret_key, sizeof out->admin.secret_key, e)) == 0)
        rc = copy_member(&at, "local_dir", out->local_dir, sizeof out->local_dir, e);
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

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

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
            names[n++] = strndup(entry->d_name, length - 5);
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
