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
#include "common/suggestion.h"

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

/* ---- the one that verbs use ---- */

/* The file `current`: the one that was chosen last, then those chosen before it, a line each. When
 * a context goes, the one before it is the current one again. */
enum { MOST_CHOSEN = 16 };
struct chosen {
    char names[MOST_CHOSEN][sizeof((struct context *)0)->name];
    int n;
};

static int chosen_file(char *out, size_t size, struct err *e)
{
    char folder[2048];
    int rc = context_folder("", folder, sizeof folder, e);
    if (rc == 0)
        snprintf(out, size, "%s/current", folder);
    return rc;
}

static int chosen_read(struct chosen *c, struct err *e)
{
    char file[2200];
    *c = (struct chosen){0};
    int rc = chosen_file(file, sizeof file, e);
    FILE *f = rc == 0 ? fopen(file, "r") : NULL;
    while (f && c->n < MOST_CHOSEN && fscanf(f, "%63s", c->names[c->n]) == 1)
        c->n++;
    if (f)
        fclose(f);
    return rc;
}

static bool chosen_drop(struct chosen *c, const char *name)
{
    int kept = 0;
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->names[i], name) != 0)
            memmove(c->names[kept++], c->names[i], sizeof c->names[i]);
    bool dropped = kept < c->n;
    c->n = kept;
    return dropped;
}

static int chosen_write(const struct chosen *c, struct err *e)
{
    char file[2200], text[sizeof c->names + MOST_CHOSEN];
    int n = 0, rc = chosen_file(file, sizeof file, e);
    for (int i = 0; i < c->n; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\n", c->names[i]);
    if (rc == 0 && c->n == 0)
        unlink(file);
    return rc < 0 || c->n == 0 ? rc : fs_file_write(file, text, (size_t)n, 0600, e);
}

static int chosen_add(const char *name, struct err *e)
{
    struct chosen c;
    int rc = chosen_read(&c, e);
    if (rc < 0)
        return rc;
    chosen_drop(&c, name);
    if (c.n == MOST_CHOSEN)
        c.n--;
    memmove(c.names[1], c.names[0], (size_t)c.n * sizeof c.names[0]);
    snprintf(c.names[0], sizeof c.names[0], "%s", name);
    c.n++;
    return chosen_write(&c, e);
}

/* ---- their files ---- */

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
    MEMBER("http_ca", http_ca, false),
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

static bool text_has_controls(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
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
        if (text_has_controls(text)) /* a terminal would obey them */
            return json_fail(at, e, "\"%s\" has control characters", members[i].key);
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
    return rc == 0 && make_current ? chosen_add(c->name, e) : rc;
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

bool context_nearest(const char *name, char *out, size_t size)
{
    struct suggestion near = {0};
    json_t *list = context_list(), *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        suggestion_try(&near, name, json_string_value(one));
    }
    snprintf(out, size, "%s", near.best ? near.best : "");
    json_decref(list);
    return out[0] != '\0';
}

static int context_missing(const char *name, struct err *e)
{
    char near[sizeof((struct context *)0)->name];
    err_set(e, HP_ENOCLUSTER, "there is no context \"%s\"", name);
    return context_nearest(name, near, sizeof near)
               ? err_hint(e, "did you mean \"%s\"? `hpctl context ls` lists them", near)
               : err_hint(e, "`hpctl context ls` lists them");
}

int context_load(const char *name, struct context *out, struct err *e)
{
    char file[2300];
    struct chosen chosen;
    json_t *root;
    struct json_at at;
    int rc = chosen_read(&chosen, e);
    if (rc == 0 && !name && chosen.n == 0)
        rc = no_current(e);
    const char *which = name ? name : chosen.names[0];
    if (rc < 0 || (rc = context_file(which, file, sizeof file, e)) < 0)
        return rc;
    if ((rc = json_load_at(file, &root, &at, e)) < 0)
        return rc == HP_ENOENT ? context_missing(which, e) : rc;
    rc = context_from_json(&at, out, e);
    json_decref(root);
    return rc;
}

int context_remove(const char *name, struct err *e)
{
    char file[2300];
    struct chosen chosen;
    int rc = context_file(name, file, sizeof file, e);
    if (rc < 0)
        return rc;
    if (unlink(file) != 0 && errno != ENOENT)
        return err_set(e, HP_EIO, "cannot remove %s: %s", file, strerror(errno));
    rc = chosen_read(&chosen, e);
    return rc == 0 && chosen_drop(&chosen, name) ? chosen_write(&chosen, e) : rc;
}

int context_check_free(const char *name, const char *server_key, bool local, struct err *e)
{
    struct context there;
    struct err ignored;
    if (context_load(name, &there, &ignored) < 0 || (local && there.local_dir[0]) ||
        (server_key && strcmp(server_key, there.server_key) == 0))
        return 0;
    err_set(e, HP_EEXIST, "there is a context \"%s\" already, of the coordinator at %s", name,
            there.control);
    return err_hint(e,
                    "--name gives this cluster another name; `hpctl context rm %s` forgets that "
                    "one, and its keys",
                    name);
}

const char *context_scheme(const struct context *c)
{
    return strncmp(c->http, "https://", 8) == 0 ? "https" : "http";
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
